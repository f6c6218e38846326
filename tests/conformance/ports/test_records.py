"""Records: one suite for the port `wonder_server.ports.records.Records`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import (
    COMPLETED,
    CONVERSATION_ID,
    ROW_TYPES,
    Shards,
    commit,
    conversation,
    conversation_id,
    emitted,
    message,
    opened,
    operation,
    put_conversation,
    unfinished,
)
from tests.sqlite_journals import SqliteJournals
from wonder_server.adapters.sqlite.connection import connect
from wonder_server.adapters.sqlite.shard.queries import rows_sql
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.core.actor.changes import Emit, Put
from wonder_server.core.actor.commands import Parent, Scope
from wonder_server.core.actor.gates import Gate, GateStatus
from wonder_server.core.conversation.model.values import Participant, Role
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.model.values import NodeExecution, Run, RunStatus, Token, TokenStatus
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.history.text_query import TextQuery
from wonder_server.ports.journal import Commit, Event
from wonder_server.ports.records import EventQuery, Head, Query
from wonder_server.record.decoding import selection_of

HELPER = Participant(type="agent", id="agt_1", name="helper")
ANN = Participant(type="user", id="ann")


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def shards(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shards]:
    async with opened(request.param, tmp_path) as store:
        yield store


async def fill(shards: Shards) -> None:
    """Create nine conversations in three shards: every second in project 2, every third completed."""
    commits: dict[int, list[Commit]] = {0: [], 1: [], 2: []}
    for number in range(9):
        value = conversation(
            number,
            project=f"proj_{number % 2 + 1}",
            external_ref=f"ref {number // 2}",
            participants=(HELPER, ANN) if number % 2 else (HELPER,),
            title="long" * 400,
            **({"status": COMPLETED} if number % 3 == 0 else {}),
        )
        owner = value.id
        events = tuple(
            emitted(
                each,
                owner=owner,
                at_ms=1000 * each + number,
                turn=f"turn_{each}",
                name=("participant.left", "participant.joined")[each % 2],
            )
            for each in range(1, 4)
        )
        commits[number % 3].append(commit(owner, put_conversation(value), events=events))
    await asyncio.gather(*(shards.of(conversation_id(shard)).commit(made) for shard, made in commits.items()))


def numbers(found: list[Any]) -> list[int]:
    return [value.created_ms // 10 for value in found]


async def find(shards: Shards, **query: Any) -> list[int]:
    return numbers(await shards.find(Query(table="conversations", **query)))


# --- rows -------------------------------------------------------------------------------------------


async def test_rows_of_all_shards_come_merged_newest_first(shards: Shards) -> None:
    await fill(shards)
    assert await find(shards) == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert await find(shards, newest_first=False) == [0, 1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 4, 9, 50])
async def test_pages_fit_together_whatever_their_size(shards: Shards, limit: int, newest_first: bool) -> None:
    await fill(shards)
    seen: list[int] = []
    after = None
    while True:
        query = Query(table="conversations", limit=limit, after=after, newest_first=newest_first)
        page = await shards.find(query)
        assert len(page) <= limit
        if not page:
            break
        seen += numbers(page)
        after = (page[-1].created_ms, page[-1].id)
    assert seen == sorted(range(9), reverse=newest_first)


async def test_rows_of_one_moment_are_distinguished_by_id(shards: Shards) -> None:
    for number in range(6):
        owner = conversation_id(number)
        value = put_conversation(conversation(number))
        at_once = Put(**{name: getattr(value, name) for name in Put.__slots__} | {"created_ms": 7})
        await shards.of(owner).commit([commit(owner, at_once)])
    first = await shards.find(Query(table="conversations", limit=3))
    second = await shards.find(Query(table="conversations", limit=3, after=(7, first[-1].id)))
    assert [value.id for value in first + second] == sorted(
        (conversation_id(n) for n in range(6)), reverse=True
    )


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"parent": "proj_2"}, [7, 5, 3, 1]),
        ({"statuses": ("completed",)}, [6, 3, 0]),
        ({"statuses": ("completed", "active")}, [8, 7, 6, 5, 4, 3, 2, 1, 0]),
        ({"statuses": ("failed",)}, []),
        ({"alias": "ref 2"}, [5, 4]),
        ({"alias": "ref 2", "statuses": ("completed",)}, []),
        ({"id": conversation_id(4)}, [4]),
        ({"actor": conversation_id(4)}, [4]),
        ({"actor": conversation_id(4), "id": conversation_id(5)}, []),
        ({"members": (("participants", "ann"),)}, [7, 5, 3, 1]),
        ({"members": (("participants", "ann"), ("participants", "agt_1"))}, [7, 5, 3, 1]),
        ({"members": (("participants", "bob"),)}, []),
        ({"fields": (("project_id", "proj_1"),)}, [8, 6, 4, 2, 0]),
        ({"fields": (("project_id", "proj_1"), ("external_ref", "ref 2"))}, [4]),
        ({"fields": (("project_id", ""),)}, []),
        ({"parent": "proj_1", "statuses": ("completed",), "limit": 1}, [6]),
    ],
)
async def test_rows_are_filtered(shards: Shards, query: dict[str, Any], wanted: list[int]) -> None:
    await fill(shards)
    assert await find(shards, **query) == wanted


@pytest.mark.parametrize("text", ["'; DROP TABLE conversations; --", '"', "%", "proj\x00", "$"])
async def test_values_of_a_caller_are_only_compared(shards: Shards, text: str) -> None:
    await fill(shards)
    for query in (
        {"parent": text},
        {"alias": text},
        {"statuses": (text,)},
        {"fields": (("title", text),)},
        {"members": (("participants", text),)},
    ):
        assert await find(shards, **query) == []
    assert len(await find(shards)) == 9


async def test_rows_of_one_actor_are_in_their_own_order(shards: Shards) -> None:
    rows = [
        message(number, turn=f"turn_{number % 2}", role=Role.AGENT if number > 3 else Role.USER)
        for number in (3, 1, 5, 2, 4)
    ]
    await shards.of(CONVERSATION_ID).commit([commit(CONVERSATION_ID, *rows)])

    async def ordinals(**query: Any) -> list[int]:
        asked = Query(table="messages", actor=CONVERSATION_ID, by_ordinal=True, newest_first=False, **query)
        return [value.ordinal for value in await shards.find(asked)]

    assert await ordinals() == [1, 2, 3, 4, 5]
    assert await ordinals(parent="turn_1") == [1, 3, 5]
    assert await ordinals(statuses=("agent",)) == [4, 5]
    assert await ordinals(limit=2) == [1, 2]
    assert await ordinals(after=(2, "msg_002"), limit=2) == [3, 4]


async def test_a_row_is_read_by_id_with_or_without_its_actor(shards: Shards) -> None:
    await shards.of(CONVERSATION_ID).commit([commit(CONVERSATION_ID, message(1))])
    other = conversation_id(1)
    await shards.of(other).commit([commit(other, message(2, owner=other))])
    for number, owner in ((1, CONVERSATION_ID), (2, other)):
        row_id = f"msg_{number:03}"
        assert (await shards.get("messages", row_id)).ordinal == number  # type: ignore[union-attr]
        assert (await shards.get("messages", row_id, owner)).ordinal == number  # type: ignore[union-attr]
    assert await shards.get("messages", "msg_001", other) is None
    assert await shards.get("messages", "msg_9") is None


async def test_rows_without_a_time_or_number_of_their_own_are_found_too(shards: Shards) -> None:
    run_id = "run_01HF7YAT0000000000000000A1"
    execution = NodeExecution(
        id="exec_1", run_id=run_id, ordinal=1, node_id="n", token_id="t", output={"x": "y" * 2000}
    )
    token = Token(id="tok_1", run_id=run_id, node_id="n", status=TokenStatus.COMPLETED)
    made = commit(
        run_id,
        Put("executions", execution.id, execution, parent="n", ordinal=1, created_ms=5),
        Put("tokens", token.id, token, created_ms=5),
    )
    await shards.of(run_id).commit([made])
    assert await shards.find(Query(table="executions")) == [execution]
    assert await shards.find(Query(table="executions", actor=run_id, by_ordinal=True)) == [execution]
    assert await shards.get("tokens", "tok_1") == token


# --- runs and gates ---------------------------------------------------------------------------------


def run_id(number: int) -> str:
    """Return an id. Consecutive numbers belong to the three shards in turn."""
    return f"run_01HF7YAT000000000000000{number:02}{number % 3}"


def a_run(number: int, **fields: Any) -> Put:
    """Create a run: every second in project 2, every third a child of run 0; 2 and 5 wait for a person."""
    scope = Scope(
        project_id=f"proj_{number % 2 + 1}", conversation_id="conv_1" if number == 7 else "", key="k" * 200
    )
    run = Run(
        id=run_id(number),
        workflow_ref=f"team/flow@{number % 2 + 1}",
        workflow_id="def_flow" if number < 6 else "def_other",
        scope=scope,
        parent=Parent(actor_id=run_id(0), operation_id=f"op_{number}") if number in (3, 6) else None,
        status=RunStatus.WAITING if number in (2, 5) else RunStatus.COMPLETED,
        input={"text": "x" * 2000},
        created_ms=number * 10,
        **fields,
    )  # fmt: skip
    return Put(
        "runs", run.id, run, parent=scope.conversation_id, status=run.status.value, created_ms=run.created_ms
    )


def a_gate(number: int, *user_ids: str, status: GateStatus = GateStatus.PENDING) -> Put:
    gate = Gate(
        id=f"gate_{run_id(number)[4:]}",
        run_id=run_id(number),
        operation_id="op_1",
        node_id="ask",
        project_id=f"proj_{number % 2 + 1}",
        workflow_ref="team/flow@1",
        prompt="Well?",
        shown={"text": "x" * 2000},
        shown_hash="0" * 64,
        user_ids=user_ids,
        status=status,
        created_ms=number * 10,
    )
    return Put(
        "gates", gate.id, gate, parent=gate.project_id, alias="ask", status=status.value,
        created_ms=gate.created_ms,
    )  # fmt: skip


async def write(shards: Shards, *puts: Put, **fields: Any) -> None:
    """Write each row for its run."""
    for put in puts:
        actor = getattr(put.value, "run_id", put.id)
        await shards.of(actor).commit([commit(actor, put, **fields)])


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, [7, 6, 5, 4, 3, 2, 1, 0]),
        ({"fields": (("scope.project_id", "proj_2"),)}, [7, 5, 3, 1]),
        ({"fields": (("scope.project_id", ""),)}, []),
        ({"fields": (("workflow_id", "def_flow"),)}, [5, 4, 3, 2, 1, 0]),
        ({"fields": (("workflow_id", "def_flow"), ("workflow_ref", "team/flow@2"))}, [5, 3, 1]),
        ({"fields": (("parent.actor_id", ""),)}, [7, 5, 4, 2, 1, 0]),
        ({"fields": (("parent.actor_id", run_id(0)),)}, [6, 3]),
        ({"fields": (("parent.operation_id", "op_3"),)}, [3]),
        ({"fields": (("parent.operation_id", ""),)}, [7, 5, 4, 2, 1, 0]),
        ({"parent": "conv_1"}, [7]),
        ({"statuses": ("waiting", "running")}, [5, 2]),
        ({"statuses": ("waiting",), "fields": (("scope.project_id", "proj_2"),)}, [5]),
        ({"statuses": ("waiting", "completed"), "limit": 3}, [7, 6, 5]),
        ({"start_ms": 30}, [7, 6, 5, 4, 3]),
        ({"end_ms": 30}, [2, 1, 0]),
        ({"start_ms": 30, "end_ms": 50, "newest_first": False}, [3, 4]),
        ({"fields": (("workflow_id", "def_flow"),), "after": (30, run_id(3))}, [2, 1, 0]),
        ({"colocated_with": run_id(4)}, [7, 4, 1]),
        ({"colocated_with": "run_Z"}, [7, 4, 1]),  # Shard 31 is in the second of three files.
        ({"colocated_with": "run_!"}, []),
    ],
)
async def test_runs_are_filtered(shards: Shards, query: dict[str, Any], wanted: list[int]) -> None:
    await write(shards, *map(a_run, range(8)))
    found = numbers(await shards.find(Query(table="runs", **query)))
    if "colocated_with" in query and not isinstance(shards, SqliteJournals):
        wanted = [7, 6, 5, 4, 3, 2, 1, 0]  # All share one shard.
    assert found == wanted


async def test_a_run_keeps_its_position_after_an_update(shards: Shards) -> None:
    await write(shards, a_run(2))
    (run,) = await shards.find(Query(table="runs"))
    await write(shards, Put("runs", run.id, run, status="cancelled", created_ms=run.created_ms))
    asked = Query(table="runs", statuses=("cancelled",), fields=(("scope.project_id", "proj_1"),))
    assert await shards.find(asked) == [run]
    assert await shards.find(Query(table="runs", statuses=("waiting",))) == []


async def test_gates_are_found_by_the_users_that_may_resolve_them(shards: Shards) -> None:
    await write(
        shards, a_gate(1, "ann", "bob"), a_gate(2), a_gate(3, "bob"), a_gate(4, status=GateStatus.APPROVED)
    )

    async def found(**query: Any) -> list[int]:
        asked = Query(table="gates", newest_first=False, **query)
        return numbers(await shards.find(asked))

    assert await found() == [1, 2, 3, 4]
    assert await found(statuses=("pending",)) == [1, 2, 3]
    assert await found(allowed=(("user_ids", "ann"),)) == [1, 2, 4]
    assert await found(allowed=(("user_ids", "bob"),), statuses=("pending",), parent="proj_2") == [1, 3]
    assert await found(allowed=(("user_ids", "' OR 1=1 --"),)) == [2, 4]
    gate_id = f"gate_{run_id(3)[4:]}"
    assert await found(id=gate_id, colocated_with=gate_id) == [3]


async def test_heads_exist_for_existing_actors_only(shards: Shards) -> None:
    one, other, absent = run_id(1), run_id(2), run_id(3)
    token = Token(id="t", run_id=one, node_id="n", status=TokenStatus.COMPLETED)
    events = tuple(Event(n, 100 * n, one, Emit("token.moved", token)) for n in (1, 2))
    execution = NodeExecution(id="op_1", run_id=one, ordinal=4, node_id="n", token_id="t")
    made = commit(one, Put("executions", "op_1", execution, ordinal=4), events=events)
    await shards.of(one).commit([made])
    await write(shards, a_run(2))
    assert await shards.heads([one, other, absent, "run_Z"]) == {one: Head(2, 200, 4), other: Head(0, 0)}
    assert await shards.heads([]) == {}


async def test_a_snapshot_is_of_one_actor(shards: Shards) -> None:
    await write(shards, a_run(1), a_gate(1), a_gate(2), a_gate(4))
    queries = [Query(table="runs", id=run_id(1)), Query(table="gates"), Query(table="tokens")]
    found = await shards.snapshot(run_id(1), queries)
    assert found is not None
    assert [[value.created_ms for value in rows] for rows in found.rows] == [[10], [10], []]
    assert await shards.snapshot(run_id(5), queries) is None
    assert await shards.snapshot("run_Z", queries) is None


@pytest.fixture(scope="module")
def empty_shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a shard with empty tables."""
    path = tmp_path_factory.mktemp("shard") / "00.db"
    connect(path, MIGRATIONS).close()
    return path


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({"table": "runs"}, "runs_by_time"),
        ({"table": "runs", "fields": (("parent.actor_id", ""),)}, "runs_root"),
        (
            {"table": "runs", "fields": (("scope.project_id", "proj_1"), ("parent.actor_id", ""))},
            "runs_root_by_project",
        ),
        ({"table": "runs", "fields": (("parent.actor_id", ""),), "statuses": ("waiting",)}, "runs_open"),
        ({"table": "runs", "fields": (("parent.actor_id", "run_1"),)}, "runs_by_parent"),
        (
            {"table": "runs", "fields": (("workflow_id", "def_1"), ("parent.actor_id", ""))},
            "runs_by_workflow",
        ),
        ({"table": "runs", "fields": (("scope.project_id", "proj_1"),)}, "runs_by_project"),
        ({"table": "runs", "fields": (("scope.project_id", "p"),), "statuses": ("running",)}, "runs_open"),
        ({"table": "runs", "parent": "conv_1"}, "runs_by_conversation"),
        ({"table": "gates", "statuses": ("pending",), "parent": "proj_1"}, "gates_open"),
        ({"table": "gates", "statuses": ("approved",)}, "gates_by_time"),
        ({"table": "gates", "id": "gate_1"}, "gates_by_id"),
        ({"table": "conversations", "alias": "ref"}, "conversations_by_reference"),
        ({"table": "turns", "actor": "c", "by_ordinal": True, "statuses": ("active",)}, "turns_by_status"),
        ({"table": "turns", "actor": "c", "by_ordinal": True, "statuses": ("failed",)}, "turns_by_order"),
        ({"table": "messages", "actor": "c", "parent": "t", "by_ordinal": True}, "messages_by_turn"),
        ({"table": "moves", "actor": "c", "parent": "t", "by_ordinal": True}, "moves_by_turn"),
        ({"table": "messages", "by_id": True}, "messages_by_id"),
        (
            {"table": "messages", "by_id": True, "projects": frozenset({"p"}), "text": TextQuery(("tea",))},
            "messages_by_id",
        ),
        (
            {"table": "messages", "actor": "c", "by_ordinal": True, "text": TextQuery(("tea",))},
            "messages_by_order",
        ),
    ],
)
@pytest.mark.parametrize("after", [None, (5, "x")])
def test_few_of_many_rows_are_found_by_an_index(
    query: dict[str, Any], index: str, after: Any, empty_shard: Path
) -> None:
    sql, values = rows_sql(selection_of(Query(**query, after=after), ROW_TYPES[query["table"]])[0])
    with closing(sqlite3.connect(empty_shard)) as connection:
        (first, *_) = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    assert f"USING INDEX {index}" in first[3]


