"""Record stores: one suite for the port `wonder_server.ports.record_store.RecordStore`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.ports.record_store_subjects import (
    SUBJECTS,
    Subject,
    batch,
    contents,
    row,
    subject,
    write,
    write_all,
)
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.journal import StaleEpochError
from wonder_server.ports.record_store import (
    Erasure,
    Fence,
    MovedRequest,
    Reads,
    RecordStore,
    Reference,
    RowSelection,
    StoredRow,
    WriteBatch,
    Writes,
)
from wonder_server.ports.records import Query

ACTOR, CHILD, OTHER = "conv_1", "run_1", "conv_2"
ALL_ACTORS = (ACTOR, CHILD, OTHER)


@pytest_asyncio.fixture(params=SUBJECTS)
async def tested(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def store(tested: Subject) -> RecordStore:
    return tested.store


def record(actor: str = ACTOR, *, root: str = "", count: int = 2) -> WriteBatch:
    """Return a batch with a row in every kind of table."""
    numbers = range(1, count + 1)
    return batch(
        {
            "actors": [row("actors", id=actor, root=root or actor, entry_head=count, event_head=count)],
            "conversations": [row("conversations", actor=actor, id=actor, parent="proj_1", live=1)],
            "messages": [row("messages", actor=actor, id=f"msg_{n}", ordinal=n) for n in numbers],
            "operations": [row("operations", actor=actor, id="op_1", live=1)],
            "entries": [row("entries", actor=actor, sequence=n, at_ms=n) for n in numbers],
            "events": [row("events", actor=actor, sequence=n, at_ms=n) for n in numbers],
            "requests_answered": [
                row("requests_answered", scope=scope, id=actor, actor=actor, answer=f'"{scope}"')
                for scope in ("calls", "deletions", actor)
            ],
            "parts": [row("parts", root=root or actor, hash="aa", data="part")],
        }
    )


async def everything(store: RecordStore) -> object:
    """Return all that is stored of the actors of this suite."""

    def read(reads: Reads) -> object:
        requests = [reads.request(scope, actor) for actor in ALL_ACTORS for scope in scopes(actor)]
        parts = [sorted(reads.parts(actor, ["aa", "bb"])) for actor in ALL_ACTORS]
        return contents(reads, ALL_ACTORS), requests, parts

    return await store.read(read)


def scopes(actor: str) -> tuple[str, ...]:
    return "calls", "deletions", actor


async def kept_requests(store: RecordStore, actor: str) -> list[str]:
    """Return the scopes of an actor's requests that are still stored."""
    found = await store.read(lambda reads: [(scope, reads.request(scope, actor)) for scope in scopes(actor)])
    return [scope for scope, answered in found if answered is not None]


# --- rows -----------------------------------------------------------------------------------------


async def test_values_come_back_as_they_were_written(store: RecordStore) -> None:
    most, text = (1 << 63) - 1, "é🙂\u2028'\"\\%_\x7f"
    written = row(
        "messages", actor=ACTOR, id=text, parent=text, ordinal=most, status="", alias=text, live=1,
        data=bytes(range(256)), seal=(1 << 32) - 1,
    )  # fmt: skip
    plain = row("messages", actor=ACTOR, id="plain", live=1, data=text)
    await write(store, batch({"messages": [written, plain]}))
    found = await store.read(lambda reads: {each[1]: each for each in reads.live_rows("messages", ACTOR)})
    assert tuple(found[text][:-1]) == (ACTOR, text, text, most, "", text, 1, bytes(range(256)), (1 << 32) - 1)
    assert found["plain"][7] == text.encode(), "a content is read as bytes, also if it was written as text"


