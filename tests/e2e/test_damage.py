"""Flipped bits in the files of a real data folder: an answer is as before, or an error that names what is
damaged.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.conformance.ports.journal_subjects import ROW_TYPES, unfinished
from tests.depth import by_depth
from tests.e2e.process import Server, serving
from tests.e2e.run_view import RunView, start
from tests.sqlite_journals import SqliteJournals
from wonder.v1 import conversation_service_pb2, memory_pb2
from wonder.v1 import coordinator_service_pb2 as coordinator
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as pb
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.check import register
from wonder_server.codec.packing import unpack
from wonder_server.compose.checking import check_folder
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.memory.records import EVERYTHING
from wonder_server.ports.catalog import DefinitionQuery
from wonder_server.ports.journal import Event, Loaded
from wonder_server.ports.records import EventQuery, Query

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRIES = by_depth(25, 500)
"""Damaged folders."""
ALL = 10_000

Answers = dict[str, Any]
Asked = dict[str, Callable[[], Awaitable[Any]]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a server that was talked to and stopped."""
    data = tmp_path_factory.mktemp("damage") / "data"
    environment = {"WONDER_SHARD_COUNT": "2", "WONDER_DEFAULT_MODEL": "offline"}
    async with serving(data, environment=environment) as server, server.client() as client:
        for number in range(3):
            conversation_id = await client.open(request_id=f"open-{number}")
            for said in ("I am Ada and I like tea.", "What do I like? " + "Take your time. " * 150):
                await client.turn(conversation_id, said)
            kept = memory_pb2.Memory(type="fact", content=f"Ada likes tea number {number}, with milk.")
            await client.memory.WriteMemory(pb.WriteMemoryRequest(agent_id="assistant", memory=kept))
    return data


async def ask(data: Path) -> Answers:
    """Everything that can be asked of the stores in this folder, each answer by itself; what fails is a
    `WonderError` in its place."""
    found: Answers = {}
    for store in (_shards, _catalog, _memory):
        try:
            await store(data, found)
        except WonderError as problem:
            found[store.__name__] = problem
    return found


async def _each(found: Answers, asked: Asked) -> None:
    for name, question in asked.items():
        try:
            found[name] = await question()
        except WonderError as problem:
            found[name] = problem


async def _shards(data: Path, found: Answers) -> None:
    shards = await SqliteJournals.open(data / "shards", 2)
    try:
        asked: Asked = {
            table: lambda table=table: shards.find(Query(table=table, limit=ALL))  # type: ignore[misc]
            for table in ROW_TYPES
            if table != "charges"
        }
        asked["events"] = lambda: _events(shards.events(CONVERSATION.prefix, EventQuery(limit=ALL)))
        asked["unfinished"] = lambda: unfinished(*shards.files)
        for number in range(3):
            asked[f"open-{number}"] = lambda number=number: _answered(shards, f"open-{number}")  # type: ignore[misc]
        for actor in sorted(ACTORS):
            journal = shards.of(actor)
            asked |= {
                f"load {actor}": lambda j=journal, a=actor: j.load(a),  # type: ignore[misc]
                f"events {actor}": lambda j=journal, a=actor: _events(j.events(a, 0, ALL)),  # type: ignore[misc]
                f"entries {actor}": lambda j=journal, a=actor: j.entries(a, 0, ALL),  # type: ignore[misc]
            }
        await _each(found, asked)
    finally:
        await shards.close()


ACTORS: set[str] = set()


async def _answered(shards: SqliteJournals, request_id: str) -> list[Any]:
    return [
        await shards.of(f"conv_{index}").completed_request("conversations", request_id)
        for index in range(shards.file_count)
    ]


async def _events(reading: Awaitable[list[Event]]) -> list[tuple[Any, ...]]:
    return [(event.actor_id, event.sequence, event.at_ms, event.emit) for event in await reading]


