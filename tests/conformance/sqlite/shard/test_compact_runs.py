"""Compact runs: every read finds the same record as for a run that was written whole.

The runs are recorded ones that have ended (`tests.golden`).
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import CONVERSATION_ID, ROW_TYPES, Shards, commit, opened
from tests.golden.journals import load
from tests.paths import ROOT
from tests.sqlite_journals import SqliteJournals
from wonder_server.adapters.sqlite.shard.archives import SqliteArchives
from wonder_server.codec.packing import unpack
from wonder_server.core.actor.changes import Erase, Put
from wonder_server.core.actor.derivation import derived
from wonder_server.core.coordinator.model.inputs import Start, StartFork
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import WonderError
from wonder_server.ports.journal import Commit, Entry
from wonder_server.ports.records import EventQuery, Query
from wonder_server.record import compact_runs
from wonder_server.record.compact_runs import MAX_EXPANDED_AT_ONCE

GOLDEN = sorted((ROOT / "tests/golden").glob("run-*.jsonl"))
TABLES = tuple(RUN.row_types)


def recorded(file: Path) -> tuple[list[Entry], RunState]:
    """Return a run's journal, and the state it leads to."""
    _, entries = load(file.read_text(encoding="utf-8"))
    state = RunState()
    for entry in entries:
        for decision in entry.decisions:
            RUN.apply(state, decision)
    return list(entries), state


ENDED = [
    file for file in GOLDEN if RUN.compact_row is not None and RUN.compact_row(recorded(file)[1]) is not None
]


def id_of(entries: list[Entry]) -> str:
    start = entries[0].input
    assert isinstance(start, Start | StartFork)
    return start.run_id


def expanded(entries: list[Entry], root: str = "") -> Commit:
    made = Commit(id_of(entries), entries, entry_head=len(entries), root=root)
    made.add_all(derived(RUN, entries))
    return made


def compact(entries: list[Entry], state: RunState, root: str = "") -> Commit:
    assert RUN.compact_row is not None
    summary = RUN.compact_row(state)
    assert summary is not None
    made = Commit(id_of(entries), entries, [summary], entry_head=len(entries), root=root, compact=True)
    made.event_head = sum(RUN.event_count(entry.decisions) for entry in entries)
    return made


def compact_without_head(entries: list[Entry], state: RunState) -> Commit:
    """Return the commit that earlier versions wrote: its row counts neither events nor executions."""
    made = compact(entries, state)
    (row,) = made.changes
    assert isinstance(row, Put)
    made.event_head, made.changes = 0, [msgspec.structs.replace(row, ordinal=0)]
    return made


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def shards(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shards]:
    async with opened(request.param, tmp_path / "briefs") as shards:
        yield shards


@pytest_asyncio.fixture
async def others(tmp_path: Path) -> AsyncIterator[Shards]:
    """Create shards in which runs are written whole."""
    async with opened("sqlite", tmp_path / "whole") as shards:
        yield shards


async def rows(shards: Shards, run: str, table: str) -> list[Any]:
    return await shards.find(Query(table=table, actor=run, by_ordinal=True, newest_first=False, limit=1000))


LOOKS: dict[str, Any] = {
    "load": lambda shards, run: shards.of(run).load(run),
    "events": lambda shards, run: shards.of(run).events(run, 0, 1000),
    "later events": lambda shards, run: shards.of(run).events(run, 2, 3),
    "entries": lambda shards, run: shards.of(run).entries(run, 0, 1000),
    "head": lambda shards, run: shards.head(run),
    "heads": lambda shards, run: shards.heads([run, CONVERSATION_ID, "run_01HF7YAT00000000000000099"]),
    "listed": lambda shards, run: shards.find(Query(table="runs")),
    "event query": lambda shards, run: shards.events(RUN.prefix, EventQuery(actor=run)),
    "snapshot": lambda shards, run: shards.snapshot(run, [Query(table=table) for table in TABLES]),
    "one": lambda shards, run: shards.get("runs", run, run),
    **{f"rows of {table}": lambda shards, run, table=table: rows(shards, run, table) for table in TABLES},
}


