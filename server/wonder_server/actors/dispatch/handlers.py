"""Handlers: execute the commands of actors and report the results.

Each operation runs in one asyncio task; a task step that needs no I/O runs inline. A command may arrive
twice, after a crash or for a retry, so the operation's id is the idempotency key of its effects. When the
server stops, it cancels the handlers and they report nothing. Their operations stay in the outbox, and the
next start dispatches them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import assert_never

from wonder_server.actors.access import InternalAccess
from wonder_server.actors.dispatch.agent_calls import AgentCalls
from wonder_server.actors.dispatch.descendant_quota import DescendantQuota, root_of
from wonder_server.actors.dispatch.gate_reports import GateReports
from wonder_server.actors.dispatch.gate_waits import measure_waits
from wonder_server.actors.dispatch.model_calls import ModelCalls
from wonder_server.actors.dispatch.orphans import orphaned_runs
from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.actors.runtime.monotonic import monotonic_s
from wonder_server.actors.streaming.items import NodeProgress
from wonder_server.core import ids
from wonder_server.core.actor import trace
from wonder_server.core.actor.commands import (
    Answer,
    ApplyMemory,
    CallAgent,
    CallModel,
    Command,
    MeasureWaits,
    ReportGate,
    RunTask,
    RunWorkflow,
    Stop,
)
from wonder_server.core.conversation.model.inputs import WaitsMeasured
from wonder_server.core.coordinator.model.inputs import CancelRun, EventEmitted, Start
from wonder_server.core.coordinator.model.values import Run
from wonder_server.core.errors import WonderError
from wonder_server.core.frozen import replace
from wonder_server.core.identity import SERVER
from wonder_server.core.json_types import JsonObject
from wonder_server.logs import logger
from wonder_server.ports.executor import MemoryOperations, TaskExecutor, TaskOutcome
from wonder_server.ports.journal import Unfinished
from wonder_server.ports.records import Query

_log = logger("actors")

OperationWork = Callable[[], Awaitable[Callable[[], None]]]
"""Executes an operation and returns the callback that reports its result. The operation's own task calls
it, so an operation that is cancelled before its task runs has no effect."""

MAX_FEW_DESCENDANTS = 8
"""Child runs and called agents in progress below a root run above which further ones start with low priority.
A parent's commit waits for children that start at once, so a run with few short children is one commit."""

MAX_INLINE_S = 0.005
"""Time that inline tasks take before other callbacks of the event loop run."""

_CANCEL_ABANDONED = CancelRun(
    reason="The operation that started this run was cancelled, failed or timed out.", principal=SERVER.text
)
"""The server cancels a run that no operation waits for."""