async def _catalog(data: Path, found: Answers) -> None:
    catalog = await SqliteCatalog.open(data / "catalog.db")
    try:
        await _each(
            found,
            {
                "libraries": lambda: catalog.libraries("", ALL),
                "definitions": lambda: catalog.definitions(DefinitionQuery(limit=ALL)),
                "agents": lambda: catalog.agents("", "", ALL),
            },
        )
    finally:
        await catalog.close()


async def _memory(data: Path, found: Answers) -> None:
    memories = await SqliteMemories.open(data / "memory.db")
    try:
        asked: Asked = {
            f"memories {agent}": lambda agent=agent: memories.page(agent, EVERYTHING, "", ALL)  # type: ignore[misc]
            for agent in AGENTS
        }
        await _each(found, asked)
    finally:
        await memories.close()


AGENTS: set[str] = set()


def flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        at = chance.randrange(len(content) * 8)
        content[at // 8] ^= 1 << at % 8
    file.write_bytes(content)


def shown(answer: Any) -> str:
    return repr(answer)[:300]


async def test_a_flipped_bit_is_never_another_text(folder: Path, tmp_path: Path) -> None:
    ACTORS.clear()
    AGENTS.clear()
    first = await ask(folder)
    ACTORS.update(each.id for table in ("conversations", "runs") for each in first[table])
    AGENTS.update(agent.id for agent in first["agents"])
    # Runs that were written in brief are whole once they were asked for.
    await ask(folder)
    whole = await ask(folder)
    assert not [name for name, answer in whole.items() if isinstance(answer, WonderError)]
    assert len(whole["messages"]) == 12
    assert any(whole[f"memories {agent}"] for agent in AGENTS)

    seen: Counter[str] = Counter()
    for seed in range(TRIES):
        chance = random.Random(seed)
        data = tmp_path / str(seed)
        shutil.copytree(folder, data)
        files = sorted(data.rglob("*.db"))
        file = chance.choice([each for each in files if each.stat().st_size])
        flip(file, chance)
        with capture_logs():
            damaged = await ask(data)
        for name, answer in damaged.items():
            if isinstance(answer, WonderError):
                seen["errors"] += 1
                assert answer.fault.reason is Reason.STORAGE_UNAVAILABLE, (seed, name, answer)
                assert not answer.fault.transient, (seed, name, answer)
            else:
                seen["equal"] += answer == whole[name]
                missing = [each for each in _items(whole[name]) if each not in _items(answer)]
                others = [each for each in _items(answer) if each not in _items(whole[name])]
                assert not others, (seed, file.name, name, shown(others), shown(missing))
                seen["missing"] += bool(missing)
        if any(isinstance(answer, WonderError) or answer != whole[name] for name, answer in damaged.items()):
            # A row that no query finds any more is missing without a word; the check finds it.
            assert check_folder(data, _quiet).problems, seed
        shutil.rmtree(data)
    assert seen["errors"]


async def test_the_check_finds_nothing_in_a_folder_that_is_whole(folder: Path) -> None:
    report = await asyncio.to_thread(check_folder, folder, _quiet)
    assert report.problems == []
    assert report.records > 200
    assert report.unchecked == 0


async def test_one_damaged_record_is_named_and_takes_nothing_else_with_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    path, row = _some_message(data)
    with closing(sqlite3.connect(path)) as connection:
        changed = unpack(row["stored"]).replace(b"tea", b"gin").decode()
        connection.execute("UPDATE messages SET data = ? WHERE id = ?", (changed, row["id"]))
        connection.commit()
    async with serving(data) as server, server.client() as client:
        with pytest.raises(grpc.RpcError) as refused:
            await client.messages(row["actor"])
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert row["id"] in str(refused.value.details())
        assert "wonder check" in str(refused.value.details())
        others = {each.id for each in await client.all_conversations()} - {row["actor"]}
        assert len(others) == 2
        for other in others:
            assert len(await client.messages(other)) == 4
            await client.turn(other, "Hello again.")
    assert check(data) == 1
    printed = capsys.readouterr()
    assert [line for line in printed.out.splitlines() if row["id"] in line]
    assert "1 problem" in printed.err


WAITING = """
name: waiting
workflow:
  nodes: [{id: wait, wait: {signal: go}}]
"""


async def test_a_server_starts_with_a_damaged_run_under_way_and_sees_to_the_others(
    fresh: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(fresh, data)
    async with serving(data) as server, server.client() as client:
        await client.apply("e2e/damage", WAITING)
        lost, other = [await start(client, "e2e/damage/waiting") for _ in range(2)]
    with closing(sqlite3.connect(data / "shards" / "00.db")) as connection:
        changed = connection.execute("UPDATE operations SET data = data || ' ' WHERE actor = ?", (lost,))
        assert changed.rowcount == 1
        connection.commit()
    async with serving(data) as server, server.client() as client:
        with pytest.raises(grpc.RpcError) as refused:
            await client.coordinator.CancelRun(coordinator.CancelRunRequest(run_id=lost))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "table operations" in str(refused.value.details())
        await client.coordinator.SignalRun(coordinator.SignalRunRequest(run_id=other, signal={"name": "go"}))
        view = RunView(other)
        await view.watch(client)
        assert view.names[-1] == "workflow_completed"
        await client.turn(await client.open(), "Hello.")
    assert not [line for line in server.log if "Traceback" in str(line)]


@pytest.mark.parametrize("name", ["catalog.db", "memory.db", "shards/00.db"])
@pytest.mark.parametrize("damage", ["head", "schema", "cut"])
async def test_a_server_says_in_one_sentence_that_a_file_is_damaged(
    folder: Path, tmp_path: Path, name: str, damage: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    content = bytearray((data / name).read_bytes())
    if damage == "head":
        content[:16] = b"not a database!!"
    elif damage == "schema":
        content[100:4096] = random.Random(1).randbytes(3996)
    else:
        del content[len(content) // 2 :]
    (data / name).write_bytes(content)
    server = Server(data)
    await server.begin()
    if damage == "cut" and await server.is_ready():
        # What is left of it may be enough to begin with.
        assert await server.stop() == 0
        assert check(data) == 1
        return
    assert await server.ended() == 2
    said = [line["event"] for line in server.log if line["event"].startswith("wonder serve: ")]
    assert len(said) == 1
    assert name.rpartition("/")[2] in said[0]
    assert "Traceback" not in str(server.log)
    assert check(data) == 1


async def test_the_check_refuses_what_is_no_folder_and_what_a_server_has(
    fresh: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path) == 2
    assert "not a data folder" in capsys.readouterr().err
    data = tmp_path / "data"
    shutil.copytree(fresh, data)
    async with serving(data):
        assert check(data) == 2
    assert "in use" in capsys.readouterr().err


async def test_the_check_finds_every_mismatch_of_shards_for_which_a_server_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, shards = tmp_path / "data", tmp_path / "data" / "shards"
    async with serving(data, "--shard-count", "4"):
        pass
    assert check(data) == 0
    (shards / "01.db").rename(shards / "other")
    (shards / "02.db").rename(shards / "01.db")
    (shards / "other").rename(shards / "02.db")
    assert check(data) == 1
    assert capsys.readouterr().out.splitlines() == [
        "shards/01.db: the file is shard 02 of 4, not shard 01 of 4",
        "shards/02.db: the file is shard 01 of 4, not shard 02 of 4",
    ]
    server = Server(data)
    await server.begin()
    assert await server.ended() == 2
    assert "01.db is shard 02 of 4, not shard 01 of 4" in str(server.log)
    (shards / "COUNT").write_text("four\n")
    assert check(data) == 1
    assert "shards/COUNT: 'four' is not a number of files" in capsys.readouterr().out
    (shards / "COUNT").unlink()
    assert check(data) == 2
    assert "has 4 files and no COUNT" in (advice := capsys.readouterr().err)
    assert "write the number of shard files into it" in advice


@pytest.mark.parametrize(
    "damage",
    [
        "conversations SET data = x'ff'",
        "messages SET data = data || ' '",
        "turns SET data = data || ' '",
        "events SET data = data || ' '",
        "runs SET data = data || ' '",
        "actors SET event_head = event_head + 1, seal = 5",
    ],
)
async def test_a_damaged_conversation_can_be_deleted(fresh: Path, tmp_path: Path, damage: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(fresh, data)
    async with serving(data) as server, server.client() as client:
        lost, other = [await client.open() for _ in range(2)]
        for each in (lost, other):
            await client.turn(each, "I like tea.")
    changed = 0
    for shard in sorted((data / "shards").glob("*.db")):
        with closing(sqlite3.connect(shard)) as connection:
            of_it = (
                "id = :lost"
                if damage.startswith("actors")
                else "actor IN (SELECT id FROM actors WHERE root = :lost)"
            )
            changed += connection.execute(f"UPDATE {damage} WHERE {of_it}", {"lost": lost}).rowcount
            connection.commit()
    assert changed
    async with serving(data) as server, server.client() as client:
        deleting = conversation_service_pb2.DeleteConversationRequest(conversation_id=lost, request_id="away")
        for _ in range(2):
            await client.conversations.DeleteConversation(deleting)
        assert [each.id for each in await client.all_conversations()] == [other]
        await client.turn(other, "Hello again.")
    assert not [line for line in server.log if "Traceback" in str(line)]
    assert check(data) == 0


async def test_a_damaged_agent_can_be_deleted_with_its_damaged_memory_and_account(
    fresh: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(fresh, data)
    async with serving(data) as server, server.client() as client:
        agent = await client.agent("lost", "wonder/std/assistant")
        kept = memory_pb2.Memory(type="fact", content="Ada likes tea.")
        await client.memory.WriteMemory(pb.WriteMemoryRequest(agent_id=agent, memory=kept))
    for file, change in (
        ("catalog.db", "agents SET body = x'ff' WHERE id = ?"),
        ("memory.db", "memories SET content = x'ff' WHERE agent_id = ?"),
    ):
        with closing(sqlite3.connect(data / file)) as connection:
            assert connection.execute(f"UPDATE {change}", (agent,)).rowcount == 1
            connection.commit()
    async with serving(data) as server, server.client() as client:
        with pytest.raises(grpc.RpcError) as refused:
            await client.library.GetAgent(library.GetAgentRequest(agent_id=agent))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        deleting = library.DeleteAgentRequest(agent_id=agent, request_id="away")
        for _ in range(2):
            await client.library.DeleteAgent(deleting)
        with pytest.raises(grpc.RpcError) as refused:
            await client.library.GetAgent(library.GetAgentRequest(agent_id=agent))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert (await client.library.ListAgents(library.ListAgentsRequest())).agents
    assert check(data) == 0


def check(data: Path) -> int:
    """Run ``wonder check``; return its exit code."""
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    arguments = parser.parse_args(["check", str(data), "--quiet"])
    return int(arguments.run(arguments))


def _some_message(data: Path) -> tuple[Path, sqlite3.Row]:
    for path in sorted((data / "shards").glob("*.db")):
        with closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            for row in connection.execute("SELECT *, CAST(data AS BLOB) AS stored FROM messages"):
                if b"tea" in unpack(row["stored"]):
                    return path, row
    raise AssertionError("no message contains tea")


def _quiet(_step: str) -> None:
    """Progress is for people."""


def _items(answer: Any) -> list[Any]:
    if isinstance(answer, Loaded):
        rows = [(table, each) for table, found in answer.rows.items() for each in found]
        return [*rows, (answer.entry_head, answer.event_head, answer.at_ms)]
    return answer if isinstance(answer, list) else [answer]