@pytest.mark.parametrize("made", [compact, compact_without_head])
@pytest.mark.parametrize("file", ENDED, ids=lambda file: str(file.stem))
async def test_every_first_read_of_a_compact_run_finds_the_whole_record(
    file: Path, made: Callable[[list[Entry], RunState], Commit], shards: Shards, others: Shards
) -> None:
    entries, state = recorded(file)
    run = id_of(entries)
    await others.of(run).commit([expanded(entries)])
    await shards.of(run).commit([made(entries, state)])
    for name, look in LOOKS.items():
        assert await look(shards, run) == await look(others, run), name


@pytest.mark.parametrize("made", [compact, compact_without_head])
@pytest.mark.parametrize("name", LOOKS)
async def test_reads_of_any_kind_in_any_order_find_the_whole_record(
    name: str, made: Callable[[list[Entry], RunState], Commit], shards: Shards, others: Shards
) -> None:
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    await others.of(run).commit([expanded(entries)])
    await shards.of(run).commit([made(entries, state)])
    assert await LOOKS[name](shards, run) == await LOOKS[name](others, run)


async def test_concurrent_reads_find_the_whole_record(shards: Shards, others: Shards) -> None:
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    await others.of(run).commit([expanded(entries)])
    await shards.of(run).commit([compact(entries, state)])
    found = await asyncio.gather(*(look(shards, run) for look in [*LOOKS.values()] * 3))
    assert found == [await look(others, run) for look in [*LOOKS.values()] * 3]


async def test_a_compact_run_can_be_read_after_a_restart(tmp_path: Path, others: Shards) -> None:
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    await others.of(run).commit([expanded(entries)])
    async with opened("sqlite", tmp_path) as shards:
        await shards.of(run).commit([compact(entries, state)])
    async with opened("sqlite", tmp_path) as shards:
        assert await shards.of(run).load(run) == await others.of(run).load(run)
    async with opened("sqlite", tmp_path) as shards:
        assert await shards.of(run).events(run, 0, 100) == await others.of(run).events(run, 0, 100)


async def test_a_compact_run_is_expanded_only_by_a_read(tmp_path: Path) -> None:
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    async with opened("sqlite", tmp_path) as shards:
        assert isinstance(shards, SqliteJournals)
        shard = shards.of(run)
        await shard.commit([compact(entries, state)])
        await shards.find(Query(table="runs"))
        await shards.head(run)
        await shards.heads([run])
        assert await shard.database.read(_counted) == (0, 0)
        await shards.snapshot(run, [Query(table="runs", id=run)])
        await shards.of(run).events(run, 0, 1)
        assert await shard.database.read(_counted) == (0, 0), "events are derived for the reader"
        await shards.find(Query(table="executions", actor=run))
        events, executions = await shard.database.read(_counted)
        assert events and executions


async def test_events_are_read_in_pages_from_a_compact_run(tmp_path: Path, others: Shards) -> None:
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    await others.of(run).commit([expanded(entries)])
    async with opened("sqlite", tmp_path) as shards:
        await shards.of(run).commit([compact(entries, state)])
        count = len(expanded(entries).events)
        for after in (-1, *range(count + 2)):
            for limit in (1, 3, count):
                wanted = await others.of(run).events(run, after, limit)
                assert await shards.of(run).events(run, after, limit) == wanted, (after, limit)


async def test_events_of_a_compact_run_with_a_large_journal_are_read_from_rows(
    tmp_path: Path, others: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact_runs, "MAX_DERIVED_BYTES", 100)
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    await others.of(run).commit([expanded(entries)])
    async with opened("sqlite", tmp_path) as shards:
        assert isinstance(shards, SqliteJournals)
        await shards.of(run).commit([compact(entries, state)])
        assert await shards.of(run).events(run, 0, 9) == await others.of(run).events(run, 0, 9)
        assert (await shards.of(run).database.read(_counted))[0]


async def test_a_list_expands_compact_runs_that_were_stored_without_their_heads(tmp_path: Path) -> None:
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    async with opened("sqlite", tmp_path) as shards:
        assert isinstance(shards, SqliteJournals)
        shard = shards.of(run)
        await shard.commit([compact_without_head(entries, state)])
        assert (await shards.heads([run]))[run].sequence == len(expanded(entries).events)
        events, executions = await shard.database.read(_counted)
        assert events and executions


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: str(file.stem))
def test_the_number_of_events_is_known_without_recording_them(file: Path) -> None:
    entries, _ = recorded(file)
    for index, entry in enumerate(entries):
        made = Commit(id_of(entries))
        made.add_all(derived(RUN, entries[: index + 1], index))
        assert RUN.event_count(entry.decisions) == len(made.events)


