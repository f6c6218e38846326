"""A start loads only what must act. What waits stays on disk and goes on; each outbox is dispatched once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.actors.dispatch.test_descendant_quota import with_handlers
from tests.actors.kit import origin, run_ready_tasks
from tests.actors.run_kit import RunStage, open_stage, pinned
from tests.conformance.ports.journal_subjects import JOURNALS
from wonder_server.actors.runtime import resumption
from wonder_server.actors.runtime.resumption import Resumed
from wonder_server.core import ids
from wonder_server.core.actor.gates import ResolveGate
from wonder_server.core.actor.queries import Forget
from wonder_server.core.conversation.model.values import Operation, OperationKind, OperationStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.model import values
from wonder_server.core.coordinator.model.inputs import ReceiveSignal
from wonder_server.core.coordinator.model.values import Run, RunStatus
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.ports.journal import Unfinished
from wonder_server.ports.records import Query

HOUR_MS = 3_600_000
GATE = {"human_gate": {"prompt": "Go?", "expire_after_ms": HOUR_MS, "on_expire": "approve"}}
RETRY = {"task_id": "t", "retry": {"max_attempts": 2, "backoff_ms": HOUR_MS}}
FLOWS = (
    pinned("expiring", "ask>b", nodes={"ask": GATE}),
    pinned("signalled", "hold>b", nodes={"hold": {"wait": {"signal": "go"}}}),
    pinned("sleeping", "nap>b", nodes={"nap": {"wait": {"duration_ms": HOUR_MS}}}),
    pinned("retried", "a", nodes={"a": RETRY}),
    pinned("limited", "hold", nodes={"hold": {"wait": {"signal": "go"}}}, timeout_ms=HOUR_MS),
)
HELD = replace(
    pinned("outermost", "sub>b", nodes={"sub": {"workflow_id": "w"}}),
    workflows={"w": pinned("held", "hold", nodes={"hold": {"wait": {"signal": "go"}}})},
)


def stage_on(stage: RunStage) -> RunStage:
    """Return the stage of another process on the same shards, at the same time."""
    again = RunStage(stage.shards)
    again.workflows.known += [*FLOWS, HELD]
    again.clock.now = stage.clock.now
    return again


@pytest_asyncio.fixture(params=JOURNALS)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunStage]:
    async with open_stage(request.param, tmp_path) as stage:
        stage.workflows.known += [*FLOWS, HELD]
        yield stage


async def restarted(stage: RunStage) -> tuple[RunStage, Resumed]:
    """Return the stage of another process after its resumption, and what that did."""
    await stage.loop.stop()
    again = stage_on(stage)
    return again, await again.loop.resume()


async def status(stage: RunStage, run_id: str) -> RunStatus:
    await stage.wait_until_idle()
    return (await stage.runs.lookup.run(run_id)).status


async def let_time_pass(stage: RunStage, ms: int) -> None:
    """Move the clock and fire the timers that are due, as the event loop's timer does."""
    stage.clock.now += ms
    stage.loop._timers._check()
    await stage.wait_until_idle()


# --- what waits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["expiring", "signalled", "sleeping", "limited"])
async def test_a_run_that_waits_is_not_loaded(stage: RunStage, name: str) -> None:
    await stage.start(f"team/{name}")
    await stage.wait_until_idle()
    again, resumed = await restarted(stage)
    assert (resumed.dispatched, resumed.waiting, again.loop.actor_count) == (0, 1, 0)
    assert again.loop.timer_count == (name != "signalled")


async def test_a_signal_reaches_a_run_that_waits_on_disk(stage: RunStage) -> None:
    run_id = (await stage.start("team/signalled")).run.id
    again, _ = await restarted(stage)
    await again.runs.signal(run_id, ReceiveSignal(name="go"), origin())
    await again.finish("b")
    assert await status(again, run_id) is RunStatus.COMPLETED


async def test_an_answer_reaches_a_gate_that_waits_on_disk(stage: RunStage) -> None:
    run_id = (await stage.start("team/expiring")).run.id
    again, _ = await restarted(stage)
    (gate,) = await again.shards.find(Query(table="gates", actor=run_id))
    answer = ResolveGate(gate_id=gate.id, approve=True, shown_hash=gate.shown_hash, user_id="ann")
    await again.runs.gates.resolve(answer, origin())
    await again.finish("b")
    assert await status(again, run_id) is RunStatus.COMPLETED
    assert again.loop.timer_count == 0


@pytest.mark.parametrize("name", ["expiring", "sleeping"])
async def test_a_timer_loads_a_run_that_waits_on_disk(stage: RunStage, name: str) -> None:
    run_id = (await stage.start(f"team/{name}")).run.id
    again, _ = await restarted(stage)
    await let_time_pass(again, HOUR_MS - 1)
    assert again.loop.actor_count == 0
    await let_time_pass(again, 1)
    await again.finish("b")
    assert await status(again, run_id) is RunStatus.COMPLETED


