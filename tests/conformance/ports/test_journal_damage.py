"""Journals on any record store: damage, owners, a full disk, and commits whose outcome is unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import (
    CONVERSATION_ID,
    commit,
    conversation,
    emitted,
    message,
    operation,
    put_conversation,
)
from tests.conformance.ports.record_store_subjects import SUBJECTS, Subject, subject
from wonder_server.codec.packing import unpack
from wonder_server.core import ids
from wonder_server.core.actor.changes import Erase
from wonder_server.core.conversation.model.inputs import CancelTurn
from wonder_server.core.conversation.model.lifecycle_decisions import EraseRecord
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import CompletedRequest, IdempotencyKey
from wonder_server.ports.journal import Commit, Entry, StaleEpochError
from wonder_server.ports.records import EventQuery, Query
from wonder_server.record.journals import StoredJournals

MESSAGES = Query(table="messages", actor=CONVERSATION_ID, by_ordinal=True, newest_first=False)
LONG = {"text": "long " * 1_000}
SHARD = ids.shard_of(CONVERSATION_ID)
REQUEST = IdempotencyKey("", "r", "print", CONVERSATION_ID)


@pytest_asyncio.fixture(params=SUBJECTS)
async def tested(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as found:
        await journals(found).files[0].commit([written()])
        yield found


def journals(tested: Subject) -> StoredJournals:
    """Return new journals on the store: they know nothing of what was written."""
    return StoredJournals.on([tested.store], (CONVERSATION, RUN))


def entry(sequence: int) -> Entry:
    return Entry(sequence, 10 * sequence, CancelTurn(turn_id=f"turn_{sequence}"), ())


def written() -> Commit:
    made = commit(
        CONVERSATION_ID,
        put_conversation(conversation(0)),
        message(1),
        message(2),
        operation(1, given=LONG),
        entries=(entry(1),),
        events=tuple(map(emitted, range(1, 5))),
    )
    made.requests.append((REQUEST, {"turn_id": "turn_1"}))
    return made


def following(sequence: int = 2) -> Commit:
    """Return a commit that continues the record."""
    return commit(
        CONVERSATION_ID,
        message(sequence + 1),
        entries=(entry(sequence),),
        events=(emitted(sequence + 3),),
    )


async def append(tested: Subject, first: int, last: int) -> None:
    """Write entries in a commit of their own each, so that each has a row."""
    for sequence in range(first, last + 1):
        await journals(tested).files[0].commit([following(sequence)])


# --- damage ---------------------------------------------------------------------------------------


async def problem(reading: Awaitable[object]) -> str:
    """Return the message of the error that a read raises for damage."""
    with pytest.raises(WonderError) as found:
        await reading
    assert found.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert not found.value.fault.transient
    assert "is damaged" in found.value.fault.message and "wonder check" in found.value.fault.message
    return found.value.fault.message


CHANGES: list[tuple[str, Any]] = [
    ("data", b"{}"),
    ("data", b"\xff\xfe"),
    ("data", b""),
    ("parent", "turn_2"),
    ("status", "agent"),
    ("live", 1),
    ("ordinal", 7),
    ("seal", 5),
    ("seal", None),
]


@pytest.mark.parametrize(("column", "value"), CHANGES)
async def test_a_list_with_a_damaged_row_fails_with_its_name(
    tested: Subject, column: str, value: object
) -> None:
    await tested.change("messages", {"actor": CONVERSATION_ID, "id": "msg_002"}, column, value)
    store = journals(tested)
    said = await problem(store.find(MESSAGES))
    assert f"msg_002 in table messages of {tested.store.name}" in said
    assert "msg_002" in await problem(store.snapshot(CONVERSATION_ID, [MESSAGES]))
    by_author = replace(MESSAGES, fields=(("author", "bob"),))
    if column == "data" or column == "seal":
        assert "msg_002" in await problem(store.find(by_author)), "a filter leaves out no damaged row"
    lenient = await store.find(replace(MESSAGES, lenient=True))
    assert [each.id for each in lenient] == ["msg_001"]


async def test_rows_in_each_others_place_are_damage(tested: Subject) -> None:
    def read(reads: Any) -> Any:
        return {each[1]: each for each in reads.newest_rows("messages", CONVERSATION_ID, 9)}

    found = await tested.store.read(read)
    for here, there in (("msg_001", "msg_002"), ("msg_002", "msg_001")):
        key = {"actor": CONVERSATION_ID, "id": here}
        await tested.change("messages", key, "data", found[there][7])
        await tested.change("messages", key, "seal", found[there][8])
    assert "msg_001" in await problem(journals(tested).find(MESSAGES))


async def load(found: StoredJournals) -> object:
    return await found.files[0].load(CONVERSATION_ID)


async def entries_of(found: StoredJournals) -> object:
    return await found.files[0].entries(CONVERSATION_ID, 0, 9)


async def events_of(found: StoredJournals) -> object:
    return await found.files[0].events(CONVERSATION_ID, 0, 9)


async def listed_events_of(found: StoredJournals) -> object:
    return await found.events(CONVERSATION.prefix, EventQuery(actor=CONVERSATION_ID))


Read = Callable[[StoredJournals], Awaitable[object]]


@pytest.mark.parametrize(
    ("table", "key", "column", "name", "read"),
    [
        ("entries", {"sequence": 1}, "input", "1", load),
        ("entries", {"sequence": 1}, "epoch", "1", load),
        ("entries", {"sequence": 2}, "input", "2", entries_of),
        ("entries", {"sequence": 2}, "at_ms", "2", entries_of),
        ("entries", {"sequence": 2}, "decisions", "2", entries_of),
        ("events", {"sequence": 3}, "data", "3", events_of),
        ("events", {"sequence": 3}, "name", "3", events_of),
        ("events", {"sequence": 3}, "turn_id", "3", events_of),
        ("events", {"sequence": 3}, "at_ms", "3", listed_events_of),
        ("operations", {"id": "op_1"}, "data", "op_1", load),
        ("conversations", {"id": CONVERSATION_ID}, "data", CONVERSATION_ID, load),
    ],
)  # fmt: skip
async def test_a_damaged_record_of_an_actor_is_named(
    tested: Subject, table: str, key: dict[str, Any], column: str, name: str, read: Read
) -> None:
    if table == "entries" and key["sequence"] == 2:
        await append(tested, 2, 3)
    value = 77 if column in ("epoch", "at_ms") else b"{}"
    value = "other" if column in ("name", "turn_id") else value
    await tested.change(table, {"actor": CONVERSATION_ID, **key}, column, value)
    assert f"{name} in table {table}" in await problem(read(journals(tested)))


async def test_damaged_heads_are_found_when_the_actor_is_loaded(tested: Subject) -> None:
    await tested.change("actors", {"id": CONVERSATION_ID}, "event_head", 9)
    said = await problem(journals(tested).files[0].load(CONVERSATION_ID))
    assert f"{CONVERSATION_ID} in table actors" in said


async def test_a_damaged_answer_of_a_request_is_no_answer(tested: Subject) -> None:
    store = journals(tested)
    kept = CompletedRequest("print", {"turn_id": "turn_1"})
    assert await store.completed_request(CONVERSATION_ID, "r") == kept
    await tested.change("requests_answered", {"scope": CONVERSATION_ID, "id": "r"}, "answer", "{}")
    assert "in table requests_answered" in await problem(store.completed_request(CONVERSATION_ID, "r"))


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_damaged_or_lost_part_is_damage_of_what_needs_it(tested: Subject, is_lost: bool) -> None:
    def parts(reads: Any) -> list[tuple[str, str]]:
        ((_, *_, data, _, _),) = reads.live_rows("operations", CONVERSATION_ID)
        text = unpack(data).decode()
        return [(CONVERSATION_ID, each.split('"')[0]) for each in text.split('{"$":"')[1:]]

    query = Query(table="operations", actor=CONVERSATION_ID)
    assert (await journals(tested).find(query))[0].input == LONG
    for root, digest in await tested.store.read(parts):
        key = {"root": root, "hash": digest}
        await (tested.lose("parts", key) if is_lost else tested.change("parts", key, "data", b'"lung"'))
    assert "in table parts" in await problem(journals(tested).find(query))
    # Recovery shows the actor without its operations: its load then says what is damaged.
    (found,) = await journals(tested).files[0].unfinished(CONVERSATION.prefix, "", 9)
    assert (found.actor_id, found.operations) == (CONVERSATION_ID, ())


async def test_a_lost_entry_or_event_is_damage(tested: Subject) -> None:
    await append(tested, 2, 4)
    await tested.lose("entries", {"actor": CONVERSATION_ID, "sequence": 3})
    assert f"{CONVERSATION_ID}/3 in table entries" in await problem(entries_of(journals(tested)))
    await tested.lose("events", {"actor": CONVERSATION_ID, "sequence": 1})
    assert f"{CONVERSATION_ID}/1 in table events" in await problem(events_of(journals(tested)))
    await tested.lose("events", {"actor": CONVERSATION_ID, "sequence": 7})
    later = journals(tested).files[0].events(CONVERSATION_ID, 5, 9)
    assert f"{CONVERSATION_ID}/7 in table events" in await problem(later)


# --- an archived record ---------------------------------------------------------------------------


async def test_a_read_of_events_that_archiving_erased_is_a_transient_error(tested: Subject) -> None:
    """An archived record has its heads, the entry that erased it, and no events."""
    kept = conversation(0)
    erasure = Entry(2, 20, CancelTurn(turn_id="turn_2"), (EraseRecord(conversation=kept),))
    erasing = commit(CONVERSATION_ID, Erase(), put_conversation(kept), entries=(erasure,))
    await journals(tested).files[0].commit([replace(erasing, event_head=4)])
    with pytest.raises(
        WonderError, match=f"{CONVERSATION_ID} was archived while its events were read"
    ) as found:
        await events_of(journals(tested))
    assert found.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    assert found.value.fault.transient, "the reader attaches again"
    assert await journals(tested).files[0].events(CONVERSATION_ID, 4, 9) == []
    # Later events of the archived record are read. A lost one after them is damage.
    for sequence in (3, 4):
        later = commit(CONVERSATION_ID, entries=(entry(sequence),), events=(emitted(sequence + 2),))
        await journals(tested).files[0].commit([later])
    found_after = await journals(tested).files[0].events(CONVERSATION_ID, 0, 9)
    assert [each.sequence for each in found_after] == [5, 6]
    await tested.lose("events", {"actor": CONVERSATION_ID, "sequence": 6})
    assert f"{CONVERSATION_ID}/6 in table events" in await problem(events_of(journals(tested)))


# --- owners, space, outcomes ----------------------------------------------------------------------


async def heads(tested: Subject) -> tuple[int, int]:
    found = await journals(tested).files[0].load(CONVERSATION_ID)
    assert found is not None
    return found.entry_head, found.event_head


async def test_a_commit_of_an_earlier_owner_writes_nothing(tested: Subject) -> None:
    store = journals(tested)
    assert await store.raise_epochs([SHARD]) == {SHARD: 1}
    late, other = following(), following()
    other.actor_id = other.root = CONVERSATION_ID[:-1] + ("1" if CONVERSATION_ID[-1] != "1" else "2")
    late.requests.append((request("late"), {}))
    with pytest.raises(StaleEpochError, match=f"The shard of {CONVERSATION_ID} has epoch 1") as found:
        await store.files[0].commit([other, late])
    assert found.value.fault.reason is Reason.OWNER_MOVED and found.value.fault.transient
    assert await heads(tested) == (1, 4)
    assert await store.files[0].load(other.actor_id) is None
    assert await store.completed_request(CONVERSATION_ID, "late") is None
    assert len(await store.find(MESSAGES)) == 2
    await tested.reopen()
    with pytest.raises(StaleEpochError):
        await journals(tested).files[0].commit([late])
    late.epoch = 1
    await journals(tested).files[0].commit([late])
    assert await heads(tested) == (2, 5)


def request(request_id: str) -> IdempotencyKey:
    return IdempotencyKey("", request_id, "print", CONVERSATION_ID)


async def test_the_commit_after_a_refused_one_writes_everything_it_refers_to(tested: Subject) -> None:
    """The journal knows no part that only a refused commit contained."""
    store = journals(tested)
    (refused, accepted) = (
        commit(
            CONVERSATION_ID,
            message(3),
            with_part(number),
            entries=(entry(2),),
            events=(emitted(5),),
        )
        for number in (2, 3)
    )
    await store.raise_epochs([SHARD])
    accepted.epoch = 1
    with pytest.raises(StaleEpochError):
        await store.files[0].commit([refused])
    await store.files[0].commit([accepted])
    await tested.reopen()
    found = await journals(tested).find(Query(table="operations", actor=CONVERSATION_ID, id="op_3"))
    assert found[0].input == {"text": "other " * 1_000}


def with_part(number: int) -> Any:
    return operation(number, given={"text": "other " * 1_000})


async def test_an_unknown_outcome_is_settled_before_the_actor_goes_on(tested: Subject) -> None:
    """The heads say what the caller gets, so its next commit continues the record."""
    store = journals(tested)
    tested.lose_next_answer()
    try:
        await store.files[0].commit([following()])
        expected = (2, 5)
    except WonderError as failure:
        assert failure.fault.reason is Reason.STORAGE_UNAVAILABLE and failure.fault.transient
        expected = (1, 4)
        await store.files[0].commit([following()])
    else:
        assert await heads(tested) == expected
    await store.files[0].commit([following(3)])
    await tested.reopen()
    assert await heads(tested) == (3, 6)
    assert [each.sequence for each in await journals(tested).files[0].entries(CONVERSATION_ID, 0, 9)] == [
        1,
        2,
        3,
    ]


async def test_a_full_disk_accepts_only_commits_that_free_space(tested: Subject) -> None:
    store = journals(tested)
    tested.set_full(True)
    with pytest.raises(WonderError) as found:
        await store.files[0].commit([following()])
    assert found.value.fault.reason is Reason.STORAGE_UNAVAILABLE and found.value.fault.transient
    assert await heads(tested) == (1, 4)
    freeing = following()
    freeing.frees_space = True
    await store.files[0].commit([freeing])
    assert await heads(tested) == (2, 5)
    tested.set_full(False)
    await store.files[0].commit([following(3)])