# --- events -----------------------------------------------------------------------------------------


def places(found: list[Event]) -> list[tuple[int, int]]:
    """Return the conversation number and the sequence of each event."""
    return [(int(event.actor_id[-3:-1]), event.sequence) for event in found]


async def events(shards: Shards, **query: Any) -> list[tuple[int, int]]:
    return places(await shards.events(CONVERSATION.prefix, EventQuery(**query)))


async def test_events_of_one_actor_come_oldest_first(shards: Shards) -> None:
    await fill(shards)
    owner = conversation_id(4)
    assert await events(shards, actor=owner) == [(4, 1), (4, 2), (4, 3)]
    assert await events(shards, actor=owner, after_sequence=1) == [(4, 2), (4, 3)]
    assert await events(shards, actor=owner, limit=2) == [(4, 1), (4, 2)]
    assert await events(shards, actor=owner, after=(0, "", 2)) == [(4, 3)]
    assert await events(shards, actor=conversation_id(10)) == []


async def test_events_of_all_come_newest_first_in_pages_that_fit_together(shards: Shards) -> None:
    await fill(shards)
    wanted = [(number, sequence) for sequence in (3, 2, 1) for number in range(8, -1, -1)]
    assert await events(shards, limit=99) == wanted
    seen: list[tuple[int, int]] = []
    after = None
    while True:
        page = await shards.events(CONVERSATION.prefix, EventQuery(limit=4, after=after))
        if not page:
            break
        seen += places(page)
        after = (page[-1].at_ms, page[-1].actor_id, page[-1].sequence)
    assert seen == wanted


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"names": ("participant.left",), "limit": 2}, [(8, 2), (7, 2)]),
        ({"names": ("participant.left", "participant.joined"), "limit": 1}, [(8, 3)]),
        ({"names": ("nothing",)}, []),
        ({"turn_id": "turn_1", "limit": 2}, [(8, 1), (7, 1)]),
        ({"project_id": "proj_2", "turn_id": "turn_1"}, [(7, 1), (5, 1), (3, 1), (1, 1)]),
        ({"project_id": "proj_3"}, []),
        ({"start_ms": 3007}, [(8, 3), (7, 3)]),
        ({"end_ms": 1001}, [(0, 1)]),
        ({"start_ms": 2003, "end_ms": 2005}, [(4, 2), (3, 2)]),
        ({"actor": conversation_id(4), "names": ("participant.joined",), "after_sequence": 1}, [(4, 3)]),
        ({"actor": conversation_id(4), "turn_id": "turn_2"}, [(4, 2)]),
        ({"actor": conversation_id(4), "start_ms": 2000, "end_ms": 3000}, [(4, 2)]),
    ],
)
async def test_events_are_filtered(shards: Shards, query: dict[str, Any], wanted: list[Any]) -> None:
    await fill(shards)
    assert await events(shards, **query) == wanted


async def test_events_of_runs_and_of_conversations_are_kept_apart(shards: Shards) -> None:
    await fill(shards)
    run_id = "run_01HF7YAT0000000000000000A1"
    token = Token(id="tok_1", run_id=run_id, node_id="n" * 300, status=TokenStatus.COMPLETED)
    moved = Event(1, 9000, run_id, Emit("token.moved", token))
    await shards.of(run_id).commit([commit(run_id, events=(moved,))])
    assert await shards.events(RUN.prefix, EventQuery()) == [moved]
    assert await shards.events(RUN.prefix, EventQuery(actor=run_id)) == [moved]
    assert len(await events(shards, limit=99)) == 27


async def test_the_head_is_the_last_event_written(shards: Shards) -> None:
    await fill(shards)
    assert await shards.head(conversation_id(4)) == 3
    assert await shards.head(conversation_id(10)) is None


async def test_unfinished_actors_of_every_shard_are_found(shards: Shards) -> None:
    for number in range(6):
        owner = conversation_id(number)
        await shards.of(owner).commit([commit(owner, operation(1, live=number != 2))])
    assert sorted(await unfinished(*shards.files)) == [conversation_id(number) for number in (0, 1, 3, 4, 5)]