async def test_a_run_on_disk_ends_at_its_time_limit(stage: RunStage) -> None:
    run_id = (await stage.start("team/limited")).run.id
    again, _ = await restarted(stage)
    await let_time_pass(again, HOUR_MS)
    assert await status(again, run_id) is RunStatus.FAILED


async def test_a_retry_starts_after_the_rest_of_its_delay(stage: RunStage) -> None:
    run_id = (await stage.start("team/retried")).run.id
    actor, command = await stage.task("a")
    busy = Fault(reason=Reason.MODEL_UNAVAILABLE, message="Busy.", transient=True)
    stage.loop.report_failure(actor, command.operation_id, busy)
    await stage.wait_until_idle()
    again, resumed = await restarted(stage)
    assert (resumed.waiting, again.loop.actor_count, again.tasks) == (1, 0, [])
    await let_time_pass(again, HOUR_MS)
    await again.finish("a")
    assert await status(again, run_id) is RunStatus.COMPLETED


async def test_the_rest_of_a_wait_counts_if_the_clock_was_set_back(stage: RunStage) -> None:
    run_id = (await stage.start("team/sleeping")).run.id
    await stage.wait_until_idle()
    stage.clock.now -= 10 * HOUR_MS
    again, _ = await restarted(stage)
    await let_time_pass(again, HOUR_MS)
    await again.finish("b")
    assert await status(again, run_id) is RunStatus.COMPLETED


async def test_a_parent_waits_on_disk_for_a_child_that_waits(stage: RunStage) -> None:
    with_handlers(stage)
    run_id = (await stage.start("team/outermost")).run.id
    await stage.wait_until_idle()
    (child,) = await children(stage, run_id)
    await stage.loop.stop()
    again = stage_on(stage)
    handlers, _ = with_handlers(again)
    resumed = await again.loop.resume(handlers)
    assert (resumed.dispatched, resumed.waiting, again.loop.actor_count) == (0, 2, 0)
    assert again.quota.count(run_id) == 1, "the child still counts below its root"
    await again.runs.signal(child.id, ReceiveSignal(name="go"), origin())
    assert await status(again, run_id) is RunStatus.COMPLETED
    assert again.quota.count(run_id) == 0


async def test_a_parent_on_disk_that_is_cancelled_cancels_its_child(stage: RunStage) -> None:
    with_handlers(stage)
    run_id = (await stage.start("team/outermost")).run.id
    await stage.wait_until_idle()
    (child,) = await children(stage, run_id)
    await stage.loop.stop()
    again = stage_on(stage)
    handlers, _ = with_handlers(again)
    await again.loop.resume(handlers)
    await again.runs.cancel(run_id, "Enough.", "", origin())
    assert await status(again, child.id) is RunStatus.CANCELLED
    assert again.quota.count(run_id) == 0


async def test_a_parent_whose_childs_answer_was_lost_asks_again(stage: RunStage) -> None:
    run_id = (await stage.start("team/outermost")).run.id
    await stage.wait_until_idle()
    (child,) = await children(stage, run_id)
    shard = ids.shard_of(run_id)
    stage.on_failpoint["before-answer"] = lambda: stage.loop.lose(shard)
    await stage.runs.signal(child.id, ReceiveSignal(name="go"), origin())
    await stage.wait_until_idle()
    again, resumed = await restarted(stage)
    assert (resumed.dispatched, resumed.waiting) == (1, 0)
    assert await status(again, child.id) is RunStatus.COMPLETED
    await again.finish("b", run_id=run_id)
    assert await status(again, run_id) is RunStatus.COMPLETED


async def children(stage: RunStage, run_id: str) -> list[Run]:
    return await stage.shards.find(Query(table="runs", fields=(("parent.actor_id", run_id),)))