def _counted(connection: Any) -> tuple[int, int]:
    counts = [
        connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("events", "executions")
    ]
    return counts[0], counts[1]


@contextmanager
def full(file: Path) -> Iterator[None]:
    """Limit the size of files to that of this one, for this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_compact_run_can_be_read_while_the_disk_is_full(tmp_path: Path, others: Shards) -> None:
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    await others.of(run).commit([expanded(entries)])
    wanted = {name: await look(others, run) for name, look in LOOKS.items()}
    async with opened("sqlite", tmp_path) as shards:
        assert isinstance(shards, SqliteJournals)
        database = shards.of(run).database
        await shards.of(run).commit([compact(entries, state)])
        with full(database.path.with_name(f"{database.path.name}-wal")):
            with pytest.raises(WonderError):
                await shards.of(CONVERSATION_ID).commit([commit(CONVERSATION_ID)])
            assert {name: await look(shards, run) for name, look in LOOKS.items()} == wanted
        assert await database.read(_counted) == (0, 0), "the expansion was rolled back"
        assert {name: await look(shards, run) for name, look in LOOKS.items()} == wanted


async def test_more_runs_than_one_write_expands_can_be_read(tmp_path: Path) -> None:
    entries, state = recorded(ENDED[0])
    assert state.run is not None
    async with opened("sqlite", tmp_path, count=1) as shards:
        ids = [f"{id_of(entries)[:-3]}{number:02}0" for number in range(2 * MAX_EXPANDED_AT_ONCE + 1)]
        for run in ids:
            made = compact_without_head(entries, state)
            made.actor_id = run
            await shards.of(run).commit([made])
        heads = await shards.heads(ids)
        assert set(heads) == set(ids)
        assert len({head.sequence for head in heads.values()}) == 1
        assert all(head.sequence for head in heads.values())


async def test_a_compact_run_is_deleted_with_its_conversation(shards: Shards) -> None:
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    conversation_id = f"{CONVERSATION_ID[:-1]}{run[-1]}"
    shard = shards.of(conversation_id)
    await shard.commit([commit(conversation_id), compact(entries, state, root=conversation_id)])
    await shard.commit([commit(conversation_id, Erase(whole=True))])
    assert await shards.head(run) is None
    assert await shards.of(run).entries(run, 0, 10) == []
    assert await shards.find(Query(table="runs")) == []


async def test_a_compact_run_is_archived_and_restored_in_compact_form(tmp_path: Path, others: Shards) -> None:
    entries, state = recorded(ENDED[0])
    run = id_of(entries)
    await others.of(run).commit([expanded(entries)])
    async with opened("sqlite", tmp_path / "from") as here, opened("sqlite", tmp_path / "to") as there:
        assert isinstance(here, SqliteJournals) and isinstance(there, SqliteJournals)
        await here.of(run).commit([compact(entries, state)])
        lines = [line async for page in SqliteArchives(here.shards).export(run, ()) for line in page]
        assert {table for table, _ in lines} <= {"runs", "entries", "actors", "parts"}
        await SqliteArchives(there.shards).restore(run, lines, 0)
        shared = [("parts", row) for row in await here.of(run).database.read(_parts)]
        await SqliteArchives(there.shards).restore(run, shared, 0)
        for name, look in LOOKS.items():
            assert await look(there, run) == await look(others, run), name


def _parts(connection: Any) -> list[dict[str, Any]]:
    found = connection.execute("SELECT root, hash, CAST(data AS BLOB) FROM parts").fetchall()
    return [{"root": root, "hash": digest, "data": unpack(data).decode()} for root, digest, data in found]


def test_only_ended_runs_have_a_compact_row() -> None:
    assert RUN.compact_row is not None
    assert RUN.compact_row(RunState()) is None
    for file in GOLDEN:
        entries, _ = recorded(file)
        state = RunState()
        for entry in entries:
            for decision in entry.decisions:
                RUN.apply(state, decision)
            summary = RUN.compact_row(state)
            assert state.run is not None
            assert (summary is not None) == bool(state.run.completed_ms)
            if summary is not None:
                assert isinstance(summary, Put) and summary.value == state.run
    assert set(ROW_TYPES) >= {"runs"}
