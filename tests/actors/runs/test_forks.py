"""Forks: a new run that goes on from a point of another's record."""

from __future__ import annotations

import pytest

from tests.actors.kit import origin
from tests.actors.run_kit import RunStage, pinned
from tests.services.catalog.library_kit import reason, refusal
from wonder_server.actors.runs import forks
from wonder_server.actors.runs.forks import ForkRequest
from wonder_server.actors.runs.lookup import RunView
from wonder_server.core.coordinator.model.inputs import ReceiveSignal, StartFork
from wonder_server.core.coordinator.model.values import ExecutionStatus, RunStatus
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.records import Query

UNKNOWN_RUN_ID = "run_01HF7YAT0000000000000000A1"


async def fork(stage: RunStage, run: RunView, request_id: str = "", **fields: object) -> RunView:
    return await stage.runs.forks.fork(ForkRequest(run_id=run.run.id, **fields), origin(request_id))


async def run_until(stage: RunStage, workflow: str, *nodes: str, **fields: object) -> RunView:
    """Start a run and end its nodes in this order, each with its position as the result."""
    view = await stage.start(workflow, **fields)
    for number, node in enumerate(nodes):
        await stage.finish(node, {"n": number})
    return await stage.runs.lookup.with_details(view.run.id)


async def sequence_of(stage: RunStage, run: RunView, kind: str, node_id: str) -> int:
    """Return the sequence of the node's first event of this kind."""
    for event in await stage.shards.of(run.run.id).events(run.run.id, 0, 500):
        if event.emit.kind == kind and getattr(event.emit.value, "node_id", "") == node_id:
            return event.sequence
    raise AssertionError(kind)


async def snapshot(stage: RunStage, run: RunView) -> tuple[JsonDict, list[tuple[int, str, str]]]:
    """Return the run's state, and its node executions: ordinal, node, status."""
    whole = await stage.runs.lookup.with_details(run.run.id)
    assert whole.details is not None
    executions = [(e.ordinal, e.node_id, e.status.value) for e in whole.details.executions]
    return whole.details.state, executions[::-1]


# --- the point --------------------------------------------------------------------------------------


async def test_a_fork_before_a_node_runs_that_node_again_and_nothing_before_it(stage: RunStage) -> None:
    first = await run_until(stage, "team/chain@1", "a", "b", "c", input={"n": 1}, metadata={"for": "ann"})
    assert first.run.status is RunStatus.COMPLETED
    forked = await fork(stage, first, before_execution=2)
    assert forked.run.id != first.run.id and forked.run.forked_from == first.run.id
    assert (forked.run.input, forked.run.metadata) == ({"n": 1}, {"for": "ann"})
    state, executions = await snapshot(stage, forked)
    assert state == {"a": {"n": 0}}
    assert [each[1:] for each in executions] == [("a", "completed"), ("b", "running")]
    await stage.finish("b", {"n": 10}, run_id=forked.run.id)
    await stage.finish("c", {"n": 20}, run_id=forked.run.id)
    assert (await stage.runs.lookup.run(forked.run.id)).status is RunStatus.COMPLETED
    assert (await snapshot(stage, forked))[0] == {"a": {"n": 0}, "b": {"n": 10}, "c": {"n": 20}}
    assert (await snapshot(stage, first))[0] == {"a": {"n": 0}, "b": {"n": 1}, "c": {"n": 2}}
    assert (await stage.runs.replay(forked.run.id)).difference is None


async def test_a_fork_after_an_event_starts_at_the_end_of_its_entry(stage: RunStage) -> None:
    first = await run_until(stage, "team/chain@1", "a", "b", "c")
    after = await sequence_of(stage, first, "node_completed", "b")
    forked = await fork(stage, first, after_sequence=after)
    assert [e[1:] for e in (await snapshot(stage, forked))[1]] == [
        ("a", "completed"),
        ("b", "completed"),
        ("c", "running"),
    ]
    # All events of one entry name the same point.
    same = await fork(stage, first, after_sequence=await sequence_of(stage, first, "node_started", "c"))
    assert (await snapshot(stage, same))[0] == (await snapshot(stage, forked))[0]


async def test_a_fork_may_start_at_the_first_event(stage: RunStage) -> None:
    first = await run_until(stage, "team/chain@1", "a")
    forked = await fork(stage, first, after_sequence=1)
    assert await snapshot(stage, forked) == ({}, [(1, "a", "running")])


