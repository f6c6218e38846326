"""Pages of rows and events for lists and recovery: a suite for the reads of the port ``RecordStore``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.ports.record_store_subjects import SUBJECTS, Subject, batch, row, subject, write
from wonder_server.ports.record_store import EventSelection, Reads, RecordStore, RowSelection
from wonder_server.ports.records import EventQuery, Query

ACTORS = ("conv_1", "conv_2", "run_1")
IDS = ("Z", "_", "a", "a_", "aa", "B", "é", "\uffff", "🙂", "10", "9")
"""Ids in an order that no collation gives. Stores order them by code point."""


@pytest_asyncio.fixture(params=SUBJECTS)
async def tested(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as found:
        yield found


@pytest_asyncio.fixture
async def store(tested: Subject) -> RecordStore:
    """Return a store with three actors."""
    messages = [
        row("messages", actor=actor, id=each, ordinal=place // 2, created_ms=100 + place % 4, live=1)
        for actor in ACTORS[:2]
        for place, each in enumerate(IDS)
    ]
    gates = [
        row("gates", actor="run_1", id=f"gate_{n}", parent="proj_1", created_ms=n, data=data)
        for n, data in enumerate(GATES)
    ]
    runs = [
        row(
            "runs", actor=f"run_{n}", id=f"run_{n}", parent="p" if n % 2 else "q", created_ms=n,
            status=("running", "ended", "waiting")[n % 3], alias=f"alias_{n}", project_id=f"proj_{n % 2}",
            workflow_ref="ref" if n > 2 else "", parent_actor="conv_1" if n == 4 else "", ordinal=9 - n,
        )
        for n in range(6)
    ]  # fmt: skip
    events = [
        row(
            "events", actor=actor, sequence=n, at_ms=10 * (n // 2), name=("first", "second")[n % 2],
            kind=f"kind_{n}", turn_id=f"turn_{n // 3}", data=f"{n}",
        )
        for actor in ACTORS
        for n in range(1, 7)
    ]  # fmt: skip
    made = {
        "actors": [row("actors", id=actor, event_head=6, entry_head=2) for actor in ACTORS],
        "conversations": [
            row("conversations", actor=actor, id=actor, parent=f"proj_{n}")
            for n, actor in enumerate(ACTORS[:2])
        ],
        "messages": messages, "gates": gates, "runs": runs, "events": events,
    }  # fmt: skip
    await write(tested.store, batch(made))
    return tested.store


GATES = (
    '{"on":{"members":[{"id":"ann"},{"id":"bob"}]},"roles":[]}',
    '{"on":{"members":[{"id":"bob"}]},"roles":["admin"]}',
    '{"on":{"members":[]},"roles":["admin","owner"]}',
    '{"on":{}}',
    '{"roles":["owner"]}',
)


async def found(store: RecordStore, selection: RowSelection) -> list[tuple[int, str, str]]:
    """Return order column, actor and id of the selected rows."""
    return await store.read(lambda reads: [tuple(each[:3]) for each in reads.rows(selection)])  # type: ignore[misc]


@pytest.mark.parametrize("by_ordinal", [True, False])
@pytest.mark.parametrize("newest_first", [True, False])
async def test_rows_come_in_the_order_of_their_keys_in_pages_of_any_size(
    store: RecordStore, by_ordinal: bool, newest_first: bool
) -> None:
    query = Query(table="messages", actor="conv_1", by_ordinal=by_ordinal, newest_first=newest_first)
    whole = await found(store, RowSelection(query=query))
    places = {each: place // 2 if by_ordinal else 100 + place % 4 for place, each in enumerate(IDS)}
    expected = sorted(((places[each], "conv_1", each) for each in IDS), reverse=newest_first)
    assert whole == expected
    for size in (1, 2, 3, len(IDS)):
        pages: list[tuple[int, str, str]] = []
        page = await found(store, RowSelection(query=query, limit=size))
        while page:
            assert len(page) <= size
            pages += page
            after = (page[-1][0], page[-1][2])
            page = await found(store, RowSelection(query=replace(query, after=after), limit=size))
        assert pages == expected


@pytest.mark.parametrize(
    ("query", "columns", "expected"),
    [
        ({}, (), "012345"),
        ({"id": "run_3"}, (), "3"),
        ({"actor": "run_3"}, (), "3"),
        ({"actors": ("run_5", "run_2", "run_9")}, (), "25"),
        ({"parent": "q"}, (), "024"),
        ({"alias": "alias_4"}, (), "4"),
        ({"alias": "ALIAS_4"}, (), ""),
        ({"statuses": ("running",)}, (), "03"),
        ({"statuses": ("running", "waiting")}, (), "0235"),
        ({"start_ms": 2, "end_ms": 4}, (), "23"),
        ({"end_ms": 1}, (), "0"),
        ({"projects": frozenset({"proj_1", "proj_9"})}, (), "135"),
        ({"projects": frozenset()}, (), ""),
        ({}, (("project_id", "proj_0"),), "024"),
        ({}, (("workflow_ref", ""),), "012"),
        ({}, (("workflow_ref", ()),), "345"),
        ({}, (("project_id", ("proj_1", "proj_5")),), "135"),
        ({"parent": "p", "statuses": ("ended",)}, (("parent_actor", ""),), "1"),
        ({"statuses": ("ended",)}, (("parent_actor", "conv_1"),), "4"),
    ],
)  # fmt: skip
async def test_filters_select_rows(
    store: RecordStore, query: dict[str, Any], columns: tuple[Any, ...], expected: str
) -> None:
    selection = RowSelection(query=Query(table="runs", newest_first=False, **query), columns=columns)
    assert "".join(each[2][-1] for each in await found(store, selection)) == expected


async def test_rows_of_actors_belong_to_the_project_of_their_actor(store: RecordStore) -> None:
    for project, actors in (("proj_0", {"conv_1"}), ("proj_1", {"conv_2"}), ("proj_2", set())):
        query = Query(table="messages", projects=frozenset({project}))
        assert {each[1] for each in await found(store, RowSelection(query=query))} == actors


@pytest.mark.parametrize(
    ("members", "allowed", "expected"),
    [
        ((("on.members", "ann"),), (), "0"),
        ((("on.members", "bob"),), (), "01"),
        ((), (("roles", "admin"),), "0123"),
        ((), (("roles", "owner"),), "0234"),
        ((("on.members", "bob"),), (("roles", "owner"),), "0"),
        ((("on.members", "nobody"),), (), ""),
    ],
)
async def test_lists_in_values_that_are_not_packed_select_rows(
    store: RecordStore, members: Any, allowed: Any, expected: str
) -> None:
    query = Query(table="gates", newest_first=False)
    selection = RowSelection(query=query, members=members, allowed=allowed)
    assert "".join(each[2][-1] for each in await found(store, selection)) == expected


async def test_events_of_one_actor_come_oldest_first_and_of_all_newest_first(store: RecordStore) -> None:
    async def page(**fields: Any) -> list[tuple[str, int]]:
        query = EventQuery(**{"limit": 99, **fields})
        selection = EventSelection(query=query, prefix="conv_", names=fields.get("names", ()))
        return await store.read(lambda reads: [(each[0], each[1]) for each in reads.listed_events(selection)])

    assert await page(actor="conv_2") == [("conv_2", n) for n in range(1, 7)]
    assert await page(actor="conv_2", after_sequence=2, limit=2) == [("conv_2", 3), ("conv_2", 4)]
    assert await page(actor="conv_1", names=("first",)) == [("conv_1", n) for n in (2, 4, 6)]
    assert await page(actor="conv_1", turn_id="turn_1") == [("conv_1", n) for n in (3, 4, 5)]
    assert await page(actor="conv_1", start_ms=10, end_ms=20) == [("conv_1", 2), ("conv_1", 3)]
    whole = sorted(((10 * (n // 2), actor, n) for actor in ACTORS[:2] for n in range(1, 7)), reverse=True)
    assert await page() == [each[1:] for each in whole], "the run has another prefix"
    for place, last in enumerate(whole):
        assert await page(after=last, limit=3) == [each[1:] for each in whole[place + 1 : place + 4]]
    assert {each[0] for each in await page(projects=frozenset({"proj_1"}))} == {"conv_2"}
    assert {each[0] for each in await page(project_id="proj_0")} == {"conv_1"}


async def test_an_actor_is_read_by_ordinal_parent_and_position(tested: Subject) -> None:
    store = tested.store
    rows = [
        row("turns", actor="conv_1", id=f"turn_{n}", ordinal=n, parent=f"p{n % 2}", live=int(n == 2))
        for n in range(1, 6)
    ]
    texts = [row("messages", actor="conv_1", id=f"msg_{n}", ordinal=n, data=f'"{n}"') for n in range(1, 4)]
    entries = [row("entries", actor="conv_1", sequence=n, at_ms=n, input=str(n)) for n in (1, 2, 5, 10, 20)]
    actors = [row("actors", id="conv_1"), row("actors", id="run_1", kind="run", root="conv_1")]
    await write(store, batch({"turns": rows, "messages": texts, "entries": entries, "actors": actors}))

    def read(reads: Reads) -> None:
        def numbers(selected: Any) -> list[int]:
            return [each[3] for each in selected]

        assert numbers(reads.newest_rows("turns", "conv_1", 2)) == [5, 4]
        assert numbers(reads.live_rows("turns", "conv_1")) == [2]
        assert sorted(numbers(reads.rows_among("turns", "conv_1", "parent", ["p1", "p7"]))) == [1, 3, 5]
        assert sorted(numbers(reads.rows_among("turns", "conv_1", "id", ["turn_4", "turn_1"]))) == [1, 4]
        assert [each[0] for each in reads.entries("conv_1", 2, 2)] == [5, 10]
        assert [each[0] for each in reads.entries("conv_1", 0, 99)] == [1, 2, 5, 10, 20]
        # A run reads the messages of its root.
        assert (reads.message("run_1", 2) or ())[-3] == b'"2"'
        assert reads.message("run_1", 9) is None
        assert reads.message("run_9", 1) is None
        assert list(reads.newest_rows("turns", "conv_9", 2)) == []

    await store.read(read)


async def test_heads_have_the_time_of_the_last_event(store: RecordStore, tested: Subject) -> None:
    brief = row("actors", id="run_5", kind="run", entry_head=3, event_head=8, brief=1)
    old = row("actors", id="run_4", kind="run", entry_head=1, brief=1)
    entries = [row("entries", actor="run_5", sequence=3, at_ms=70)]
    executions = [row("executions", actor="run_1", id=f"e{n}", ordinal=n) for n in (3, 7, 5)]
    await write(store, batch({"actors": [brief, old], "entries": entries, "executions": executions}))
    asked = ["conv_1", "run_1", "run_5", "run_9"]
    heads = await store.read(lambda reads: sorted(tuple(each) for each in reads.heads(asked)))
    assert heads == [("conv_1", 6, 30, 0), ("run_1", 6, 30, 7), ("run_5", 8, 70, 4)]

    def compact(*, without_heads: bool) -> Any:
        return lambda reads: [
            tuple(each)
            for each in sorted(reads.compact_runs(["run_4", "run_5", "run_1"], without_heads=without_heads))
        ]

    both = [("run_4", "run_4", 1), ("run_5", "run_5", 3)]
    assert await store.read(compact(without_heads=False)) == both
    assert await store.read(compact(without_heads=True)) == both[:1]
    await store.write(lambda writes: writes.mark_expanded(["run_5"]))
    assert await store.read(compact(without_heads=False)) == both[:1]
    assert await store.read(lambda reads: [tuple(each) for each in reads.heads(["run_5"])]) == [
        ("run_5", 8, 0, 0)
    ]


async def test_outboxes_come_in_pages_of_actors(tested: Subject) -> None:
    store = tested.store
    actors = [f"conv_{letter}" for letter in "ZaB1"]
    operations = [
        row("operations", actor=actor, id=f"op_{n}", created_ms=9 - n, live=1)
        for actor in (*actors, "run_1")
        for n in range(3)
    ]
    done = [row("operations", actor=f"conv_{letter}", id="op_1", live=0) for letter in "CDE"]
    entries = [row("entries", actor=actor, sequence=2, at_ms=place) for place, actor in enumerate(actors)]
    heads = [row("actors", id=each, entry_head=2) for each in (*actors, "run_1", "conv_D")]
    await write(store, batch({"operations": operations + done, "entries": entries[1:], "actors": heads}))
    seen: list[tuple[str, str]] = []
    times: dict[str, int] = {}
    after = ""
    while True:
        rows, at_ms = await store.read(lambda reads, last=after: reads.outbox("conv_", last, 3))  # type: ignore[misc]
        if not rows:
            break
        assert len({each[0] for each in rows}) <= 3
        seen += [(each[0], each[1]) for each in rows]
        times |= at_ms
        after = rows[-1][0]
    assert seen == [(actor, f"op_{n}") for actor in sorted(actors) for n in (2, 1, 0)]
    assert times == {"conv_a": 1, "conv_B": 2, "conv_1": 3}
    asked = ["conv_Z", "conv_D", "run_1", "conv_9"]
    assert sorted(await store.read(lambda reads: reads.with_outbox(asked))) == ["conv_Z", "run_1"]
