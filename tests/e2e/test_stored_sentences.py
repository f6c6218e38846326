"""A sentence that is said stands on disk a few times, however long the conversation becomes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.background import call
from tests.e2e.client import Client
from tests.e2e.journals import assert_replays
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_artifacts import write
from tests.e2e.test_large_results import TOOLS, environment
from tests.e2e.test_lost_stores import wonder
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder_server.codec.packing import unpack

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOST = 3
"""In the journal, in the message's row, and once more."""

LIBRARY = """
name: plain
persona: {system_prompt: You talk., memory_extraction_workflow_id: wonder/std/extract_memory}
"""
SAID = {
    2: "the keeper of lighthouse 4711 counts the gulls, say 5 words",
    22: 'the pilot of airship 8086 draws the clouds, and "quotes" them\non a second line, say 9 words',
}
"""The first message, by the number of turns."""


def stored(data: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every stored value of the shards as it was before it was packed, with its table."""
    for path in sorted((data / "shards").glob("*.db")):
        with closing(sqlite3.connect(path)) as connection:
            tables = [
                name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            for table in tables:
                for row in connection.execute(f"SELECT * FROM {table}"):
                    yield from ((table, value.encode()) for value in row if isinstance(value, str))
                    yield from ((table, unpack(value)) for value in row if isinstance(value, bytes))


def tables_with(data: Path, text: str) -> list[str]:
    """Return the tables of the stored values that contain the first words of a text."""
    words = text.partition(",")[0].encode()
    return [table for table, value in stored(data) if words in value]


RESULT = "\n".join(f"{number:06d} of a long file that a tool read" for number in range(5_000))
"""About 200 KB."""
PLACES = 2
"""The result itself, and its text in requests to the model."""


async def shown(client: Client, conversation_id: str) -> list[Any]:
    """Return all that clients see of a conversation and of its runs."""
    called = client.conversations
    turns = await called.ListTurns(pb.ListTurnsRequest(conversation_id=conversation_id, page_size=200))
    listed = await client.coordinator.ListRuns(
        runs.ListRunsRequest(conversation_id=conversation_id, page_size=200)
    )
    found: list[Any] = [turns, await client.messages(conversation_id), await client.events(conversation_id)]
    for run in listed.runs:
        found.append(await client.coordinator.GetRun(runs.GetRunRequest(run_id=run.id)))
    return found


async def test_a_sentence_stands_on_disk_at_most_three_times(tmp_path: Path) -> None:
    data = tmp_path / "data"
    conversations: dict[int, str] = {}
    seen: dict[int, list[Any]] = {}
    async with serving(data) as server, server.client() as client:
        await client.apply("talk", LIBRARY)
        await client.agent("talker", "talk/plain")
        for turns, sentence in SAID.items():
            conversations[turns] = await client.open("talker")
            for text in (
                sentence,
                *["and then? say 12 words about the weather in the mountains"] * (turns - 1),
            ):
                await client.turn(conversations[turns], text)
    for sentence in SAID.values():
        assert len(tables_with(data, sentence)) <= MOST, tables_with(data, sentence)

    # What the values refer to is shown, and a server that has just started refers to it too.
    async with serving(data) as server, server.client() as client:
        for turns, sentence in SAID.items():
            await client.turn(conversations[turns], "say 3 words")
            seen[turns] = await shown(client, conversations[turns])
            assert sentence in {message.content for message in seen[turns][1]}
            assert sum(str(each).count(sentence[:20]) for each in seen[turns]) > 2 * turns
    for sentence in SAID.values():
        assert len(tables_with(data, sentence)) <= MOST, tables_with(data, sentence)
    await assert_replays(data)
    code, said = await wonder("check", str(data))
    assert code == 0, said


@pytest.mark.parametrize("bound", [16 * 1024, 400_000])
async def test_a_large_result_of_a_tool_is_stored_once(bound: int, data: Path, provider: Provider) -> None:
    """The journal, the move and two events refer to it; `PLACES` if the model gets the whole result."""
    more = {"WONDER_MAX_TOOL_RESULT_BYTES": str(bound)}
    async with serving(data, environment=environment(provider, **more)) as server, server.client() as client:
        scripted = Scripted(client, provider, "openai")
        reads = Script(calls=(call("read_document", path="long.txt"),))
        agent = await scripted.agent(reads, Script(text="Long."), tools=TOOLS)
        await write(client, "long.txt", RESULT)
        conv = await client.open(agent)
        await client.turn(conv, "Read it.")
        await client.turn(conv, "Thanks.")
        before = await shown(client, conv), await client.moves("", conv)
    middle = RESULT.splitlines()[2_500]
    found = tables_with(data, middle)
    assert found == ["parts"] * (1 if bound < len(RESULT) else PLACES), found
    async with serving(data, environment=environment(provider, **more)) as server, server.client() as client:
        assert (await shown(client, conv), await client.moves("", conv)) == before
    assert str(before[0]).count(middle) >= 2 and str(before[1]).count(middle) == 1
    code, said = await wonder("check", str(data), "--quiet")
    assert code == 0, said