async def test_a_row_put_again_keeps_its_time_and_its_filter_columns(store: RecordStore) -> None:
    first = row("runs", actor=CHILD, id=CHILD, created_ms=5, project_id="proj_1", data="1", live=1)
    again = row(
        "runs", actor=CHILD, id=CHILD, created_ms=9, project_id="proj_2", data="2",
        status="ended", parent="p", ordinal=3, alias="a", live=1, seal=7,
    )  # fmt: skip
    await write(store, batch({"runs": [first]}))
    await write(store, batch({"runs": [again]}))
    (found,) = await store.read(lambda reads: list(reads.live_rows("runs", CHILD)))
    assert tuple(found[:-1]) == (CHILD, CHILD, "p", 3, "ended", "a", 1, b"2", 7)
    for project, start, expected in (("proj_1", 5, 1), ("proj_2", 5, 0), ("proj_1", 6, 0)):
        assert len(await ids_of(store, project, start)) == expected


async def ids_of(store: RecordStore, project: str, start_ms: int) -> list[StoredRow]:
    selection = RowSelection(query=Query(table="runs", start_ms=start_ms), columns=(("project_id", project),))
    return await store.read(lambda reads: list(reads.rows(selection)))


async def test_an_actor_put_again_changes_only_its_heads_and_seal(store: RecordStore) -> None:
    first = row("actors", id=CHILD, kind="run", root=CHILD, entry_head=1, event_head=1, brief=1, seal=1)
    again = row("actors", id=CHILD, kind="x", root="other", entry_head=2, event_head=3, brief=0, seal=4)
    await write(store, batch({"actors": [first]}))
    await write(store, batch({"actors": [again]}))
    found = await store.read(lambda reads: (reads.actor(CHILD), list(reads.compact_runs([CHILD]))))
    assert tuple(found[0] or ()) == (2, 3, 4)
    assert [tuple(each) for each in found[1]] == [(CHILD, CHILD, 2)]


async def test_one_transaction_erases_deletes_replaces_and_adds(store: RecordStore) -> None:
    await write(store, record())
    await write(store, record(OTHER))
    new = {
        "messages": [
            row("messages", actor=ACTOR, id="msg_9", ordinal=9),
            row("messages", actor=OTHER, id="msg_1", ordinal=7),
        ]
    }
    gone = Erasure(ACTOR, (), frozenset({"calls"}))
    await write(store, batch(new, deletes={"messages": [(OTHER, "msg_2")]}, erasures=[gone]))

    def read(reads: Reads) -> object:
        return [
            [(each[1], each[3]) for each in reads.newest_rows("messages", actor, 9)]
            for actor in (ACTOR, OTHER)
        ]

    # The erasure comes first: rows of the same batch stay.
    assert await store.read(read) == [[("msg_9", 9)], [("msg_1", 7)]]


@pytest.mark.parametrize("table", ["entries", "events", "requests_answered"])
async def test_a_row_that_never_changes_is_not_written_twice(store: RecordStore, table: str) -> None:
    await write(store, record())
    before = await everything(store)
    made = record()
    again = batch({"messages": [row("messages", actor=ACTOR, id="msg_8")]})
    again.rows[table] = made.rows[table]
    with pytest.raises(Exception):  # noqa: B017 - each store has its own error for this bug
        await write(store, again)
    assert await everything(store) == before


async def test_a_part_that_exists_is_left_alone(store: RecordStore) -> None:
    await write(store, record())
    again = [row("parts", root=ACTOR, hash="aa", data="new"), row("parts", root="", hash="bb", data=b"\x01b")]
    await write(store, batch({"parts": again}))
    found = await store.read(lambda reads: sorted(reads.parts(ACTOR, ["aa", "bb", "cc"])))
    assert [tuple(each) for each in found] == [("aa", b"part"), ("bb", b"\x01b")]


# --- transactions ---------------------------------------------------------------------------------


