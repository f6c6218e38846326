"""`wonder chat` asks at a terminal about calls that wait for approval (feature M9), also of delegates."""

from __future__ import annotations

import asyncio
import os
import sys
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
    refused = ("may not resolve this gate", ""), ("it waits: wonder gates approve gate_", ""), ("you> ", "")

    def read() -> str:
        for appears, types in (*said, *refused):
            person.reads(appears)
            person.types(types)
        return ""

    await asyncio.to_thread(read)
    async with place.client() as client:
        (gate,) = (await client.coordinator.ListGates(runs.ListGatesRequest())).gates
        await resolve(client, gate, user_id="ann")
    # The prompt has returned. A gate that was answered elsewhere is not asked about; its turn goes on.
    assert await asyncio.to_thread(hold, person, (("", "/approve\r"), ("approved", ""))) == 0
    assert person.screen.count("approve? ") == 1


async def test_an_unknown_answer_asks_again_and_a_call_for_later_is_answered_later(
    place: Server, tmp_path: Path
) -> None:
    person = Person(place.address, tmp_path, "chat", "-a", "poster")
    dialogue = (
        ("you> ", "use the tool post with hello\r"),
        ("approve? ", "maybe\r"),
        ("maybe is no answer", ""),
        ("approve? ", "\r"),
        ("it waits: wonder gates approve gate_", ""),
        ("/approve asks again", ""),
        ("you> ", "/approve\r"),
        ("approve? ", "later\r"),
        ("it waits: ", ""),
        ("you> ", "/approve\r"),
        ("approve? ", "y\r"),
        ("approved post", ""),
        ("posted", ""),
    )
    assert await asyncio.to_thread(hold, person, dialogue) == 0


async def test_the_chat_is_left_while_a_call_waits_and_the_call_is_answered_in_the_next(
    place: Server, tmp_path: Path
) -> None:
    def leave() -> str:
        person = Person(place.address, tmp_path, "chat", "-a", "poster")
        # Ctrl-D at the question answers later; at the prompt it leaves.
        for appears, types in (
            ("you> ", "use the tool post with hello\r"),
            ("approve? ", "\x04"),
            ("it waits: ", ""),
            ("you> ", "\x04"),
            ("post waits for approval (gate_", ""),
            ("continue with: wonder chat -c ", ""),
        ):
            person.reads(appears)
            person.types(types)
        assert person.leaves() == 0
        return person.screen.rpartition("chat -c ")[2].split("\x1b")[0].strip()

    conversation = await asyncio.to_thread(leave)

    def come_back() -> int:
        person = Person(place.address, tmp_path, "chat", "-c", conversation)
        for appears, types in (
            ("1 call waits for approval", ""),
            ("you> ", "/approve\r"),
            ("approve? ", "y\r"),
            ("the turn goes on", ""),
            ("you> ", "\x04"),
        ):
            person.reads(appears)
            person.types(types)
        return person.leaves()

    assert await asyncio.to_thread(come_back) == 0
    async with place.client() as client:
        request = runs.ListGatesRequest(conversation_id=conversation)
        assert not (await client.coordinator.ListGates(request)).gates


@pytest.mark.parametrize("arguments", [("-m", "use the tool post with hello"), ()])
async def test_a_program_does_not_wait_for_a_person(
    place: Server, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """One message, and lines of a pipe: the chat ends with 3 and names the command that answers the call."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "wonder_sdk.cli",
            "chat",
            "-a",
            "poster",
            "--server",
            place.address,
            *arguments,
        ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)},
    )
    lines = b"" if arguments else b"use the tool post with hello\nNever sent\n"
    out, errors = await process.communicate(lines)
    assert process.returncode == 3, errors.decode()
    shown = (out if not arguments else errors).decode()
    assert "it waits: wonder gates approve gate_" in shown
    assert "Never sent" not in shown


async def test_one_message_of_a_person_ends_with_3_after_later(place: Server, tmp_path: Path) -> None:
    person = Person(place.address, tmp_path, "chat", "-a", "poster", "-m", "use the tool post with hello")
    await asyncio.to_thread(person.reads, "approve? ")
    person.types("\r")
    await asyncio.to_thread(person.reads, "it waits: wonder gates approve gate_")
    assert await asyncio.to_thread(person.leaves) == 3
    assert "/approve" not in person.screen
