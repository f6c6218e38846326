"""Handlers: they carry out what was decided, after it is on disk, and send back what came of it.

One asyncio task per operation, except for what need not wait: that is answered on the spot. A command may
come twice (after a crash, or for a retry); the operation's id is the key that keeps effects single. When the
server stops, handlers are cancelled and say nothing: their operations are still in the outbox, and the next
start hands them out again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, assert_never

from wonder_server.actors.archive.archiver import Archive
from wonder_server.actors.dispatch.agent_calls import AgentCalls
from wonder_server.actors.dispatch.descendant_quota import DescendantQuota, root_of
from wonder_server.actors.dispatch.orphans import orphaned_runs
from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.actors.runtime.loop import Loop
from wonder_server.actors.streaming.hub import NodeProgress, StreamHub
from wonder_server.actors.usage.agent_budgets import AgentBudgets
from wonder_server.core import ids
from wonder_server.core.actor import trace
from wonder_server.core.actor.commands import (
    Answer,
    ApplyMemory,
    CallAgent,
    CallModel,
    Command,
    RunTask,
    RunWorkflow,
    Stop,
)
from wonder_server.core.conversation.model.inputs import (
    BudgetNearlyExhausted,
    Failed,
    ModelAnswered,
    ModelUsageReported,
    TimerFired,
)
from wonder_server.core.coordinator.inputs import CancelRun, EventEmitted, Start
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.frozen import replace
from wonder_server.core.model import Meter, ModelResult
from wonder_server.ports.clock import Clock
from wonder_server.ports.executor import MemoryOperations, TaskExecutor, TaskOutcome
from wonder_server.ports.library import AgentPinning
from wonder_server.ports.model import Finished, Model, TextDelta, UsageUpdate
from wonder_server.ports.prices import Prices
from wonder_server.ports.records import Records

OperationWork = Callable[[], Awaitable[Callable[[], None]]]
"""Does an operation and returns how to report it. Called in the operation's own task, so that one that is
stopped before it began leaves nothing behind."""


MAX_INLINE_S = 0.005
"""Tasks are answered on the spot for as long as this, before others have a turn."""

_ENDED_EARLY = Fault(reason=Reason.MODEL_UNAVAILABLE, message="The model's answer broke off.", transient=True)


class Handlers:
    """Carries out commands. Give it the loop with `attach` before the first command."""

    def __init__(
        self,
        *,
        tasks: TaskExecutor,
        model: Model,
        prices: Prices,
        memory: MemoryOperations,
        streams: StreamHub,
        agents: AgentPinning,
        records: Records,
        clock: Clock,
        budgets: AgentBudgets | None = None,
    ) -> None:
        self._tasks = tasks
        self._model = model
        self._prices = prices
        self._memory = memory
        self._streams = streams
        self._agents, self._records, self._clock = agents, records, clock
        self._budgets = budgets or AgentBudgets()
        self._loop: Loop | None = None
        self._agent_calls: AgentCalls | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._partial_texts: dict[str, list[str]] = {}
        """What models have said so far, by the operation."""
        self._descendant_quota = DescendantQuota()
        self._inline_since = 0.0
        self._stopping = False

    def attach(self, loop: Loop, archive: Archive | None = None) -> None:
        """Where results go, and where conversations come from that are archived."""
        self._loop = loop
        loop.on_result = self._descendant_quota.release
        loop.timer_input = self._timer_input
        self._agent_calls = AgentCalls(
            loop=loop,
            records=self._records,
            streams=self._streams,
            agents=self._agents,
            clock=self._clock,
            archive=archive,
            budgets=self._budgets,
        )

    async def cancel_orphans(self) -> int:
        """After a start: stop what nobody waits for any more; how many operations that was."""
        assert self._agent_calls is not None, "attach comes first"
        orphans = await orphaned_runs(self._records)
        for run_id in orphans:
            self._actors.tell(run_id, CancelRun(reason="Nobody waits for it any more."))
        return len(orphans) + await self._agent_calls.cancel_orphans()

    @property
    def running(self) -> int:
        """Operations under way."""
        return len(self._running)

    def dispatch(self, actor_id: str, command: Command) -> None:
        """Start carrying ``command`` out; returns at once."""
        if self._stopping:
            return
        match command:
            case CallModel():
                self._start_operation(command, actor_id, lambda: self._check_budget(actor_id, command))
            case RunTask():
                if not self._run_task_inline(actor_id, command):
                    self._start_operation(command, actor_id, lambda: self._run_task(actor_id, command))
            case ApplyMemory():
                self._start_operation(command, actor_id, lambda: self._apply_memory(actor_id, command))
            case RunWorkflow():
                self._start_run(command)
            case CallAgent():
                if self._acquire_descendant(command):
                    self._start_operation(command, actor_id, lambda: self._call_agent(command))
            case Stop():
                self._stop_operation(actor_id, command)
            case Answer():
                raise AssertionError("the loop delivers answers itself")
            case _:
                assert_never(command)

    async def stop(self) -> None:
        """Cancel everything under way; nothing of it is reported."""
        self._stopping = True
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    # --- one operation --------------------------------------------------------------------------

    @property
    def _actors(self) -> Loop:
        assert self._loop is not None, "attach comes first"
        return self._loop

    def _start_operation(
        self, command: CallModel | RunTask | ApplyMemory | CallAgent, actor_id: str, work: OperationWork
    ) -> None:
        operation_id = command.operation_id
        before = self._running.pop(operation_id, None)
        if before is not None:
            before.cancel()
        task = asyncio.get_running_loop().create_task(self._execute(command, actor_id, work))
        self._running[operation_id] = task

    async def _execute(
        self, command: CallModel | RunTask | ApplyMemory | CallAgent, actor_id: str, work: OperationWork
    ) -> None:
        """Do the work, then report it; a cancelled operation reports nothing."""
        operation_id = command.operation_id
        try:
            report = await work()
        except WonderError as problem:
            report = partial(self._actors.report_failure, actor_id, operation_id, problem.fault)
        except Exception:
            where = {"actor": actor_id, "operation": operation_id, "trace": _trace(command)}
            fault = report_incident("handler_failed", **where)
            report = partial(self._actors.report_failure, actor_id, operation_id, fault)
        finally:
            if self._running.get(operation_id) is asyncio.current_task():
                del self._running[operation_id]
        if not self._stopping:
            report()

    async def _check_budget(self, actor_id: str, command: CallModel) -> Callable[[], None]:
        if command.budget is None:
            return await self._call_model(actor_id, command)
        async with self._budgets.reserve(command) as limit:
            if limit is None:
                return await self._call_model(actor_id, command)
        if limit.enforced:
            raise WonderError(limit.fault)
        warning = BudgetNearlyExhausted(operation_id=command.operation_id, fault=limit.fault)
        return lambda: self._actors.tell(actor_id, warning)

    async def _call_model(self, actor_id: str, command: CallModel) -> Callable[[], None]:
        streams, message_id = self._streams, command.message_id
        streams.begin_message(actor_id, command.turn_id, message_id, command.dispatches)
        chunks = self._model.stream(command.profile, command.request)
        result, texts, fault, meter = None, list[str](), _ENDED_EARLY, Meter()
        whole: ModelResult | None = None
        self._partial_texts[command.operation_id] = texts
        try:
            async for chunk in chunks:
                if isinstance(chunk, TextDelta):
                    texts.append(chunk.text)
                    meter.add_text(chunk.text)
                    streams.append_text(actor_id, message_id, chunk.text)
                elif isinstance(chunk, UsageUpdate):
                    meter.set_usage(chunk.usage, chunk.character_count)
                elif isinstance(chunk, Finished):
                    result, whole = chunk.result, chunk.untruncated
        except WonderError as problem:
            fault = problem.fault
        except asyncio.CancelledError:
            # Nobody waits for the answer any more; what has come of it is paid for all the same.
            if not self._stopping:
                await self._report_partial_usage(actor_id, command, meter)
            raise
        finally:
            if self._partial_texts.get(command.operation_id) is texts:
                del self._partial_texts[command.operation_id]
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        if result is None:
            await self._report_partial_usage(actor_id, command, meter)
            failed = Failed(operation_id=command.operation_id, fault=fault, partial_text="".join(texts))
            return lambda: self._actors.tell(actor_id, failed)
        priced = await self._prices.with_cost(command.profile, result)
        answered = ModelAnswered(operation_id=command.operation_id, result=priced, full_result=whole)
        return lambda: self._actors.tell(actor_id, answered)

    async def _report_partial_usage(self, actor_id: str, command: CallModel, meter: Meter) -> None:
        """Tell what a call has used that did not come to its end; that it was made counts by itself."""
        used = meter.estimate_usage(command.request)
        if used is None:
            return
        priced = await self._prices.with_cost(command.profile, ModelResult(text="", usage=used))
        usage_input = ModelUsageReported(turn_id=command.turn_id, run_id="", usage=priced.usage, calls=0)
        self._actors.tell(actor_id, usage_input)

    def _timer_input(self, operation_id: str, event: Any) -> Any:
        """A model that is out of time is not left without what it has said."""
        texts = self._partial_texts.get(operation_id)
        return TimerFired(operation_id=operation_id, partial_text="".join(texts)) if texts else event

    async def _run_task(self, actor_id: str, command: RunTask) -> Callable[[], None]:
        progress = partial(self._show_progress, actor_id, command)
        on_event = partial(self._report_event, actor_id, command)
        # Only runs have watchers and a record for what their tasks do and say on the way.
        callbacks = (progress, on_event) if command.node_id else (None, None)
        outcome = await self._tasks.execute(command.task, command.input, command.scope, *callbacks)
        return partial(self._task_ended, actor_id, command, outcome)

    def _run_task_inline(self, actor_id: str, command: RunTask) -> bool:
        """Answer on the spot a task that need not wait, unless others have waited long enough already."""
        now = time.perf_counter()
        if not self._inline_since:
            self._inline_since = now
            asyncio.get_running_loop().call_soon(self._end_inline_slice)
        elif now - self._inline_since > MAX_INLINE_S:
            return False
        try:
            outcome = self._tasks.execute_inline(command.task, command.input, command.scope)
        except Exception:
            where = {"actor": actor_id, "operation": command.operation_id, "trace": _trace(command)}
            fault = report_incident("handler_failed", **where)
            self._actors.report_failure(actor_id, command.operation_id, fault)
            return True
        if outcome is None:
            return False
        self._task_ended(actor_id, command, outcome)
        return True

    def _end_inline_slice(self) -> None:
        self._inline_since = 0.0

    def _task_ended(self, actor_id: str, command: RunTask, outcome: TaskOutcome) -> None:
        if outcome.fault is not None:
            self._actors.report_failure(actor_id, command.operation_id, outcome.fault)
        else:
            self._actors.report_success(actor_id, command.operation_id, outcome.output or {})

    def _show_progress(self, actor_id: str, command: RunTask, item: Any) -> None:
        shown = NodeProgress(node_id=command.node_id, execution_id=command.operation_id, item=item)
        self._streams.publish_progress(actor_id, shown)

    def _report_event(
        self, actor_id: str, command: RunTask, key: str, name: str, payload: Mapping[str, Any]
    ) -> None:
        event = EventEmitted(operation_id=command.operation_id, key=key, name=name, payload=dict(payload))
        self._actors.tell(actor_id, event)

    async def _call_agent(self, command: CallAgent) -> Callable[[], None]:
        assert self._agent_calls is not None, "attach comes first"
        await self._agent_calls.begin(command)
        return lambda: None  # The turn's end answers.

    async def _apply_memory(self, actor_id: str, command: ApplyMemory) -> Callable[[], None]:
        output = await self._memory.apply(command.operation, command.scope)
        return lambda: self._actors.report_success(actor_id, command.operation_id, output)

    def _start_run(self, command: RunWorkflow) -> None:
        if not self._acquire_descendant(command):
            if not command.fresh:  # It may be at work since before a restart.
                self._actors.tell(command.run_id, CancelRun(reason="Nobody waits for it any more."))
            return
        start = Start(
            run_id=command.run_id,
            workflow=command.workflow,
            input=command.input,
            scope=replace(command.scope, root_id=root_of(command)),
            parent=command.parent,
            volatile=command.volatile,
        )
        if command.fresh:
            self._actors.register_new(command.run_id)
        # A conversation has few runs at a time, a run may have thousands.
        self._actors.tell(command.run_id, start, low_priority=ids.is_id("run", command.parent.actor_id))

    def _acquire_descendant(self, command: RunWorkflow | CallAgent) -> bool:
        """Whether the root run may have one more operation below it; if not, this one fails."""
        root_id, parent = root_of(command), command.parent
        fault = self._descendant_quota.acquire(root_id, command.operation_id) if root_id else None
        if fault is not None:
            self._actors.report_failure(parent.actor_id, parent.operation_id, fault)
        return fault is None

    def _stop_operation(self, stopped_by: str, command: Stop) -> None:
        task = self._running.pop(command.operation_id, None)
        if task is not None:
            task.cancel()
        if command.child_id.startswith("run_"):
            # It counts as long as it works; its end is told, though nobody listens.
            if self._actors.discard_unstarted(command.child_id):
                self._descendant_quota.release(command.operation_id)
            elif stopped_by.startswith("conv_") or self._descendant_quota.is_counted(command.operation_id):
                self._actors.tell(command.child_id, CancelRun(reason="Nobody waits for it any more."))
            return
        self._descendant_quota.release(command.operation_id)
        if command.child_id.startswith("conv_") and self._agent_calls is not None:
            self._agent_calls.cancel(command.child_id, command.operation_id)


def _trace(command: CallModel | RunTask | ApplyMemory | CallAgent) -> str:
    if isinstance(command, CallModel):
        return command.trace_id or trace.root_trace_id(command.turn_id)
    return trace.scope_trace_id(command.scope)