async def test_a_write_that_raises_leaves_every_table_as_it_was(store: RecordStore) -> None:
    compact = row("actors", id=CHILD, kind="run", root=ACTOR, brief=1)
    await write(store, record())
    await write(store, batch({"actors": [compact]}))
    before = await everything(store)

    def fail(writes: Writes) -> None:
        writes.mark_expanded([CHILD])
        changed = row("messages", actor=ACTOR, id="msg_1", data="changed")
        writes.write(batch({"messages": [changed]}, deletes={"messages": [(ACTOR, "msg_2")]}))
        moved = MovedRequest("calls", ACTOR, 5)
        writes.write(batch(erasures=[Erasure(ACTOR, (CHILD,), frozenset({"calls"}), (moved,), whole=True)]))
        writes.write(record(OTHER))
        writes.write(batch({"messages": [row("messages", actor=ACTOR, id="msg_3")]}))
        raise LookupError("stop here")

    with pytest.raises(LookupError):
        await store.write(fail)
    assert await everything(store) == before
    await write(store, record(OTHER))  # The next write works.


async def test_only_the_submitted_write_that_raises_is_undone(store: RecordStore) -> None:
    stale = batch({"messages": [row("messages", actor=ACTOR, id="stale")]}, fences=[Fence(ACTOR, 1, 0)])
    made = [batch({"messages": [row("messages", actor=ACTOR, id=f"msg_{n}", ordinal=n)]}) for n in range(4)]
    await store.raise_epochs([1])
    writes = [store.submit(write_all, [each], frees_space=False) for each in (*made[:2], stale, *made[2:])]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(each) for each in results] == [type(None)] * 2 + [StaleEpochError] + [type(None)] * 2
    found = await store.read(lambda reads: [each[1] for each in reads.newest_rows("messages", ACTOR, 9)])
    assert found == ["msg_3", "msg_2", "msg_1", "msg_0"]


async def test_reads_see_whole_commits_and_every_write_submitted_before(store: RecordStore) -> None:
    def pair(number: int) -> list[WriteBatch]:
        return [
            batch({"messages": [row("messages", actor=actor, id=f"msg_{number:02}", ordinal=number)]})
            for actor in (ACTOR, OTHER)
        ]

    def counts(reads: Reads) -> tuple[int, int]:
        first = len(reads.newest_rows("messages", ACTOR, 99))
        return first, len(reads.newest_rows("messages", OTHER, 99))

    writes, ordered, between = [], [], []
    for number in range(20):
        writes.append(store.submit(write_all, pair(number), frees_space=False))
        ordered.append(asyncio.ensure_future(store.read(counts)))
        between.append(asyncio.ensure_future(store.read(counts, between_commits=True)))
        await asyncio.sleep(0)
    await asyncio.gather(*writes)
    for submitted, (first, second) in enumerate(await asyncio.gather(*ordered), start=1):
        assert first == second >= submitted
    for first, second in await asyncio.gather(*between):
        assert first == second


async def test_a_write_is_there_after_the_store_was_opened_again(tested: Subject) -> None:
    await write(tested.store, record())
    before = await everything(tested.store)
    await tested.reopen()
    assert await everything(tested.store) == before


async def test_an_error_after_a_transaction_reached_the_disk_is_settled_before_the_answer(
    tested: Subject,
) -> None:
    tested.lose_next_answer()
    try:
        await write(tested.store, record())
        is_written = True
    except WonderError as problem:
        assert problem.fault.reason is Reason.STORAGE_UNAVAILABLE
        is_written = False
    found = await tested.store.read(lambda reads: reads.actor(ACTOR))
    assert (found is not None) == is_written
    await tested.reopen()
    found = await tested.store.read(lambda reads: reads.actor(ACTOR))
    assert (found is not None) == is_written


