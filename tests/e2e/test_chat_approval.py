"""`wonder chat` asks at a terminal about calls that wait for approval (feature M9), also of delegates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.process import Server, serving
from tests.e2e.test_approval import AGENT, LIBRARY, resolve
from tests.e2e.test_gates_below import THROUGH_TWO, staffed
from tests.sdk.cli.test_chat_terminal import Person
from wonder.v1 import coordinator_service_pb2 as runs

pytestmark = pytest.mark.asyncio(loop_scope="session")

Dialogue = tuple[tuple[str, str], ...]
"""Pairs of the text that appears at the terminal and the keys that the person then types."""

EDIT: Dialogue = (
    ("approve? ", "e\r"),
    ("arguments as JSON", "[1]\r"),
    ("are a JSON object", ""),
    ("approve? ", "e\r"),
    ("arguments as JSON", '{"text": 7}\r'),
    ("does not match", ""),
    ("approve? ", "e\r"),
    ("arguments as JSON", '{"text": "safer"}\r'),
    ("approved post", ""),
    ("safer", ""),
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with serving(tmp_path_factory.mktemp("chat")) as server:
        async with server.client() as client:
            await client.apply("e2e/approval", LIBRARY)
            await client.apply("e2e/poster", AGENT)
            await client.agent("poster", "e2e/poster/poster")
            await staffed(client)
        yield server


def hold(person: Person, dialogue: Dialogue) -> int:
    for appears, types in dialogue:
        person.reads(appears)
        person.types(types)
    person.reads("turn 1")
    person.reads("you> ")
    person.types("\x04")
    return person.leaves()


@pytest.mark.parametrize(
    "dialogue",
    [
        (("approve? ", "y\r"), ("approved post", ""), ("posted", "")),
        (("approve? ", "n\r"), ("reason for the model", "Not today.\r"), ("rejected post: Not today.", "")),
        EDIT,
    ],
    ids=["approve", "reject", "edit"],
)
async def test_a_person_answers_in_the_chat(place: Server, dialogue: Dialogue, tmp_path: Path) -> None:
    person = Person(place.address, tmp_path, "chat", "-a", "poster")
    said = ("you> ", "use the tool post with hello\r"), ('"text": "hello"', "")
    assert await asyncio.to_thread(hold, person, (*said, *dialogue)) == 0


async def test_a_gate_two_levels_below_is_answered_in_the_chat(place: Server, tmp_path: Path) -> None:
    person = Person(place.address, tmp_path, "chat", "-a", "below_chief")
    said = ("you> ", f"{THROUGH_TWO}\r"), ("approve? ", "y\r"), ("approved post", "")
    assert await asyncio.to_thread(hold, person, said) == 0


async def test_a_gate_for_others_is_left_to_them(place: Server, tmp_path: Path) -> None:
    """The gate of the run names ann; another cannot answer, and ann's answer from elsewhere ends the turn."""
    person = Person(place.address, tmp_path, "chat", "-a", "below_chief", "--user", "bob")
    said = ("you> ", "use the tool ask_nested\r"), ("Sign?", ""), ("approve? ", "y\r")
    refused = ("may not resolve this gate", ""), ("it waits: wonder gates approve gate_", "")

    def read() -> str:
        for appears, types in (*said, *refused):
            person.reads(appears)
            person.types(types)
        return ""

    await asyncio.to_thread(read)
    async with place.client() as client:
        (gate,) = (await client.coordinator.ListGates(runs.ListGatesRequest())).gates
        await resolve(client, gate, user_id="ann")
    assert await asyncio.to_thread(hold, person, (("approved", ""),)) == 0