class Handlers:
    """Executes commands. Every operation reports its result to its actor through the directory.

    The loop calls `dispatch`. It also calls ``quota.release`` for each result (`LoopPorts.on_result`).
    """

    def __init__(
        self,
        *,
        access: InternalAccess,
        tasks: TaskExecutor,
        memory: MemoryOperations,
        model_calls: ModelCalls,
        agent_calls: AgentCalls,
        quota: DescendantQuota,
    ) -> None:
        self._directory = access.directory
        self._records = access.records
        self._gate_reports = GateReports(access)
        self._clock = access.clock
        self._streams = access.directory.streams
        self._tasks = tasks
        self._memory = memory
        self._model_calls = model_calls
        self._agent_calls = agent_calls
        self._running: dict[str, asyncio.Task[None]] = {}
        """Tasks of operations, by operation id."""
        self._cancelling: set[asyncio.Task[None]] = set()
        """Tasks that cancel called agents and orphans."""
        self._quota = quota
        self._inline_since: float | None = None
        """Start of the current inline slice, in the event loop's time; None outside one."""
        self._stopping = False

    async def cancel_orphans(self, actor_ids: Sequence[str]) -> int:
        """Cancel the runs and turns of these actors whose parents no longer wait for them, after a start.

        Return the number of cancelled operations.
        """
        orphans: list[str] = []
        if run_ids := [actor_id for actor_id in actor_ids if actor_id.startswith("run_")]:
            orphans = await orphaned_runs(self._records, run_ids)
        for run_id in orphans:
            self._directory.tell(run_id, _CANCEL_ABANDONED)
        conversation_ids = [actor_id for actor_id in actor_ids if actor_id.startswith("conv_")]
        if not conversation_ids:
            return len(orphans)
        return len(orphans) + await self._agent_calls.cancel_orphans(conversation_ids)

    async def report_gates(self, actors: Sequence[Unfinished]) -> None:
        """Report the gates of these actors that a kill kept from the conversations above."""
        await self._gate_reports.resume(actors)

    async def root_of(self, actor_id: str) -> str:
        """Return the root run below which the children of a stored actor count: "" for a conversation, or if
        the run's record is damaged."""
        if not actor_id.startswith("run_"):
            return ""
        query = Query(table="runs", actor=actor_id, id=actor_id, limit=1, lenient=True)
        found: list[Run] = await self._records.find(query)
        return (found[0].scope.root_id or actor_id) if found else ""

    def count_child(self, root_id: str, operation_id: str) -> None:
        """Count the unfinished child run of an operation that a start does not dispatch again."""
        self._quota.adopt(root_id, operation_id)

    def _track(self, work: Coroutine[object, None, None]) -> None:
        """Run work in a task that `stop` cancels."""
        task = asyncio.get_running_loop().create_task(work)
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    @property
    def running(self) -> int:
        """Number of operations in progress."""
        return len(self._running)

    def dispatch(self, actor_id: str, command: Command) -> None:
        """Start to execute ``command`` and return at once."""
        if self._stopping:
            return
        match command:
            case CallModel():
                self._start_operation(command, actor_id, lambda: self._model_calls.call(actor_id, command))
            case RunTask():
                self._start_task(actor_id, command)
            case ApplyMemory():
                self._start_operation(command, actor_id, lambda: self._apply_memory(actor_id, command))
            case RunWorkflow():
                self._start_run(command)
            case CallAgent():
                self._start_agent_call(actor_id, command)
            case Stop():
                self._stop_operation(actor_id, command)
            case MeasureWaits() | ReportGate():
                self._attend_gates(actor_id, command)
            case Answer():
                raise AssertionError("the loop delivers answers itself")
            case _:
                assert_never(command)

    async def stop(self) -> None:
        """Cancel all operations without reporting them."""
        self._stopping = True
        self._model_calls.stop()
        running = [*self._running.values(), *self._cancelling]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    # --- operations -----------------------------------------------------------------------------

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
        """Execute the work, then report it. A cancelled operation reports nothing."""
        operation_id = command.operation_id
        try:
            report = await work()
        except WonderError as problem:
            report = partial(self._directory.report_failure, actor_id, operation_id, problem.fault)
        except Exception:
            where = {"actor": actor_id, "operation": operation_id, "trace": _trace(command)}
            fault = report_incident("handler_failed", **where)
            report = partial(self._directory.report_failure, actor_id, operation_id, fault)
        finally:
            if self._running.get(operation_id) is asyncio.current_task():
                del self._running[operation_id]
        if not self._stopping:
            report()

    def _stop_operation(self, stopped_by: str, command: Stop) -> None:
        task = self._running.pop(command.operation_id, None)
        if task is not None:
            task.cancel()
        if command.child_id.startswith("run_"):
            # A run counts until it has ended or is withdrawn; both report a result.
            if stopped_by.startswith("conv_") or self._quota.is_counted(command.operation_id):
                self._directory.tell(command.child_id, _CANCEL_ABANDONED, withdraws=True)
            return
        self._quota.release(command.operation_id)
        if command.child_id.startswith("conv_"):
            self._track(self._agent_calls.cancel(command.child_id, command.operation_id))

    def _attend_gates(self, actor_id: str, command: MeasureWaits | ReportGate) -> None:
        if isinstance(command, MeasureWaits):
            self._track(self._measure_waits(actor_id, command))
        elif not self._gate_reports.report(command):
            self._track(self._gate_reports.report_through_runs(command))

    async def _measure_waits(self, actor_id: str, command: MeasureWaits) -> None:
        """Tell the actor how long the work of its call has waited for people. If the store fails, the actor
        asks again."""
        try:
            waited = await measure_waits(
                self._records, command.child_id, command.since_ms, self._clock.now_ms()
            )
        except WonderError as problem:
            _log.warning("waits_not_measured", actor=actor_id, problem=problem.fault.message)
            return
        measured = WaitsMeasured(
            operation_id=command.operation_id, waited_ms=waited.total_ms, waits=waited.waits
        )
        self._directory.tell(actor_id, measured)

    async def _apply_memory(self, actor_id: str, command: ApplyMemory) -> Callable[[], None]:
        output = await self._memory.apply(command.operation, command.scope)
        return lambda: self._directory.report_success(actor_id, command.operation_id, output)

    # --- tasks ----------------------------------------------------------------------------------

    def _start_task(self, actor_id: str, command: RunTask) -> None:
        if not self._run_task_inline(actor_id, command):
            self._start_operation(command, actor_id, lambda: self._run_task(actor_id, command))

    async def _run_task(self, actor_id: str, command: RunTask) -> Callable[[], None]:
        progress = partial(self._publish_progress, actor_id, command)
        on_event = partial(self._report_event, actor_id, command)
        # Only tasks of runs have readers for progress and a record for events.
        callbacks = (progress, on_event) if command.node_id else (None, None)
        outcome = await self._tasks.execute(command.task, command.input, command.scope, *callbacks)
        return partial(self._report_task, actor_id, command, outcome)

    def _run_task_inline(self, actor_id: str, command: RunTask) -> bool:
        """Execute a task that needs no I/O and report it at once. Return False if the task needs an asyncio
        task of its own, or if inline tasks have used up `MAX_INLINE_S`."""
        now = monotonic_s()
        if self._inline_since is None:
            self._inline_since = now
            asyncio.get_running_loop().call_soon(self._end_inline_slice)
        elif now - self._inline_since > MAX_INLINE_S:
            return False
        try:
            outcome = self._tasks.execute_inline(command.task, command.input, command.scope)
        except Exception:
            where = {"actor": actor_id, "operation": command.operation_id, "trace": _trace(command)}
            fault = report_incident("handler_failed", **where)
            self._directory.report_failure(actor_id, command.operation_id, fault)
            return True
        if outcome is None:
            return False
        self._report_task(actor_id, command, outcome)
        return True

    def _end_inline_slice(self) -> None:
        self._inline_since = None

    def _report_task(self, actor_id: str, command: RunTask, outcome: TaskOutcome) -> None:
        if outcome.fault is not None:
            self._directory.report_failure(actor_id, command.operation_id, outcome.fault)
        else:
            self._directory.report_success(actor_id, command.operation_id, outcome.output or {})

    def _publish_progress(self, actor_id: str, command: RunTask, item: object) -> None:
        progress = NodeProgress(node_id=command.node_id, execution_id=command.operation_id, item=item)
        self._streams.publish_progress(actor_id, progress)

    def _report_event(
        self, actor_id: str, command: RunTask, key: str, name: str, payload: JsonObject
    ) -> None:
        event = EventEmitted(operation_id=command.operation_id, key=key, name=name, payload=dict(payload))
        self._directory.tell(actor_id, event)

    # --- child runs and called agents -----------------------------------------------------------

    def _start_run(self, command: RunWorkflow) -> None:
        if not self._acquire_descendant(command):
            # A run that was dispatched before may be running since before a restart.
            if not command.fresh:
                self._directory.tell(command.run_id, _CANCEL_ABANDONED)
            return
        start = Start(
            run_id=command.run_id,
            workflow=command.workflow,
            input=command.input,
            scope=replace(command.scope, root_id=root_of(command)),
            parent=command.parent,
            volatile=command.volatile,
        )
        # A conversation has few runs at a time; a run may have thousands.
        is_one_of_many = (
            ids.is_id("run", command.parent.actor_id)
            and self._quota.count(root_of(command)) > MAX_FEW_DESCENDANTS
        )
        self._directory.tell(command.run_id, start, fresh=command.fresh, low_priority=is_one_of_many)

    def _start_agent_call(self, actor_id: str, command: CallAgent) -> None:
        if self._acquire_descendant(command):
            self._start_operation(command, actor_id, lambda: self._call_agent(command))

    async def _call_agent(self, command: CallAgent) -> Callable[[], None]:
        await self._agent_calls.begin(command)
        return _report_nothing

    def _acquire_descendant(self, command: RunWorkflow | CallAgent) -> bool:
        """Acquire quota below the root run. If there is none, fail the operation and return False."""
        root_id, parent = root_of(command), command.parent
        fault = self._quota.acquire(root_id, command.operation_id) if root_id else None
        if fault is not None:
            self._directory.report_failure(parent.actor_id, parent.operation_id, fault)
        return fault is None


def _report_nothing() -> None:
    """Do nothing: the end of the called agent's turn reports the result."""


def _trace(command: CallModel | RunTask | ApplyMemory | CallAgent) -> str:
    if isinstance(command, CallModel):
        return command.trace_id or trace.root_trace_id(command.turn_id)
    return trace.scope_trace_id(command.scope)
