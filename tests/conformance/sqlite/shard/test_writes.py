"""Writes of a shard: many rows in few statements, nothing lost, nothing stored twice."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import (
    CONVERSATION_ID,
    commit,
    conversation_id,
    emitted,
    message,
)
from tests.core.conversation.conversation_kit import agent, workflow
from tests.sqlite_journals import SqliteJournal
from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.adapters.sqlite.shard.statements import Statements
from wonder_server.codec.interning import Interner
from wonder_server.core.actor.changes import Delete, Erase
from wonder_server.core.actor.commands import Scope
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.values import Caller
from wonder_server.core.coordinator.model.inputs import Start
from wonder_server.core.frozen import replace
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.journal import Commit, Entry
from wonder_server.record.encoding import MAX_MEMBERS, Encoder, Known

AGENT = agent()
PINNED = workflow("assembly")
OTHER_ID = conversation_id(1)
KINDS = {"conv": "conversation", "run": "run"}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path / "00.db", MIGRATIONS)
    yield connection
    connection.close()


@pytest_asyncio.fixture
async def shard(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    shard = await SqliteJournal.open(tmp_path / "00.db")
    yield shard
    await shard.close()


def sent(sequence: int) -> Entry:
    send = inputs.Send(
        seed="seed", agent=AGENT, caller=Caller(user_id="ann"), content="hi", reply_to_message_id=""
    )
    return Entry(sequence, sequence, send, ())


def started(run: str) -> Entry:
    return Entry(1, 1, Start(run_id=run, workflow=PINNED, input={}, scope=Scope()), ())


def execute(connection: sqlite3.Connection, encoder: Encoder, known: Known) -> Known:
    """Write the commits of an encoder. Return the facts that were not known."""
    statements = Statements(connection, {})
    batch, found = encoder.batch(statements, known)
    statements.write(batch)
    return found


def written(connection: sqlite3.Connection) -> set[str]:
    return {digest for (digest,) in connection.execute("SELECT hash FROM parts")}


def test_a_pinned_definition_that_is_stored_is_not_written_again(connection: sqlite3.Connection) -> None:
    folder = Interner()
    first = Encoder(folder, KINDS)
    first.add(commit(CONVERSATION_ID, entries=(sent(1),)))
    known = execute(connection, first, Known())
    pins = known.pins
    assert pins
    connection.execute("DELETE FROM parts")
    again = Encoder(folder, KINDS)
    again.add(commit(CONVERSATION_ID, entries=(sent(2),)))
    assert execute(connection, again, known) == Known()
    assert not written(connection) & {digest for _, digest in pins}


def test_a_pinned_definition_is_stored_for_each_root(connection: sqlite3.Connection) -> None:
    writes = Encoder(Interner(), KINDS)
    writes.add(commit(CONVERSATION_ID, entries=(sent(1),)))
    writes.add(commit(OTHER_ID, entries=(sent(1),)))
    assert {root for root, _ in execute(connection, writes, Known()).pins} == {CONVERSATION_ID, OTHER_ID}


async def test_runs_share_the_parts_of_their_definitions(shard: SqliteJournal) -> None:
    one, other, below = "run_1", "run_2", "run_3"
    await shard.commit([commit(each, entries=(started(each),)) for each in (one, other)])
    below_one = commit(below, entries=(started(below),), root=CONVERSATION_ID)
    await shard.commit([commit(CONVERSATION_ID), below_one])
    roots = "SELECT DISTINCT root FROM parts"
    owners = await shard.database.read(lambda connection: connection.execute(roots).fetchall())
    assert sorted(owners) == [("",), (CONVERSATION_ID,)], (
        "a conversation keeps its own parts, so that its archive is complete"
    )
    for run in (one, other, below):
        (entry,) = await shard.entries(run, 0, 10)
        assert entry.input.workflow == PINNED


async def test_the_write_after_a_failed_one_stores_its_parts(shard: SqliteJournal) -> None:
    twice = commit(CONVERSATION_ID, entries=(sent(1),))
    asked = IdempotencyKey("", "r", "f", CONVERSATION_ID)
    twice.requests = [(asked, {}), (asked, {})]
    with pytest.raises(sqlite3.IntegrityError):
        await shard.commit([twice])
    await shard.commit([commit(CONVERSATION_ID, entries=(sent(1),))])
    (entry,) = await shard.entries(CONVERSATION_ID, 0, 10)
    assert entry.input.agent == AGENT


async def test_a_pinned_definition_that_was_removed_is_written_again(shard: SqliteJournal) -> None:
    await shard.commit([commit(CONVERSATION_ID, entries=(sent(1),))])
    await shard.commit([commit(CONVERSATION_ID, Erase(), entries=(sent(2),))])
    await shard.commit([commit(CONVERSATION_ID, entries=(sent(3),))])
    first, second = await shard.entries(CONVERSATION_ID, 1, 10)
    assert first.input.agent == second.input.agent == AGENT


HISTORY = [{"author": "ann", "content": f"{number} " + "word " * 60} for number in range(12)]
"""Members that are stored as parts, in a list that is long enough for its members to be kept."""


def assembled(sequence: int, turns: int) -> Commit:
    """Return the start of a hook with the first turns of the history: the same objects each time."""
    run = f"run_{sequence}"
    start = Start(run_id=run, workflow=PINNED, input={"history": HISTORY[:turns]}, scope=Scope())
    return commit(run, entries=(Entry(1, 1, start, ()),), root=CONVERSATION_ID)


async def histories(shard: SqliteJournal, *sequences: int) -> list[Sequence[JsonDict]]:
    return [(await shard.entries(f"run_{each}", 0, 1))[0].input.input["history"] for each in sequences]


async def test_a_list_with_members_of_earlier_writes_is_stored_whole(shard: SqliteJournal) -> None:
    for sequence, turns in enumerate((10, 11, 12)):
        await shard.commit([commit(CONVERSATION_ID), assembled(sequence, turns)])
    assert await histories(shard, 0, 1, 2) == [HISTORY[:10], HISTORY[:11], HISTORY]


async def test_the_write_after_a_failed_one_stores_the_members_of_its_lists(shard: SqliteJournal) -> None:
    twice = commit(CONVERSATION_ID)
    asked = IdempotencyKey("", "r", "f", CONVERSATION_ID)
    twice.requests = [(asked, {}), (asked, {})]
    with pytest.raises(sqlite3.IntegrityError):
        await shard.commit([twice, assembled(0, 12)])
    await shard.commit([commit(CONVERSATION_ID), assembled(1, 12)])
    assert await histories(shard, 1) == [HISTORY]


async def test_members_of_lists_that_were_removed_are_written_again(shard: SqliteJournal) -> None:
    await shard.commit([commit(CONVERSATION_ID), assembled(0, 12)])
    await shard.commit([commit(CONVERSATION_ID, Erase(children=("run_0",)))])
    await shard.commit([commit(CONVERSATION_ID), assembled(1, 12)])
    assert await histories(shard, 1) == [HISTORY]


async def test_members_of_lists_belong_to_their_conversation(shard: SqliteJournal) -> None:
    other = assembled(1, 12)
    other.root = OTHER_ID
    await shard.commit([commit(CONVERSATION_ID), assembled(0, 12)])
    await shard.commit([commit(OTHER_ID), other])
    assert await histories(shard, 0, 1) == [HISTORY, HISTORY]


def test_the_members_that_a_store_keeps_are_limited() -> None:
    known = Known()
    size = MAX_MEMBERS // 2
    for name in ("conv_1", "conv_2", "conv_1", "conv_3"):
        known.add(Known(members={name: dict.fromkeys(range(size), (None, b""))}))
    assert (list(known.members), known.member_count) == (["conv_1", "conv_3"], 2 * size)


async def test_the_last_of_several_commits_of_one_write_decides_about_a_row(shard: SqliteJournal) -> None:
    await shard.commit([
        commit(CONVERSATION_ID, message(1), message(2), entries=(sent(1),)),
        commit(CONVERSATION_ID, Delete("messages", message(1).id), entries=(sent(2),)),
    ])  # fmt: skip
    found = await shard.database.read(lambda c: c.execute("SELECT id FROM messages").fetchall())
    assert found == [(message(2).id,)]


@pytest.mark.parametrize("count", [1, 5, 7, 63, 64, 65, 150])
async def test_any_number_of_rows_is_written_in_order(shard: SqliteJournal, count: int) -> None:
    events = tuple(emitted(sequence) for sequence in range(1, count + 1))
    await shard.commit([commit(CONVERSATION_ID, events=events)])
    found = await shard.events(CONVERSATION_ID, 0, 1000)
    assert [event.sequence for event in found] == list(range(1, count + 1))


@pytest.mark.parametrize("together", [True, False], ids=["one write", "two writes"])
def test_a_row_added_and_deleted_in_one_write_leaves_nothing(
    connection: sqlite3.Connection, together: bool
) -> None:
    folder, gone, kept = Interner(), replace(message(1), fresh=True), message(2)
    writes = Encoder(folder, KINDS)
    writes.add(commit(CONVERSATION_ID, gone, kept))
    if not together:
        execute(connection, writes, Known())
        writes = Encoder(folder, KINDS)
    writes.add(commit(CONVERSATION_ID, Delete("messages", gone.id)))
    execute(connection, writes, Known())
    assert connection.execute("SELECT id FROM messages").fetchall() == [(kept.id,)]


def test_a_stored_row_changed_and_deleted_in_one_write_is_deleted(connection: sqlite3.Connection) -> None:
    folder = Interner()
    first = Encoder(folder, KINDS)
    first.add(commit(CONVERSATION_ID, message(1)))
    execute(connection, first, Known())
    again = Encoder(folder, KINDS)
    again.add(commit(CONVERSATION_ID, message(1), Delete("messages", message(1).id)))
    execute(connection, again, Known())
    assert connection.execute("SELECT id FROM messages").fetchall() == []
