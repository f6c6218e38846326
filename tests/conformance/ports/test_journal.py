"""Journals: one suite for the port `wonder_server.ports.journal.Journal`."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import (
    CONVERSATION_ID,
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
from tests.core.conversation.conversation_kit import ASSEMBLED, Driven, agent, call, text_answer, workflow
from tests.replacing import replace
from tests.sqlite_journals import SqliteJournal
from wonder_server.actors.runs.replay import replay
from wonder_server.core import idempotency as requests
from wonder_server.core.actor.changes import Delete, Emit, Erase, Put
from wonder_server.core.actor.commands import Parent, Scope
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.decisions import AppendMessage, DispatchModel
from wonder_server.core.conversation.model.state import RECENT_TURNS
from wonder_server.core.conversation.model.values import (
    Caller,
    Invocation,
    Message,
    Move,
    OperationKind,
    Participant,
    Request,
    Role,
    Turn,
    TurnStatus,
    TurnWork,
)
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.model import inputs as run_inputs
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.frozen import replace as changed
from wonder_server.core.idempotency import CompletedRequest, IdempotencyKey
from wonder_server.ports import journal as port
from wonder_server.ports.journal import DELETIONS, Commit, Entry, Event, Journal


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def shards(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shards]:
    async with opened(request.param, tmp_path) as store:
        yield store


@pytest.fixture
def journal(shards: Shards) -> Journal:
    return shards.of(CONVERSATION_ID)


async def loaded(journal: Journal, actor: str = CONVERSATION_ID) -> port.Loaded:
    found = await journal.load(actor)
    assert found is not None
    return found


def turn(number: int, status: TurnStatus = TurnStatus.COMPLETED, **fields: Any) -> Put:
    value = Turn(
        id=f"turn_{number:03}",
        conversation_id=CONVERSATION_ID,
        ordinal=number,
        caller=Caller(user_id="ann"),
        agent_id="agt_1",
        agent_name="helper",
        persona="",
        input="hello",
        status=status,
        **fields,
    )
    return Put("turns", value.id, value, parent=CONVERSATION_ID, ordinal=number, status=status.value)


async def test_an_actor_that_was_never_written_is_none(journal: Journal) -> None:
    assert await journal.load(CONVERSATION_ID) is None
    assert await journal.events(CONVERSATION_ID, 0, 10) == []
    assert await journal.entries(CONVERSATION_ID, 0, 10) == []
    assert await unfinished(journal) == []


async def test_an_actor_is_loaded_with_its_heads(journal: Journal) -> None:
    kept = conversation(0, title="é🙂\x00\u2028", metadata={"a": [1, None, {"b": 2.5}], "": True})
    entry = Entry(1, 7, inputs.Create(conversation=kept), ())
    await journal.commit(
        [commit(CONVERSATION_ID, put_conversation(kept), events=(emitted(1), emitted(2)), entries=(entry,))]
    )
    found = await loaded(journal)
    assert found.rows["conversations"] == [kept]
    assert set(found.rows) == set(CONVERSATION.row_types)
    assert (found.entry_head, found.event_head) == (1, 2)


async def test_the_last_change_of_a_row_counts(journal: Journal) -> None:
    first, second = conversation(0, title="first"), conversation(0, title="second")
    await journal.commit([commit(CONVERSATION_ID, put_conversation(first), put_conversation(second))])
    assert (await loaded(journal)).rows["conversations"] == [second]
    await journal.commit([commit(CONVERSATION_ID, put_conversation(first))])
    assert (await loaded(journal)).rows["conversations"] == [first]
    await journal.commit([commit(CONVERSATION_ID, operation(1), Delete("operations", "op_1"), operation(2))])
    await journal.commit(
        [commit(CONVERSATION_ID, Delete("operations", "op_2"), Delete("operations", "op_9"))]
    )
    assert (await loaded(journal)).rows["operations"] == []
    await journal.commit([commit(CONVERSATION_ID, Delete("operations", "op_3"), operation(3))])
    assert [row.id for row in (await loaded(journal)).rows["operations"]] == ["op_3"]


async def test_only_live_rows_make_up_the_working_set(journal: Journal) -> None:
    await journal.commit([commit(CONVERSATION_ID, operation(2), operation(1), operation(3, live=False))])
    assert [row.id for row in (await loaded(journal)).rows["operations"]] == ["op_1", "op_2"]
    assert await unfinished(journal) == [CONVERSATION_ID]
    await journal.commit([commit(CONVERSATION_ID, operation(1, live=False), operation(2, live=False))])
    assert await unfinished(journal) == []


async def test_the_newest_turns_and_those_with_work_are_loaded_with_their_rows(
    journal: Journal,
) -> None:
    work = TurnWork(turn_id="turn_002", agent=agent())
    move = Move(id="move_1", conversation_id=CONVERSATION_ID, turn_id="turn_002", sequence=1, message_id="m")
    other = replace(move, id="move_2", turn_id="turn_060")
    await journal.commit(
        [
            commit(
                CONVERSATION_ID,
                *(turn(number) for number in range(1, RECENT_TURNS + 11)),
                Put("works", work.turn_id, work, live=True),
                *(Put("moves", each.id, each, parent=each.turn_id, ordinal=1) for each in (move, other)),
                *(message(number, turn=f"turn_{number:03}") for number in (1, 2, 3, 12, 60)),
            )
        ]
    )
    rows = (await loaded(journal)).rows
    numbers = [2, *range(11, RECENT_TURNS + 11)]
    assert [row.id for row in rows["turns"]] == [f"turn_{number:03}" for number in numbers]
    assert [row.id for row in rows["messages"]] == ["msg_002", "msg_012", "msg_060"]
    assert rows["moves"] == [move]
    assert rows["works"] == [work]


async def test_values_with_dollar_signs_are_loaded_unchanged(journal: Journal) -> None:
    strange = {"$": "0123", "$ref": "#/a", "$$": {"$": {"$": 1}}, "a": {"$": "x" * 3000}}
    request = Request(turn_id="turn_1", body={"messages": [strange, strange]})
    raw = text_answer("", replace(call("find"), arguments=strange))
    move = Move(
        id="move_1",
        conversation_id=CONVERSATION_ID,
        turn_id="turn_1",
        sequence=1,
        message_id="m",
        raw=strange,
        invocations=(Invocation(call=raw.tool_calls[0]),),
    )
    fault = Fault(reason=Reason.TIMEOUT, message="m", metadata={"$": "x"})
    await journal.commit(
        [
            commit(
                CONVERSATION_ID,
                put_conversation(conversation(0, metadata=strange)),
                turn(1, TurnStatus.FAILED, metadata=strange, fault=fault),
                Put("works", "turn_001", TurnWork(turn_id="turn_001", agent=agent()), live=True),
                Put("moves", "move_1", move, parent="turn_001", ordinal=1),
                Put("requests", "turn_1", request, live=True),
                operation(1, given=strange),
            )
        ]
    )
    rows = (await loaded(journal)).rows
    assert rows["conversations"][0].metadata == strange
    assert rows["turns"][0].metadata == strange
    assert rows["turns"][0].fault == fault
    assert rows["moves"] == [move]
    assert rows["requests"] == [request]
    assert rows["operations"][0].input == strange


async def test_events_come_in_pages_in_order(journal: Journal) -> None:
    await journal.commit([commit(CONVERSATION_ID, events=tuple(emitted(number) for number in range(1, 8)))])

    async def page(after: int, limit: int) -> list[int]:
        return [event.sequence for event in await journal.events(CONVERSATION_ID, after, limit)]

    assert await page(0, 3) == [1, 2, 3]
    assert await page(3, 100) == [4, 5, 6, 7]
    assert await page(7, 100) == []
    assert await journal.events(conversation_id(3), 0, 10) == []
    (event,) = await journal.events(CONVERSATION_ID, 2, 1)
    assert event == emitted(3)


async def test_large_events_are_read_a_few_at_a_time(journal: Journal) -> None:
    """So they are if they are equal: the store has their text once, and a client gets it with each."""
    named = Emit("participant.joined", Participant(type="user", id="ann", name="x" * 100_000))
    large = [Event(number, number * 100, CONVERSATION_ID, named) for number in range(1, 11)]
    await journal.commit([commit(CONVERSATION_ID, events=tuple(large))])
    seen: list[Event] = []
    while page := await journal.events(CONVERSATION_ID, len(seen), 200):
        # A store in memory may return all at once.
        assert len(page) <= 3 or not isinstance(journal, SqliteJournal)
        seen += page
    assert seen == large


async def test_entries_are_read_unchanged(journal: Journal) -> None:
    driven = Driven()
    events: list[inputs.Input] = [
        inputs.Succeeded(operation_id=driven.pending(OperationKind.ASSEMBLY).id, output=ASSEMBLED)
    ]
    driven.step(events[0])
    result = text_answer("", call("find"), call("once", "c2", {"q": "$", "$": [1.5, None]}))
    events.append(inputs.ModelAnswered(operation_id=driven.pending(OperationKind.MODEL).id, result=result))
    entries = [
        Entry(1, 5, events[0], driven.step(events[0])),
        Entry(2, 6, events[1], driven.step(events[1])),
        Entry(3, 7, inputs.TimerFired(operation_id="op_0"), ()),
    ]
    await journal.commit([commit(CONVERSATION_ID, entries=tuple(entries))])
    assert await journal.entries(CONVERSATION_ID, 0, 10) == entries
    assert await journal.entries(CONVERSATION_ID, 1, 1) == entries[1:2]


async def test_a_journal_replays_to_the_same_decisions(journal: Journal) -> None:
    class Recorded(Driven):
        entries: list[Entry] = []  # noqa: RUF012

        def step(self, event: inputs.Input, *, after_ms: int = 1) -> Any:
            decisions = super().step(event, after_ms=after_ms)
            self.entries = [*self.entries, Entry(len(self.entries) + 1, self.now, event, decisions)]
            return decisions

    driven = Recorded()
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(
        text_answer("thinking", call("find"), call("mapped", "c2", {"q": "é"}), call("nothing", "c3"))
    )
    for each in list(driven.state.operations):
        driven.step(inputs.Succeeded(operation_id=each, output={"$": [1, {"a": None}]}))
    driven.answer(text_answer("done"))
    driven.succeed(OperationKind.EXTRACTION, {"memory_operations": [{"content": "x"}]})
    driven.succeed(OperationKind.MEMORY, {})
    await journal.commit([commit(CONVERSATION_ID, entries=tuple(driven.entries))])
    verdict = replay(CONVERSATION, await journal.entries(CONVERSATION_ID, 0, 100))
    assert verdict.difference is None
    assert verdict.steps == len(driven.entries)


def run_id(number: int) -> str:
    return f"run_01HF7YAT000000000000000{number:02}{number % 3}"


def run_commit(run_id: str, *, root: str) -> tuple[Commit, Any]:
    """Return the commit of a run that has started, as the loop writes it."""
    state = RUN.new_state()
    start = run_inputs.Start(
        run_id=run_id,
        workflow=workflow("assembly"),
        input={"text": "y" * 2000, "$": {"$": "x"}},
        scope=Scope(conversation_id=CONVERSATION_ID, agent_id="agt_1"),
        parent=Parent(actor_id=CONVERSATION_ID, operation_id="op_1"),
        volatile=True,
    )
    decisions = RUN.plan(state, start, 5)
    made = commit(run_id, entries=(Entry(1, 5, start, decisions),), root=root)
    for decision in decisions:
        RUN.apply(state, decision)
        for change in RUN.record(state, decision):
            if isinstance(change, Emit):
                made.events.append(Event(len(made.events) + 1, 5, run_id, change))
            else:
                made.changes.append(change)
    made.event_head = len(made.events)
    return made, state


async def test_a_run_and_its_conversation_are_written_together(journal: Journal) -> None:
    run_id = "run_01HF7YAT0000000000000000A0"
    made, state = run_commit(run_id, root=CONVERSATION_ID)
    work = TurnWork(turn_id="turn_1", agent=agent())
    await journal.commit(
        [made, commit(CONVERSATION_ID, Put("works", "turn_1", work, live=True), events=(emitted(1),))]
    )
    found = await journal.load(run_id)
    assert found is not None
    assert RUN.restore(found.rows) == state
    assert (found.entry_head, found.event_head) == (1, len(made.events))
    assert await journal.entries(run_id, 0, 10) == made.entries
    assert await journal.events(run_id, 0, 10) == made.events
    assert (await loaded(journal)).rows["works"] == [work]
    assert await unfinished(journal) == [run_id]


async def test_one_definition_is_shared_by_actors_of_different_roots(journal: Journal) -> None:
    """Each root must be readable and removable on its own."""
    first, second = "run_01HF7YAT0000000000000000A0", "run_01HF7YAT0000000000000000B0"
    shared = workflow("assembly")
    for run_id in (first, second):
        made, _ = run_commit(run_id, root=run_id)
        began = changed(made.entries[0].input, workflow=shared, input={"big": "z" * 5000})
        made.entries[0] = changed(made.entries[0], input=began)
        await journal.commit([made])
    for run_id in (first, second):
        (entry,) = await journal.entries(run_id, 0, 10)
        assert entry.input.workflow == shared


async def test_a_commit_that_contradicts_the_record_writes_nothing(journal: Journal) -> None:
    entry = Entry(1, 5, inputs.TimerFired(operation_id="op_0"), ())
    await journal.commit([commit(CONVERSATION_ID, operation(1), entries=(entry,), events=(emitted(1),))])
    before = await loaded(journal)
    wrong = (ValueError, sqlite3.IntegrityError)
    other = commit(
        conversation_id(3), put_conversation(conversation(3)), events=(emitted(1, owner=conversation_id(3)),)
    )
    for contradiction in (
        commit(CONVERSATION_ID, Delete("operations", "op_1"), entries=(entry,)),
        commit(CONVERSATION_ID, Delete("operations", "op_1"), events=(emitted(1),)),
    ):
        with pytest.raises(wrong):
            await journal.commit([other, contradiction])
    assert await loaded(journal) == before
    assert await journal.load(conversation_id(3)) is None


async def test_completed_requests_are_found_by_scope_and_id(journal: Journal) -> None:
    made = commit(CONVERSATION_ID, put_conversation(conversation(0)))
    asked = IdempotencyKey("", "r1", "print", CONVERSATION_ID)
    made.requests.append((asked, {"turn_id": "turn_1"}))
    made.requests.append((IdempotencyKey("", "r1", "other", "conversations"), {}))
    await journal.commit([made])
    assert await journal.completed_request(CONVERSATION_ID, "r1") == CompletedRequest(
        "print", {"turn_id": "turn_1"}
    )
    assert await journal.completed_request("conversations", "r1") == CompletedRequest("other", {})
    assert await journal.completed_request(CONVERSATION_ID, "r2") is None
    assert await journal.completed_request("elsewhere", "r1") is None
    again = commit(CONVERSATION_ID)
    again.requests.append((asked, {}))
    with pytest.raises((ValueError, sqlite3.IntegrityError)):
        await journal.commit([again])


def with_reference(number: int, reference: str, *, project: str = "proj_1") -> Commit:
    value = conversation(number, project=project, external_ref=reference)
    return commit(value.id, put_conversation(value))


async def test_an_external_reference_belongs_to_one_conversation_of_a_project(journal: Journal) -> None:
    await journal.commit([with_reference(0, "crm-7")])
    for taken in ([with_reference(3, "crm-7")], [with_reference(6, "crm-8"), with_reference(9, "crm-8")]):
        with pytest.raises(WonderError) as refused:
            await journal.commit(taken)
        assert refused.value.fault.reason is Reason.ALREADY_EXISTS
    assert await journal.load(conversation_id(3)) is None
    await journal.commit([with_reference(3, "crm-7", project="proj_2")])
    # The holder keeps it, gives it up, and may not take it back from the next holder.
    await journal.commit([with_reference(0, "crm-7")])
    await journal.commit([with_reference(0, "")])
    await journal.commit([with_reference(6, "crm-7")])
    with pytest.raises(WonderError) as refused:
        await journal.commit([with_reference(0, "crm-7")])
    assert refused.value.fault.metadata["id"] == conversation_id(6)


async def test_members_and_creation_answers_are_found_in_every_shard(shards: Shards) -> None:
    owner, asked = conversation_id(0), requests.IdempotencyKey("", "r-1", "print", "runs")
    await shards.of(owner).commit([commit(owner)])
    for number, root in ((1, owner), (2, owner), (3, "")):
        await shards.of(run_id(number)).commit([commit(run_id(number), root=root)])
    answered = commit(run_id(2), root=owner)
    answered.requests.append((asked, {"run_id": run_id(2)}))
    await shards.of(run_id(2)).commit([answered])
    assert sorted(await shards.members(owner)) == [owner, run_id(1), run_id(2)]
    assert await shards.members(conversation_id(5)) == []
    assert await shards.completed_request("runs", "r-1") == CompletedRequest("print", {"run_id": run_id(2)})
    assert await shards.completed_request("runs", "r-2") is None


async def written_run(journal: Journal) -> str:
    """Write a conversation and one of its runs, each with the request that created it and one to it."""
    made, _ = run_commit(run_id(0), root=CONVERSATION_ID)
    begun = commit(CONVERSATION_ID, put_conversation(conversation(0)), events=(emitted(1),))
    for one, scope in ((begun, "conversations"), (made, "runs")):
        key = IdempotencyKey("", "r", f"print of {scope}", scope)
        own = IdempotencyKey("", "r", "own print", one.actor_id)
        one.requests += [(key, {"id": one.actor_id}), (own, {})]
    await journal.commit([begun, made])
    return made.actor_id


async def test_an_archived_conversation_keeps_the_requests_that_created_it_and_its_runs(
    journal: Journal,
) -> None:
    run = await written_run(journal)
    erased = commit(CONVERSATION_ID, Erase(children=(run,)), put_conversation(conversation(0)))
    erased.event_head = 1
    await journal.commit([erased])
    for scope, actor in (("conversations", CONVERSATION_ID), ("runs", run)):
        kept = CompletedRequest(f"print of {scope}", {"id": actor})
        assert await journal.completed_request(scope, "r") == kept
        assert await journal.completed_request(actor, "r") is None
    # The run is archived, so only its conversation can remove its request.
    deleted = commit(CONVERSATION_ID, Erase(whole=True))
    await journal.commit([deleted])
    assert await journal.completed_request("conversations", "r") is not None
    assert await journal.completed_request("runs", "r") is None


async def test_a_deleted_conversation_keeps_only_the_requests_of_its_creation_and_its_deletion(
    journal: Journal,
) -> None:
    run = await written_run(journal)
    deleted = commit(CONVERSATION_ID, Erase(children=(run,), whole=True))
    deleted.requests.append((IdempotencyKey("", "r", "print", DELETIONS), {}))
    await journal.commit([deleted])
    for scope in ("runs", CONVERSATION_ID, run):
        assert await journal.completed_request(scope, "r") is None
    kept = CompletedRequest("print of conversations", {"id": CONVERSATION_ID})
    assert await journal.completed_request("conversations", "r") == kept
    assert await journal.completed_request(DELETIONS, "r") == CompletedRequest("print", {})


async def test_many_rows_of_many_actors_go_in_one_commit(shards: Shards, journal: Journal) -> None:
    owners = [conversation_id(number) for number in range(0, 60, 3)]
    commits = []
    for number, owner in zip(range(0, 60, 3), owners, strict=True):
        rows = [message(each, owner=owner) for each in range(1, 12)]
        commits.append(
            commit(
                owner,
                put_conversation(conversation(number)),
                *rows,
                events=tuple(emitted(each, owner=owner) for each in range(1, 6)),
            )
        )
    before = shards.journal.commits if not hasattr(shards, "commits") else shards.commits
    await journal.commit(commits)
    after = shards.journal.commits if not hasattr(shards, "commits") else shards.commits
    assert after == before + 1
    for owner in owners:
        found = await loaded(journal, owner)
        assert found.event_head == 5
        shown = await journal.events(owner, 0, 99)
        assert [event.sequence for event in shown] == [1, 2, 3, 4, 5]


async def test_a_reopened_store_has_what_was_written(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as store:
        driven = Driven()
        decisions = driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
        (model,) = (each for each in decisions if isinstance(each, DispatchModel))
        entry = Entry(1, 5, inputs.Succeeded(operation_id="op_1", output=ASSEMBLED), decisions)
        put = Put("requests", model.request.turn_id, model.request, live=True)
        await store.of(CONVERSATION_ID).commit([commit(CONVERSATION_ID, put, entries=(entry,))])
    async with opened("sqlite", tmp_path, count=7) as store:
        assert store.file_count == 3, "the number of shards is fixed when the folder is created"
        assert (await loaded(store.of(CONVERSATION_ID))).rows["requests"] == [model.request]
        assert await store.of(CONVERSATION_ID).entries(CONVERSATION_ID, 0, 9) == [entry]


async def test_a_message_decided_is_the_message_stored(journal: Journal) -> None:
    value = Message(
        id="msg_1",
        conversation_id=CONVERSATION_ID,
        turn_id="turn_1",
        ordinal=1,
        role=Role.AGENT,
        author="agt_1",
        content="$" * 5000,
        partial=True,
    )
    entry = Entry(1, 5, inputs.CancelTurn(turn_id="turn_1"), (AppendMessage(message=value),))
    await journal.commit([commit(CONVERSATION_ID, entries=(entry,))])
    assert await journal.entries(CONVERSATION_ID, 0, 9) == [entry]
