"""Journals that lost entries: reads report the damage, and nothing is written on top of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import (
    CONVERSATION_ID,
    commit,
    conversation,
    put_conversation,
)
from tests.conformance.ports.record_store_subjects import SUBJECTS, SqliteSubject, Subject, subject
from tests.conformance.sqlite.shard.test_compact_runs import ENDED, compact, id_of, recorded
from wonder_server.adapters.sqlite.shard.check import check_shard
from wonder_server.core.actor.changes import Erase
from wonder_server.core.conversation.model.lifecycle_decisions import EraseRecord
from wonder_server.core.conversation.model.lifecycle_inputs import FinishDeletion
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.journal import Entry
from wonder_server.ports.records import Query
from wonder_server.record.journal import StoredJournal

RUN_ENTRIES, RUN_STATE = recorded(ENDED[0])
RUN_ID = id_of(RUN_ENTRIES)
COUNT = 4


@pytest_asyncio.fixture(params=SUBJECTS)
async def tested(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def journal(tested: Subject) -> StoredJournal:
    return StoredJournal(tested.store, (CONVERSATION, RUN))


def entry(number: int, *decisions: EraseRecord) -> Entry:
    return Entry(number, number, FinishDeletion(), decisions)


async def write_entries(journal: StoredJournal, last: int = COUNT) -> None:
    """Write a conversation's journal, each entry in a commit and a row of its own."""
    for number in range(1, last + 1):
        rows = (put_conversation(conversation(0)),) if number == 1 else ()
        await journal.commit([commit(CONVERSATION_ID, *rows, entries=(entry(number),))])


async def assert_damaged(read: Awaitable[object], record: str) -> None:
    with pytest.raises(WonderError) as caught:
        await read
    assert caught.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert record in caught.value.fault.message
    assert not caught.value.fault.transient


async def problems(tested: Subject, folder: Path, expected: list[str]) -> list[str]:
    """Return what `wonder check` finds in the file of a store; ``expected`` for a store without files."""
    if not isinstance(tested, SqliteSubject):
        return expected
    await tested.store.close()
    found = check_shard(folder / "shards" / "00.db").problems
    await tested.open()
    return [str(each) for each in found]


READS: dict[str, Callable[[StoredJournal], Awaitable[object]]] = {
    "load": lambda journal: journal.load(RUN_ID),
    "events": lambda journal: journal.events(RUN_ID, 0, 100),
    "entries": lambda journal: journal.entries(RUN_ID, 0, 100),
    "executions": lambda journal: journal.query(Query(table="executions", actor=RUN_ID), object),
}


@pytest.mark.parametrize("name", READS)
async def test_a_compact_run_without_its_journal_is_damaged_and_stays_compact(
    name: str, tested: Subject, journal: StoredJournal, tmp_path: Path
) -> None:
    await journal.commit([compact(RUN_ENTRIES, RUN_STATE)])
    await tested.lose("entries", {"actor": RUN_ID, "sequence": len(RUN_ENTRIES)})
    for _ in range(2):
        await assert_damaged(READS[name](journal), f"{RUN_ID}/1")
    assert await tested.store.read(lambda reads: len(reads.compact_runs([RUN_ID]))) == 1
    [problem] = await problems(tested, tmp_path, [RUN_ID])
    assert RUN_ID in problem


@pytest.mark.parametrize(
    ("lost", "record"),
    [([1], 1), ([1, 2], 1), ([2], 2), ([COUNT], COUNT), ([COUNT - 1, COUNT], COUNT - 1), ([1, 2, 3, 4], 1)],
)
@pytest.mark.parametrize("page", [1, 2, 100])
async def test_a_journal_without_all_its_entries_is_damaged(
    lost: list[int], record: int, page: int, tested: Subject, journal: StoredJournal, tmp_path: Path
) -> None:
    await write_entries(journal)
    for number in lost:
        await tested.lose("entries", {"actor": CONVERSATION_ID, "sequence": number})

    async def read_all() -> None:
        after = 0
        while found := await journal.entries(CONVERSATION_ID, after, page):
            after = found[-1].sequence

    await assert_damaged(read_all(), f"{CONVERSATION_ID}/{record}")
    missing = f"shards/00.db: {len(lost)} of the entries of {CONVERSATION_ID} are missing"
    assert await problems(tested, tmp_path, [missing]) == [missing]


@pytest.mark.parametrize("lost", [[COUNT], [COUNT - 1, COUNT], [1, 2, 3, 4]])
async def test_an_actor_whose_last_entry_is_lost_is_not_loaded(
    lost: list[int], tested: Subject, journal: StoredJournal
) -> None:
    await write_entries(journal)
    loaded = await journal.load(CONVERSATION_ID)
    assert loaded is not None and (loaded.entry_head, loaded.at_ms) == (COUNT, COUNT)
    for number in lost:
        await tested.lose("entries", {"actor": CONVERSATION_ID, "sequence": number})
    await assert_damaged(journal.load(CONVERSATION_ID), f"{CONVERSATION_ID}/{COUNT}")


async def test_the_journal_of_an_archived_record_begins_with_the_entry_that_erased_it(
    tested: Subject, journal: StoredJournal, tmp_path: Path
) -> None:
    await write_entries(journal)
    kept = conversation(0)
    erased = entry(COUNT + 1, EraseRecord(conversation=kept))
    await journal.commit([commit(CONVERSATION_ID, Erase(), put_conversation(kept), entries=(erased,))])
    await journal.commit([commit(CONVERSATION_ID, entries=(entry(COUNT + 2),))])
    found = await journal.entries(CONVERSATION_ID, 0, 100)
    assert [each.sequence for each in found] == [COUNT + 1, COUNT + 2]
    assert await problems(tested, tmp_path, []) == []
    await tested.lose("entries", {"actor": CONVERSATION_ID, "sequence": COUNT + 1})
    reopened = StoredJournal(tested.store, (CONVERSATION, RUN))
    await assert_damaged(reopened.entries(CONVERSATION_ID, 0, 100), f"{CONVERSATION_ID}/1")
    missing = f"shards/00.db: {COUNT + 1} of the entries of {CONVERSATION_ID} are missing"
    assert await problems(tested, tmp_path, [missing]) == [missing]


async def test_an_actor_row_with_another_head_is_damaged(tested: Subject, journal: StoredJournal) -> None:
    await write_entries(journal)
    await tested.change("actors", {"id": CONVERSATION_ID}, "entry_head", COUNT - 1)
    await assert_damaged(journal.entries(CONVERSATION_ID, 0, 100), CONVERSATION_ID)
