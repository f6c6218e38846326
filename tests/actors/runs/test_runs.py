"""Runs as clients steer them: started once, waited for, cancelled, signalled, decided at gates, replayed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.kit import TestJournal, origin, run_ready_tasks
from tests.actors.run_kit import RunStage
from tests.services.catalog.library_kit import reason, refusal
from wonder_server.actors.runs.forks import ForkRequest
from wonder_server.actors.runs.lookup import RunView
from wonder_server.actors.runs.replay import ReplayResult
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.core.actor.commands import Scope
from wonder_server.core.actor.gates import Gate, GateStatus, ResolveGate
from wonder_server.core.coordinator.model.inputs import ReceiveSignal
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.records import Query

SOON = 60_000
"""A wait longer than any test."""


def in_background(work: object) -> asyncio.Task[Outcome]:
    return asyncio.get_running_loop().create_task(work)


async def gate_of(stage: RunStage, view: RunView) -> Gate:
    (gate,) = await stage.runs.gates.find(Query(table="gates", actor=view.run.id))
    return gate


# --- starting and waiting ---------------------------------------------------------------------------


async def test_a_start_answers_as_soon_as_the_run_is_on_disk(stage: RunStage) -> None:
    view = await stage.start("team/one", metadata={"for": "ann"}, timeout_ms=5000)
    assert view.run.status is RunStatus.RUNNING and view.executions == 1
    assert view.run.metadata == {"for": "ann"} and view.run.deadline_ms == stage.clock.now + 5000
    assert await stage.runs.lookup.snapshot(view.run.id) == view


async def test_a_start_that_waits_answers_with_the_end(stage: RunStage) -> None:
    call = in_background(stage.start("team/one", wait_ms=SOON))
    await stage.finish("a", {"n": 7})
    view: RunView = await call
    assert view.run.status is RunStatus.COMPLETED and view.has_ended
    assert await stage.runs.lookup.snapshot(view.run.id) == view


async def test_a_run_that_ends_at_once_is_not_missed(stage: RunStage) -> None:
    stage.instant_output = lambda command: {"n": 1}
    view = await stage.start("team/chain", wait_ms=SOON)
    assert view.run.status is RunStatus.COMPLETED and view.executions == 3


async def test_a_wait_that_times_out_returns_the_running_run(stage: RunStage) -> None:
    call = in_background(stage.start("team/chain@1", wait_ms=150))
    await stage.finish("a")
    view: RunView = await call
    assert view.run.status is RunStatus.RUNNING and view.executions == 2
    await stage.finish("b")
    await stage.finish("c")
    assert (await stage.runs.lookup.run(view.run.id)).status is RunStatus.COMPLETED


async def test_a_disconnected_caller_does_not_stop_the_run(stage: RunStage) -> None:
    call = in_background(stage.start("team/one", "once", wait_ms=SOON))
    await stage.wait_until_idle()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    again = in_background(stage.start("team/one", "once", wait_ms=SOON))
    await stage.finish("a")
    assert (await again).run.status is RunStatus.COMPLETED
    assert not stage.tasks
    assert stage.streams._end_waiters == {}


async def test_every_waiting_caller_gets_the_end_of_a_run(stage: RunStage) -> None:
    calls = [in_background(stage.start("team/one", "once", wait_ms=SOON)) for _ in range(3)]
    await stage.finish("a")
    views = await asyncio.gather(*calls)
    assert {view.run.id for view in views} == {views[0].run.id}
    assert all(view.run.status is RunStatus.COMPLETED for view in views)


async def test_a_start_is_repeated_after_the_end_and_for_an_unknown_workflow(stage: RunStage) -> None:
    stage.instant_output = lambda command: {}
    first = await stage.start("team/one", "once", wait_ms=SOON)
    stage.workflows.known.clear()
    assert (await stage.start("team/one", "once", wait_ms=SOON)).run == first.run
    assert (await stage.start("team/one", "once")).run == first.run
    assert await reason(stage.start("team/one", "other")) is Reason.DEFINITION_NOT_FOUND


@pytest.mark.parametrize("other", [{"input": {"n": 2}}, {"metadata": {"a": 1}}, {"timeout_ms": 9}])
async def test_a_reused_request_id_is_rejected(stage: RunStage, other: JsonDict) -> None:
    await stage.start("team/one", "once")
    assert await reason(stage.start("team/one", "once", **other)) is Reason.REQUEST_ID_REUSED


async def test_a_start_whose_caller_hangs_up_is_repeated_with_the_same_answer() -> None:
    journal = TestJournal()
    stage = RunStage(MemoryShards(journal))
    journal.hold()
    first = in_background(stage.start(request_id="r-1"))
    await run_ready_tasks()
    first.cancel()
    again = in_background(stage.start(request_id="r-1"))
    await run_ready_tasks()
    assert journal.held == 1
    journal.release()
    view: RunView = await again
    assert list(journal.actors) == [view.run.id]
    assert first.cancelled()
    await stage.loop.stop()


@pytest.mark.parametrize("request_id", ["", "r-1"])
async def test_a_run_for_a_conversation_shares_its_shard(stage: RunStage, request_id: str) -> None:
    conversation_id = "conv_01HF7YAT0000000000000000AQ"
    scope = Scope(project_id="proj_default", conversation_id=conversation_id)
    view = await stage.start(request_id=request_id, scope=scope)
    forked = await stage.runs.forks.fork(ForkRequest(run_id=view.run.id, after_sequence=1), origin())
    assert view.run.id[-1] == forked.run.id[-1] == "Q"
    if request_id:
        assert (await stage.start(request_id=request_id, scope=scope)).run.id == view.run.id
    spread = {(await stage.start()).run.id[-1] for _ in range(40)}
    assert len(spread) > 10, "other runs are spread over the shards"


async def test_draining_answers_waiting_callers(stage: RunStage) -> None:
    call = in_background(stage.start("team/one", wait_ms=SOON))
    await stage.wait_until_idle()
    stage.streams.drain()
    assert (await call).run.status is RunStatus.RUNNING
    assert (await stage.start("team/one", wait_ms=SOON)).run.status is RunStatus.RUNNING


async def test_a_rejected_input_leaves_nothing(stage: RunStage) -> None:
    fault = await refusal(stage.start("team/one", input={"n": "x"}, wait_ms=SOON))
    assert (fault.reason, fault.field) == (Reason.INPUT_INVALID, "input")
    fault = await refusal(stage.start("team/none"))
    assert (fault.reason, fault.field) == (Reason.DEFINITION_NOT_FOUND, "workflow_id")
    assert stage.loop.actor_count == 0 and stage.streams._end_waiters == {}


# --- cancelling -------------------------------------------------------------------------------------


async def test_a_cancel_ends_the_run_and_stops_its_tasks(stage: RunStage) -> None:
    started = await stage.start("team/chain")
    view = await stage.runs.cancel(started.run.id, "Enough.", "", origin())
    assert view.run.status is RunStatus.CANCELLED and view.run.fault is not None
    assert view.run.fault.message == "Enough."
    assert stage.cancelled == [stage.tasks[0][1].operation_id]
    assert await reason(stage.runs.cancel(started.run.id, "", "", origin())) is Reason.RUN_NOT_ACTIVE


async def test_a_cancel_with_an_etag_requires_the_version_that_was_read(stage: RunStage) -> None:
    seen = await stage.start("team/chain")
    await stage.finish("a")
    stale, run_id = str(seen.head.sequence), seen.run.id
    assert await reason(stage.runs.cancel(run_id, "", stale, origin())) is Reason.ETAG_MISMATCH
    assert await reason(stage.runs.cancel(run_id, "", stale, origin("once"))) is Reason.ETAG_MISMATCH
    fresh = str((await stage.runs.lookup.snapshot(run_id)).head.sequence)
    ended = await stage.runs.cancel(run_id, "", fresh, origin("once"))
    assert ended.run.status is RunStatus.CANCELLED
    # The first call of the same request changed the run.
    assert await stage.runs.cancel(run_id, "", fresh, origin("once")) == ended


# --- signals and gates ------------------------------------------------------------------------------


async def test_a_signal_resumes_the_waiting_node(stage: RunStage) -> None:
    view = await stage.start("team/wait")
    await stage.finish("a")
    assert (await stage.runs.lookup.run(view.run.id)).status is RunStatus.WAITING
    go = ReceiveSignal(name="go", payload={"who": "ann"}, user_id="ann")
    sequence = await stage.runs.signal(view.run.id, go, origin("once"))
    (event,) = await stage.shards.of(view.run.id).events(view.run.id, sequence - 1, 1)
    assert event.emit.kind == "signal_received" and event.emit.value.payload == {"who": "ann"}
    assert await stage.runs.signal(view.run.id, go, origin("once")) == sequence
    await stage.finish("b")
    assert await reason(stage.runs.signal(view.run.id, go, origin())) is Reason.RUN_NOT_ACTIVE


async def test_a_gate_is_resolved_once_by_an_allowed_user(stage: RunStage) -> None:
    view = await stage.start("team/gate")
    await stage.finish("a")
    gate = await gate_of(stage, view)
    assert gate.status is GateStatus.PENDING and gate.id.endswith(view.run.id[-1])
    approve = ResolveGate(
        gate_id=gate.id, approve=True, shown_hash=gate.shown_hash, comment="Go.", user_id="ann"
    )
    other = ResolveGate(gate_id=gate.id, approve=True, shown_hash="x" * 64, user_id="ann")
    assert await reason(stage.runs.gates.resolve(other, origin())) is Reason.GATE_RESOLVED
    unknown = ResolveGate(gate_id=gate.id, approve=True, shown_hash=gate.shown_hash, user_id="eve")
    assert await reason(stage.runs.gates.resolve(unknown, origin())) is Reason.PERMISSION_DENIED
    resolved = await stage.runs.gates.resolve(approve, origin("once"))
    assert (resolved.status, resolved.user_id, resolved.comment) == (GateStatus.APPROVED, "ann", "Go.")
    assert await stage.runs.gates.resolve(approve, origin("once")) == resolved
    with pytest.raises(WonderError, match="it was approved by ann at 20") as refusal:
        await stage.runs.gates.resolve(approve, origin())
    assert refusal.value.fault.reason is Reason.GATE_RESOLVED
    await stage.finish("b")
    assert (await stage.runs.lookup.run(view.run.id)).status is RunStatus.COMPLETED
    assert await reason(stage.runs.gates.resolve(approve, origin("later"))) is Reason.GATE_RESOLVED


@pytest.mark.parametrize(
    "gate_id", ["", "x", "run_01HF7YAT0000000000000000A1", "gate_01HF7YAT0000000000000000A1", "gate_" * 99]
)
async def test_an_unknown_gate_is_not_found(stage: RunStage, gate_id: str) -> None:
    decision = ResolveGate(gate_id=gate_id, approve=True, shown_hash="x")
    assert await reason(stage.runs.gates.resolve(decision, origin())) is Reason.GATE_NOT_FOUND


async def test_a_waiting_run_continues_after_a_restart(stage: RunStage) -> None:
    gated, waiting = await stage.start("team/gate"), await stage.start("team/wait")
    for view in (gated, waiting):
        await stage.finish("a", run_id=view.run.id)
    gate = await gate_of(stage, gated)
    await stage.loop.stop()
    again = RunStage(stage.shards)
    await again.loop.resume()
    decision = ResolveGate(gate_id=gate.id, approve=False, shown_hash=gate.shown_hash, user_id="bob")
    assert (await again.runs.gates.resolve(decision, origin())).status is GateStatus.REJECTED
    await again.runs.signal(waiting.run.id, ReceiveSignal(name="go"), origin())
    for view in (gated, waiting):
        end = again.streams.wait_for_end(view.run.id)
        await again.finish("b", run_id=view.run.id)
        assert (await end) is not None
        assert (await again.runs.lookup.run(view.run.id)).status is RunStatus.COMPLETED
    await again.loop.stop()


# --- looking and replaying --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run_id", ["", "x", "conv_01HF7YAT0000000000000000A1", "run_01HF7YAT0000000000000000A1", "run_\x00"]
)
async def test_an_unknown_run_is_not_found(stage: RunStage, run_id: str) -> None:
    runs, go = stage.runs, ReceiveSignal(name="go")
    for work in (
        runs.lookup.run(run_id),
        runs.lookup.snapshot(run_id),
        runs.lookup.with_details(run_id),
        runs.cancel(run_id, "", "", origin()),
        runs.signal(run_id, go, origin()),
        runs.attach(run_id, 0),
        runs.replay(run_id),
    ):
        assert await reason(work) is Reason.RUN_NOT_FOUND
    assert stage.loop.actor_count == 0 and stage.streams.count == 0


async def test_a_child_knows_the_node_that_waits_for_it(stage: RunStage) -> None:
    view = await stage.start("team/outer")
    await stage.finish("a")
    ((child, _),) = stage.tasks
    await stage.finish("n")
    whole = await stage.runs.lookup.with_details(child)
    assert whole.run.parent is not None and whole.run.parent.actor_id == view.run.id
    assert whole.details is not None and whole.details.parent_node_id == "sub"


async def test_a_run_of_many_nodes_is_replayed_page_by_page(stage: RunStage) -> None:
    stage.instant_output = _counting()
    view = await stage.start("team/loop", input={"n": 300}, wait_ms=SOON)
    assert view.run.status is RunStatus.COMPLETED and view.executions == 300
    assert await stage.runs.replay(view.run.id) == ReplayResult(301)
    whole = await stage.runs.lookup.with_details(view.run.id)
    assert whole.details is not None
    assert [each.ordinal for each in whole.details.executions] == list(range(300, 250, -1))
    older = await stage.runs.lookup.executions(view.run.id, 251)
    assert [each.ordinal for each in older] == list(range(250, 200, -1))


def _counting() -> Any:
    count = 0

    def give(command: object) -> dict[str, int]:
        nonlocal count
        count += 1
        return {"n": count}

    return give