async def test_a_full_store_runs_only_writes_that_free_space(tested: Subject) -> None:
    store = tested.store
    await write(store, record())
    before = await everything(store)
    tested.set_full(True)
    with pytest.raises(WonderError) as caught:
        await write(store, record(OTHER))
    assert caught.value.fault.reason is Reason.STORAGE_UNAVAILABLE and caught.value.fault.transient
    with pytest.raises(WonderError):
        await store.submit(write_all, [record(OTHER)], frees_space=False)
    assert await everything(store) == before
    deletion = batch(deletes={"messages": [(ACTOR, "msg_1")]})
    await store.submit(write_all, [deletion], frees_space=True)
    deletion = batch(deletes={"messages": [(ACTOR, "msg_2")]})
    await store.write(lambda writes: writes.write(deletion), frees_space=True)
    assert await store.read(lambda reads: list(reads.newest_rows("messages", ACTOR, 9))) == []
    tested.set_full(False)
    await write(store, record(OTHER))


# --- fences ---------------------------------------------------------------------------------------


async def test_a_batch_with_one_stale_fence_writes_nothing(store: RecordStore) -> None:
    await write(store, record())
    assert await store.raise_epochs([3, 4]) == {3: 1, 4: 1}
    assert await store.raise_epochs([4]) == {4: 2}
    before = await everything(store)
    made = record(OTHER)
    made.fences = [Fence(ACTOR, 3, 1), Fence(OTHER, 4, 1)]
    made.erasures = [Erasure(ACTOR, (), frozenset())]
    with pytest.raises(StaleEpochError, match=f"shard of {OTHER} has epoch 2, .* the commit, 1"):
        await write(store, made)
    assert await everything(store) == before
    made.fences = [Fence(ACTOR, 3, 1), Fence(OTHER, 4, 2), Fence(CHILD, 5, 0)]
    await write(store, made)


async def test_a_write_submitted_before_a_takeover_is_kept_and_one_after_it_is_refused(
    store: RecordStore,
) -> None:
    def owned(number: int, shard: int) -> WriteBatch:
        made = row("messages", actor=ACTOR, id=f"msg_{number}", ordinal=number)
        return batch({"messages": [made]}, fences=[Fence(ACTOR, shard, 0)])

    before = store.submit(write_all, [owned(1, 1)], frees_space=False)
    raising = asyncio.ensure_future(store.raise_epochs([1]))
    await asyncio.sleep(0)  # The takeover is queued behind the first write.
    after = [store.submit(write_all, [owned(shard, shard)], frees_space=False) for shard in (1, 2)]
    results = await asyncio.gather(before, raising, *after, return_exceptions=True)
    assert results[:2] == [None, {1: 1}]
    assert isinstance(results[2], StaleEpochError)
    assert results[3] is None, "its shard was not taken"
    found = await store.read(lambda reads: [each[1] for each in reads.newest_rows("messages", ACTOR, 9)])
    assert found == ["msg_2", "msg_1"]


async def test_epochs_never_fall_and_no_two_takeovers_have_the_same(tested: Subject) -> None:
    raised = await asyncio.gather(*(tested.store.raise_epochs([1, 2]) for _ in range(3)))
    assert sorted(each[1] for each in raised) == sorted(each[2] for each in raised) == [1, 2, 3]
    await tested.reopen()
    with pytest.raises(StaleEpochError):
        await write(tested.store, batch(fences=[Fence(ACTOR, 1, 2)]))
    assert await tested.store.raise_epochs([1]) == {1: 4}
    assert await tested.store.raise_epochs([]) == {}
    tested.set_full(True)
    assert await tested.store.raise_epochs([2]) == {2: 4}, "a full disk keeps no shard from its owner"


async def test_an_external_reference_belongs_to_one_conversation_of_a_project(store: RecordStore) -> None:
    def taking(actor: str, project: str, alias: str) -> WriteBatch:
        taken = row("conversations", actor=actor, id=actor, parent=project, alias=alias, live=1)
        return batch({"conversations": [taken]}, references=[Reference(actor, project, alias)])

    await write(store, taking(ACTOR, "proj_1", "ref"))
    await write(store, taking(ACTOR, "proj_1", "ref"))  # Its own.
    with pytest.raises(WonderError) as caught:
        await write(store, taking(OTHER, "proj_1", "ref"))
    assert caught.value.fault.reason is Reason.ALREADY_EXISTS
    assert caught.value.fault.metadata["id"] == ACTOR
    assert await store.read(lambda reads: list(reads.live_rows("conversations", OTHER))) == []
    await write(store, taking(OTHER, "proj_2", "ref"))
    await write(store, taking("conv_3", "proj_1", "REF"))
    # An erasure of the same batch frees the reference.
    freed = taking("conv_4", "proj_1", "ref")
    freed.erasures = [Erasure(ACTOR, (), frozenset(), whole=True)]
    await write(store, freed)


