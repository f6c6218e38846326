"""Writes of a shard: many rows in few statements, nothing lost, nothing stored twice."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import CONVERSATION_ID, commit, emitted, message
from tests.core.conversation.conversation_kit import agent
from wonder_server.adapters.sqlite.codec.interning import Interner
from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.adapters.sqlite.shard.writes import Writes
from wonder_server.core.actor.changes import Delete, Erase
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.values import Caller
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.frozen import replace
from wonder_server.core.idempotency import Request
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
    folder = Interner()
    first = Writes(folder)
    first.add(commit(CONVERSATION_ID, entries=(sent(1),)))
    pins = first.execute(connection, set())
    assert pins
    connection.execute("DELETE FROM parts")
    again = Writes(folder)
    again.add(commit(CONVERSATION_ID, entries=(sent(2),)))
    assert again.execute(connection, set(pins)) == []
    assert not written(connection) & {digest for _, digest in pins}


def test_a_pinned_definition_is_stored_for_each_root(connection: sqlite3.Connection) -> None:
    writes = Writes(Interner())
    writes.add(commit(CONVERSATION_ID, entries=(sent(1),)))
    writes.add(commit("conv_other", entries=(sent(1),)))
    assert {root for root, _ in writes.execute(connection, set())} == {CONVERSATION_ID, "conv_other"}


async def test_runs_share_the_parts_of_their_definitions(shard: SqliteShard) -> None:
    one, other, below = "run_1", "run_2", "run_3"
    await shard.commit([commit(each, entries=(sent(1),)) for each in (one, other)])
    await shard.commit([commit(CONVERSATION_ID), commit(below, entries=(sent(1),), root=CONVERSATION_ID)])
    roots = "SELECT DISTINCT root FROM parts"
    owners = await shard.database.read(lambda connection: connection.execute(roots).fetchall())
    assert sorted(owners) == [("",), (CONVERSATION_ID,)], (
        "a conversation keeps its own parts, so that its archive is complete"
    )
    for run in (one, other, below):
        (entry,) = await shard.entries(run, CONVERSATION, 0, 10)
        assert entry.input.agent == AGENT


async def test_the_write_after_a_failed_one_stores_its_parts(shard: SqliteShard) -> None:
    twice = commit(CONVERSATION_ID, entries=(sent(1),))
    twice.requests = [(Request(CONVERSATION_ID, "r", "f"), {}), (Request(CONVERSATION_ID, "r", "f"), {})]
    with pytest.raises(sqlite3.IntegrityError):
        await shard.commit([twice])
    await shard.commit([commit(CONVERSATION_ID, entries=(sent(1),))])
    (entry,) = await shard.entries(CONVERSATION_ID, CONVERSATION, 0, 10)
    assert entry.input.agent == AGENT


async def test_a_pinned_definition_that_was_removed_is_written_again(shard: SqliteShard) -> None:
    await shard.commit([commit(CONVERSATION_ID, entries=(sent(1),))])
    await shard.commit([commit(CONVERSATION_ID, Erase(), entries=(sent(2),))])
    await shard.commit([commit(CONVERSATION_ID, entries=(sent(3),))])
    first, second = await shard.entries(CONVERSATION_ID, CONVERSATION, 0, 10)
    assert first.input.agent == second.input.agent == AGENT


async def test_the_last_of_several_commits_of_one_write_decides_about_a_row(shard: SqliteShard) -> None:
    await shard.commit([
        commit(CONVERSATION_ID, message(1), message(2), entries=(sent(1),)),
        commit(CONVERSATION_ID, Delete("messages", message(1).id), entries=(sent(2),)),
    ])  # fmt: skip
    found = await shard.database.read(lambda c: c.execute("SELECT id FROM messages").fetchall())
    assert found == [(message(2).id,)]


@pytest.mark.parametrize("count", [1, 5, 7, 63, 64, 65, 150])
async def test_any_number_of_rows_is_written_in_order(shard: SqliteShard, count: int) -> None:
    events = tuple(emitted(sequence) for sequence in range(1, count + 1))
    await shard.commit([commit(CONVERSATION_ID, events=events)])
    found = await shard.events(CONVERSATION_ID, CONVERSATION, 0, 1000)
    assert [event.sequence for event in found] == list(range(1, count + 1))


@pytest.mark.parametrize("together", [True, False], ids=["one write", "two writes"])
def test_a_row_added_and_deleted_in_one_write_leaves_nothing(
    connection: sqlite3.Connection, together: bool
) -> None:
    folder, gone, kept = Interner(), replace(message(1), fresh=True), message(2)
    writes = Writes(folder)
    writes.add(commit(CONVERSATION_ID, gone, kept))
    if not together:
        writes.execute(connection, set())
        writes = Writes(folder)
    writes.add(commit(CONVERSATION_ID, Delete("messages", gone.id)))
    writes.execute(connection, set())
    assert connection.execute("SELECT id FROM messages").fetchall() == [(kept.id,)]


def test_a_stored_row_changed_and_deleted_in_one_write_is_deleted(connection: sqlite3.Connection) -> None:
    folder = Interner()
    first = Writes(folder)
    first.add(commit(CONVERSATION_ID, message(1)))
    first.execute(connection, set())
    again = Writes(folder)
    again.add(commit(CONVERSATION_ID, message(1), Delete("messages", message(1).id)))
    again.execute(connection, set())
    assert connection.execute("SELECT id FROM messages").fetchall() == []