def tool_call(**fields: object) -> Operation:
    given: dict[str, object] = {"kind": OperationKind.WORKFLOW, "run_id": "run_1", "timeout_ms": 1000}
    return Operation(id="op_1", turn_id="turn_1", **{**given, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operation", "has_child", "waits"),
    [
        (tool_call(wake_ms=10_600), True, True),
        (tool_call(wake_ms=10_400), True, False),  # Dispatching it again gives it its whole time again.
        (tool_call(wake_ms=0), True, True),
        (tool_call(wake_ms=10_600), False, False),
        (tool_call(status=OperationStatus.BACKOFF, wake_ms=10_400), False, True),
        (tool_call(kind=OperationKind.MODEL, wake_ms=10_600), True, False),
        (tool_call(kind=OperationKind.ASSEMBLY, wake_ms=10_600), True, False),
    ],
)
def test_an_operation_of_a_turn_waits_for_its_unfinished_run(
    operation: Operation, has_child: bool, waits: bool
) -> None:
    assert CONVERSATION.waits(operation, has_child, 10_000) is waits
    expected = "run_1" if operation.kind is OperationKind.WORKFLOW else ""
    assert CONVERSATION.child_run(operation) == (
        "" if operation.status is OperationStatus.BACKOFF else expected
    )


# --- what must be dispatched again ------------------------------------------------------------------


async def test_a_task_that_ran_is_dispatched_again(stage: RunStage) -> None:
    run_id = (await stage.start("team/one")).run.id
    await stage.task("a")
    again, resumed = await restarted(stage)
    assert (resumed.dispatched, resumed.waiting) == (1, 0)
    await again.finish("a")
    assert await status(again, run_id) is RunStatus.COMPLETED


async def test_an_input_before_the_resumption_dispatches_the_outbox_once(stage: RunStage) -> None:
    run_id = (await stage.start("team/one")).run.id
    await stage.task("a")
    await stage.loop.stop()
    again = stage_on(stage)
    again.loop.report_success(run_id, "op_unknown", {})
    await again.wait_until_idle()
    assert len(again.tasks) == 1
    await again.loop.resume()
    await again.wait_until_idle()
    assert len(again.tasks) == 1
    await again.finish("a")
    assert await status(again, run_id) is RunStatus.COMPLETED


async def test_a_run_that_starts_before_the_resumption_is_not_dispatched_again(stage: RunStage) -> None:
    await stage.start("team/one")
    await stage.task("a")
    resumed = await stage.loop.resume()
    await stage.wait_until_idle()
    assert (resumed.dispatched, stage.tasks) == (0, [])


async def test_a_run_that_loads_twice_before_its_page_is_restarted_once(tmp_path: Path) -> None:
    async with open_stage("sqlite", tmp_path) as stage:
        stage.workflows.known += FLOWS
        run_id = (await stage.start("team/signalled")).run.id
        await stage.loop.stop()
        again = stage_on(stage)
        for _ in range(2):
            again.loop.report_success(run_id, "op_unknown", {})
            await again.wait_until_idle()
            assert again.loop.query(run_id, Forget())
        before = again.loop.timer_count
        resumed = await again.loop.resume()
        assert (resumed.waiting, again.loop.timer_count) == (0, before)


async def test_few_actors_load_at_the_same_time(stage: RunStage) -> None:
    count = 3 * resumption.MAX_RESUMING
    for _ in range(count):
        await stage.start("team/one")
    await stage.wait_until_idle()
    await stage.loop.stop()
    again = stage_on(stage)
    (journal, *_) = again.shards.files
    whole = journal.load
    loading, peak = 0, 0

    async def load(*given: object) -> object:
        nonlocal loading, peak
        loading += 1
        peak = max(peak, loading)
        await run_ready_tasks()
        loading -= 1
        return await whole(*given)  # type: ignore[arg-type]

    journal.load = load  # type: ignore[method-assign, assignment]
    resumed = await again.loop.resume()
    assert resumed.dispatched == len(again.tasks) == count
    assert 1 < peak <= resumption.MAX_RESUMING


async def test_outboxes_are_read_page_by_page(stage: RunStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumption, "PAGE", 3)
    runs = [(await stage.start("team/sleeping")).run.id for _ in range(7)]
    again, resumed = await restarted(stage)
    assert (resumed.waiting, again.loop.timer_count) == (7, 7)
    await let_time_pass(again, HOUR_MS)
    for run_id in runs:
        await again.finish("b", run_id=run_id)
        assert await status(again, run_id) is RunStatus.COMPLETED


async def test_an_error_of_the_store_interrupts_the_resumption_which_then_goes_on(stage: RunStage) -> None:
    await stage.start("team/sleeping")
    await stage.wait_until_idle()
    await stage.loop.stop()
    again = stage_on(stage)
    (journal, *_) = again.shards.files
    reads = 0
    whole = journal.unfinished

    async def unfinished(*given: object) -> list[Unfinished]:
        nonlocal reads
        reads += 1
        if reads == 2:
            raise error(Reason.STORAGE_UNAVAILABLE, "The disk is away.", transient=True)
        return await whole(*given)  # type: ignore[arg-type]

    journal.unfinished = unfinished  # type: ignore[method-assign]
    with pytest.raises(WonderError):
        await again.loop.resume()
    assert (await again.loop.resume()).waiting == 1
    assert again.loop.timer_count == 1


async def test_new_work_goes_on_while_actors_are_resumed(stage: RunStage) -> None:
    for _ in range(4 * resumption.MAX_RESUMING):
        await stage.start("team/one")
    await stage.wait_until_idle()
    await stage.loop.stop()
    again = stage_on(stage)
    resuming = asyncio.ensure_future(again.loop.resume())
    await again.start("team/chain")
    assert not resuming.done(), "the start did not wait for the resumption"
    await resuming
    await run_ready_tasks()


def test_waiting_kinds_of_runs_are_named_once() -> None:
    """Every kind either waits for an input or is executed."""
    for kind in values.OperationKind:
        operation = values.Operation(id="x", run_id="run_1", kind=kind, child_id="run_2")
        is_executed, is_run = kind in values.EXECUTED_KINDS, kind is values.OperationKind.SUBWORKFLOW
        assert RUN.waits(operation, False, 0) is not is_executed
        assert RUN.waits(operation, True, 0) is (is_run or not is_executed)
        assert RUN.child_run(operation) == ("run_2" if is_run else "")