# --- erasures -------------------------------------------------------------------------------------


async def test_an_erased_actor_keeps_its_row_and_the_requests_of_kept_scopes(store: RecordStore) -> None:
    await write(store, record())
    await write(store, record(CHILD))
    moved = MovedRequest("calls", CHILD, 77)
    await write(store, batch(erasures=[Erasure(ACTOR, (CHILD,), frozenset({"calls"}), (moved,))]))

    def read(reads: Reads) -> object:
        assert all(
            not list(found)
            for actor in (ACTOR, CHILD)
            for found in (reads.entries(actor, 0, 9), reads.events(actor, 0, 9), reads.parts(actor, ["aa"]))
        )
        return reads.actor(ACTOR) is not None, reads.actor(CHILD), tuple(reads.request("calls", CHILD) or ())

    assert await store.read(read) == (True, None, (ACTOR, "", b'"calls"', 77))
    assert await kept_requests(store, ACTOR) == ["calls"]
    assert await kept_requests(store, CHILD) == ["calls"]
    assert [
        tuple(each[:2]) for each in await store.read(lambda reads: reads.requests_of(ACTOR, ["calls"]))
    ] == [
        ("calls", ACTOR),
        ("calls", CHILD),
    ]


async def test_a_root_erased_as_a_whole_goes_with_all_that_have_it(store: RecordStore) -> None:
    await write(store, record())
    await write(store, record(CHILD, root=ACTOR))
    await write(store, record(OTHER))
    assert sorted(await store.read(lambda reads: reads.members(ACTOR))) == [ACTOR, CHILD]
    deletion = batch(
        {"requests_answered": [row("requests_answered", scope="again", id="r", actor=ACTOR)]},
        erasures=[Erasure(ACTOR, (), frozenset({"calls", "deletions"}), whole=True)],
    )
    await write(store, deletion)
    assert await store.read(lambda reads: (reads.actor(ACTOR), reads.actor(CHILD))) == (None, None)
    assert await store.read(lambda reads: list(reads.members(ACTOR))) == []
    assert await kept_requests(store, ACTOR) == ["calls", "deletions"]
    assert await kept_requests(store, CHILD) == []
    assert await store.read(lambda reads: reads.request("again", "r")) is not None
    assert await kept_requests(store, OTHER) == ["calls", "deletions", OTHER]
    # Nothing of it is left for an actor that has the same id later.
    await write(store, batch({"actors": [row("actors", id=ACTOR)]}))
    assert await store.read(lambda reads: list(reads.parts(ACTOR, ["aa"]))) == []


async def test_the_parts_of_a_root_stay_while_another_actor_has_it(store: RecordStore) -> None:
    await write(store, record())
    await write(store, batch({"actors": [row("actors", id=CHILD, kind="run", root=ACTOR)]}))
    await write(store, batch(erasures=[Erasure(ACTOR, (), frozenset())]))
    for actor in (ACTOR, CHILD):
        found = await store.read(lambda reads, own=actor: list(reads.parts(own, ["aa"])))  # type: ignore[misc]
        assert [tuple(each) for each in found] == [("aa", b"part")]
    await write(store, batch(erasures=[Erasure(ACTOR, (CHILD,), frozenset())]))
    assert await store.read(lambda reads: list(reads.parts(ACTOR, ["aa"]))) == []
