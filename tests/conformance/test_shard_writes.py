"""How commits become few statements: nothing is lost, nothing is written twice for nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.journal_subjects import ROOM, commit, emitted, message
from tests.core.conversation_kit import agent
from wonder_server.adapters.sqlite.codec import Folder
from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.shard import SqliteShard
from wonder_server.adapters.sqlite.shard_schema import MIGRATIONS
from wonder_server.adapters.sqlite.shard_writes import Writes
from wonder_server.core.conversation import inputs
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.conversation.values import Caller
from wonder_server.core.frozen import replace
from wonder_server.core.idempotency import Request
from wonder_server.core.records import Delete, Erase
from wonder_server.ports.journal import Entry

AGENT = agent()


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path / "00.db", MIGRATIONS)
    yield connection
    connection.close()


@pytest_asyncio.fixture
async def shard(tmp_path: Path) -> AsyncIterator[SqliteShard]:
    shard = await SqliteShard.open(tmp_path / "00.db")
    yield shard
    await shard.close()


def sent(sequence: int) -> Entry:
    send = inputs.Send(
        seed="seed", agent=AGENT, caller=Caller(user_id="ann"), content="hi", reply_to_message_id=""
    )
    return Entry(sequence, sequence, send, ())


def written(connection: sqlite3.Connection) -> set[str]:
    return {digest for (digest,) in connection.execute("SELECT hash FROM parts")}


def test_a_pinned_definition_that_is_stored_is_not_written_again(connection: sqlite3.Connection) -> None:
    folder = Folder()
    first = Writes(folder)
    first.add(commit(ROOM, entries=(sent(1),)))
    pins = first.carry_out(connection, set())
    assert pins
    connection.execute("DELETE FROM parts")
    again = Writes(folder)
    again.add(commit(ROOM, entries=(sent(2),)))
    assert again.carry_out(connection, set(pins)) == []
    assert not written(connection) & {digest for _, digest in pins}


def test_a_pinned_definition_is_stored_for_each_root(connection: sqlite3.Connection) -> None:
    writes = Writes(Folder())
    writes.add(commit(ROOM, entries=(sent(1),)))
    writes.add(commit("conv_other", entries=(sent(1),)))
    assert {root for root, _ in writes.carry_out(connection, set())} == {ROOM, "conv_other"}


async def test_runs_share_what_their_definitions_are_made_of(shard: SqliteShard) -> None:
    one, other, below = "run_1", "run_2", "run_3"
    await shard.commit([commit(each, entries=(sent(1),)) for each in (one, other)])
    await shard.commit([commit(ROOM), commit(below, entries=(sent(1),), root=ROOM)])
    roots = "SELECT DISTINCT root FROM parts"
    owners = await shard.database.read(lambda connection: connection.execute(roots).fetchall())
    assert sorted(owners) == [("",), (ROOM,)], "a room keeps its own, so that it can be put away whole"
    for run in (one, other, below):
        (entry,) = await shard.entries(run, CONVERSATION, 0, 10)
        assert entry.input.agent == AGENT


async def test_what_a_failed_write_would_have_stored_is_stored_by_the_next(shard: SqliteShard) -> None:
    twice = commit(ROOM, entries=(sent(1),))
    twice.requests = [(Request(ROOM, "r", "f"), {}), (Request(ROOM, "r", "f"), {})]
    with pytest.raises(sqlite3.IntegrityError):
        await shard.commit([twice])
    await shard.commit([commit(ROOM, entries=(sent(1),))])
    (entry,) = await shard.entries(ROOM, CONVERSATION, 0, 10)
    assert entry.input.agent == AGENT


async def test_a_pinned_definition_that_was_removed_is_written_again(shard: SqliteShard) -> None:
    await shard.commit([commit(ROOM, entries=(sent(1),))])
    await shard.commit([commit(ROOM, Erase(), entries=(sent(2),))])
    await shard.commit([commit(ROOM, entries=(sent(3),))])
    first, second = await shard.entries(ROOM, CONVERSATION, 0, 10)
    assert first.input.agent == second.input.agent == AGENT


async def test_the_last_of_several_commits_of_one_write_decides_about_a_row(shard: SqliteShard) -> None:
    await shard.commit([
        commit(ROOM, message(1), message(2), entries=(sent(1),)),
        commit(ROOM, Delete("messages", message(1).id), entries=(sent(2),)),
    ])  # fmt: skip
    found = await shard.database.read(lambda c: c.execute("SELECT id FROM messages").fetchall())
    assert found == [(message(2).id,)]


@pytest.mark.parametrize("count", [1, 5, 7, 63, 64, 65, 150])
async def test_any_number_of_rows_is_written_in_order(shard: SqliteShard, count: int) -> None:
    events = tuple(emitted(sequence) for sequence in range(1, count + 1))
    await shard.commit([commit(ROOM, events=events)])
    found = await shard.events(ROOM, CONVERSATION, 0, 1000)
    assert [event.sequence for event in found] == list(range(1, count + 1))


@pytest.mark.parametrize("together", [True, False], ids=["one write", "two writes"])
def test_what_comes_and_goes_leaves_nothing(connection: sqlite3.Connection, together: bool) -> None:
    folder, gone, kept = Folder(), replace(message(1), fresh=True), message(2)
    writes = Writes(folder)
    writes.add(commit(ROOM, gone, kept))
    if not together:
        writes.carry_out(connection, set())
        writes = Writes(folder)
    writes.add(commit(ROOM, Delete("messages", gone.id)))
    writes.carry_out(connection, set())
    assert connection.execute("SELECT id FROM messages").fetchall() == [(kept.id,)]


def test_a_row_that_was_there_goes_even_if_it_is_written_once_more(connection: sqlite3.Connection) -> None:
    folder = Folder()
    first = Writes(folder)
    first.add(commit(ROOM, message(1)))
    first.carry_out(connection, set())
    again = Writes(folder)
    again.add(commit(ROOM, message(1), Delete("messages", message(1).id)))
    again.carry_out(connection, set())
    assert connection.execute("SELECT id FROM messages").fetchall() == []