async def test_branches_in_progress_run_again_and_join(stage: RunStage) -> None:
    first = await run_until(stage, "team/fan", "a", "b")
    forked = await fork(stage, first, after_sequence=first.head.sequence)
    _, executions = await snapshot(stage, forked)
    assert [each[1:] for each in executions] == [("a", "completed"), ("b", "completed"), ("c", "running")]
    await stage.finish("c", run_id=forked.run.id)
    await stage.finish("d", run_id=forked.run.id)
    assert (await stage.runs.lookup.run(forked.run.id)).status is RunStatus.COMPLETED
    both = await fork(stage, first, before_execution=2)
    assert [each[1:] for each in (await snapshot(stage, both))[1]] == [
        ("a", "completed"),
        ("b", "running"),
        ("c", "running"),
    ]


async def test_a_fork_opens_pending_gates_again_and_keeps_signals(stage: RunStage) -> None:
    first = await run_until(stage, "team/gate", "a")
    await stage.runs.signal(first.run.id, ReceiveSignal(name="hint", payload=1), origin())
    head = (await stage.runs.lookup.snapshot(first.run.id)).head
    forked = await fork(stage, first, after_sequence=head.sequence)
    (old,) = await stage.runs.gates.find(Query(table="gates", actor=first.run.id))
    (new,) = await stage.runs.gates.find(Query(table="gates", actor=forked.run.id))
    assert new.id != old.id and new.shown_hash == old.shown_hash
    (signal,) = await stage.shards.find(Query(table="signals", actor=forked.run.id))
    assert (signal.name, signal.payload) == ("hint", 1)


async def test_queued_signals_are_received_in_their_order(stage: RunStage) -> None:
    first = await stage.start("team/wait")
    for payload in (1, 2, 3):
        await stage.runs.signal(first.run.id, ReceiveSignal(name="go", payload=payload), origin())
    head = (await stage.runs.lookup.snapshot(first.run.id)).head
    forked = await fork(stage, first, after_sequence=head.sequence)
    await stage.finish("a", run_id=forked.run.id)
    state, _ = await snapshot(stage, forked)
    assert state["hold"]["payload"] == 1


async def test_a_fork_can_be_forked(stage: RunStage) -> None:
    first = await run_until(stage, "team/chain@1", "a", "b")
    second = await fork(stage, first, before_execution=2)
    await stage.finish("b", {"n": 5}, run_id=second.run.id)
    _, executions = await snapshot(stage, second)
    last = executions[-1][0]
    third = await fork(stage, second, before_execution=last)
    assert third.run.forked_from == second.run.id
    assert (await snapshot(stage, third))[0] == {"a": {"n": 0}, "b": {"n": 5}}
    fault = await refusal(fork(stage, second, before_execution=1))
    assert (fault.reason, fault.field) == (Reason.CURSOR_OUT_OF_RANGE, "before_node_execution")


# --- replaced input and state -----------------------------------------------------------------------


async def test_input_and_state_can_be_replaced(stage: RunStage) -> None:
    first = await run_until(stage, "team/chain@1", "a", "b", input={"n": 1})
    forked = await fork(stage, first, before_execution=2, input={"n": 2}, state={"b": "new"})
    assert forked.run.input == {"n": 2}
    assert (await snapshot(stage, forked))[0] == {"b": "new"}
    emptied = await fork(stage, first, before_execution=2, input={}, state={})
    assert emptied.run.input == {} and (await snapshot(stage, emptied))[0] == {}


async def test_another_revision_must_have_the_nodes_where_the_run_stood(stage: RunStage) -> None:
    first = await run_until(stage, "team/chain@1", "a", "b", "c")
    forked = await fork(stage, first, before_execution=2, revision=2)
    assert forked.run.workflow_ref == "team/chain@2"
    await stage.finish("b", run_id=forked.run.id)
    await stage.finish("d", run_id=forked.run.id)
    assert (await stage.runs.lookup.run(forked.run.id)).status is RunStatus.COMPLETED
    fault = await refusal(fork(stage, first, before_execution=3, revision=2))
    assert (fault.reason, fault.field) == (Reason.INPUT_INVALID, "workflow_revision")
    assert "`c`" in fault.message and "team/chain@2" in fault.message
    fault = await refusal(fork(stage, first, before_execution=2, revision=9))
    assert (fault.reason, fault.field) == (Reason.DEFINITION_NOT_FOUND, "workflow_revision")
    assert fault.message.startswith("There is no workflow 'team/chain@9'. List its revisions ")


async def test_a_fork_needs_no_definition_that_is_gone(stage: RunStage) -> None:
    first = await run_until(stage, "team/chain@1", "a")
    stage.workflows.known.clear()
    assert (await fork(stage, first, before_execution=2)).run.workflow_ref == "team/chain@1"


async def test_an_invalid_input_is_rejected(stage: RunStage) -> None:
    first = await run_until(stage, "team/one")
    fault = await refusal(fork(stage, first, before_execution=1, input={"n": "x"}))
    assert (fault.reason, fault.field) == (Reason.INPUT_INVALID, "input")
    fault = await refusal(fork(stage, first, before_execution=1, state={"a": "text"}))
    assert (fault.reason, fault.field) == (Reason.INPUT_INVALID, "state")


# --- invalid points ---------------------------------------------------------------------------------


async def test_points_that_are_not_in_the_record_are_rejected(stage: RunStage) -> None:
    first = await run_until(stage, "team/chain@1", "a")
    head = first.head
    for point in ({"after_sequence": head.sequence + 1}, {"before_execution": head.executions + 1}):
        fault = await refusal(fork(stage, first, **point))
        assert fault.reason is Reason.CURSOR_OUT_OF_RANGE
        assert "yet; it has" in fault.message
        assert fault.field == ("after_sequence" if "after_sequence" in point else "before_node_execution")
    assert await reason(
        stage.runs.forks.fork(ForkRequest(run_id=UNKNOWN_RUN_ID, after_sequence=1), origin())
    ) is (Reason.RUN_NOT_FOUND)


async def test_a_fork_after_the_runs_end_is_rejected(stage: RunStage) -> None:
    view = await stage.start("team/chain@1")
    await stage.finish("a")
    await stage.fail("b")
    ended = await stage.runs.lookup.snapshot(view.run.id)
    assert ended.run.status is RunStatus.FAILED
    fault = await refusal(fork(stage, ended, after_sequence=ended.head.sequence))
    assert (fault.reason, fault.field) == (Reason.INPUT_INVALID, "after_sequence")
    assert "`before_node_execution`; the last one is 2" in fault.message
    fault = await refusal(fork(stage, ended, before_execution=400))
    assert "no node execution 400; it has 2 node executions. Choose a number from 1 to 2." in fault.message
    retried = await fork(stage, ended, before_execution=2)
    await stage.finish("b", run_id=retried.run.id)
    await stage.finish("c", run_id=retried.run.id)
    assert (await stage.runs.lookup.run(retried.run.id)).status is RunStatus.COMPLETED


async def test_a_repeated_fork_request_creates_one_fork(stage: RunStage) -> None:
    first = await run_until(stage, "team/chain@1", "a")
    forked = await fork(stage, first, "once", before_execution=2)
    again = await fork(stage, first, "once", before_execution=2)
    assert again.run.id == forked.run.id
    assert await reason(fork(stage, first, "once", before_execution=1)) is Reason.REQUEST_ID_REUSED
    assert await reason(stage.start("team/one", "once")) is Reason.REQUEST_ID_REUSED


# --- limits -----------------------------------------------------------------------------------------


async def test_a_fork_keeps_the_newest_executions_of_a_long_run(
    stage: RunStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "MAX_EXECUTIONS", 20)
    counted = iter(range(1, 1000))
    stage.workflows.known.append(
        pinned("hold", "a>a a>ask", nodes={"ask": {"human_gate": {}}}, edges=LOOP_TO_A_GATE)
    )
    stage.instant_output = lambda command: {"n": next(counted)}
    first = await stage.start("team/hold", input={"n": 100})
    await stage.wait_until_idle()
    whole = await stage.runs.lookup.snapshot(first.run.id)
    assert whole.executions == 101 and whole.run.status is RunStatus.WAITING
    forked = await fork(stage, first, after_sequence=whole.head.sequence)
    (entry,) = await stage.shards.of(forked.run.id).entries(forked.run.id, 0, 10)
    assert isinstance(entry.input, StartFork)
    past = [(each.ordinal, each.status) for each in entry.input.source.executions]
    ended = [(ordinal, ExecutionStatus.COMPLETED) for ordinal in range(81, 101)]
    assert past == [*ended, (101, ExecutionStatus.RUNNING)]
    assert (await snapshot(stage, forked))[0] == {"a": {"n": 100}}
    monkeypatch.setattr(forks, "MAX_EXECUTION_BYTES", 0)
    bare = await fork(stage, first, after_sequence=whole.head.sequence)
    assert [each[1:] for each in (await snapshot(stage, bare))[1]] == [("ask", "running")]


LOOP_TO_A_GATE = {"a>a": {"loop_limit": 5000, "condition": "state.a.n < input.n", "priority": -1}}
