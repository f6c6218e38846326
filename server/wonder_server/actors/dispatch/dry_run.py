"""Dry runs: a loop executes a workflow against a journal that is discarded.

Only read-only tasks may run. A task that could change something fails, and so does the call of an agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, assert_never

from wonder_server.actors.runtime.incidents import report_incident
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.loop import LoopPorts
from wonder_server.actors.runtime.loops import Loops
from wonder_server.core import ids
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
    Scope,
    Stop,
)
from wonder_server.core.coordinator.model.inputs import CancelRun, Start
from wonder_server.core.coordinator.model.values import Run
from wonder_server.core.coordinator.output.record import RUN_ENDED
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import PinnedTask, PinnedWorkflow
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.task.action_effects import is_read_only
from wonder_server.ports.clock import Clock
from wonder_server.ports.executor import TaskExecutor
from wonder_server.ports.journal import Event, Journal

_SHARD: Final = 0
"""The shard of a dry run, in a journal of its own."""


class DryRuns:
    """Executes workflows to show their output. ``new_journal`` returns an empty journal in memory."""

    def __init__(self, tasks: TaskExecutor, clock: Clock, new_journal: Callable[[], Journal]) -> None:
        self._tasks = tasks
        self._clock = clock
        self._new_journal = new_journal

    async def run(self, workflow: PinnedWorkflow, given: JsonDict, scope: Scope, timeout_ms: int) -> JsonDict:
        """Return the workflow's output. Errors: the fault of the run, TIMEOUT."""
        dry_run = _DryRun(self._tasks, self._clock, self._new_journal())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await dry_run.run(workflow, given, scope)
        except TimeoutError:
            raise error(Reason.TIMEOUT, f"The workflow did not end within {timeout_ms} ms.") from None
        finally:
            await dry_run.close()


class _DryRun:
    """One dry run with its child runs."""

    def __init__(self, tasks: TaskExecutor, clock: Clock, journal: Journal) -> None:
        self._tasks = tasks
        self._clock = clock
        self._running: dict[str, asyncio.Task[None]] = {}
        self._run_id = ids.actor_id("run", clock.now_ms(), _SHARD)
        self._ended: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._loops = Loops(
            (RUN,),
            LoopPorts(
                journal_of=lambda _: journal, clock=clock, dispatch=self._dispatch, publish=self._publish
            ),
            LoopLimits(),
        )
        self._loops.gain(_SHARD, epoch=0)

    async def run(self, workflow: PinnedWorkflow, given: JsonDict, scope: Scope) -> JsonDict:
        start = Start(run_id=self._run_id, workflow=workflow, input=given, scope=scope)
        await self._loops.ask(self._run_id, start, fresh=True)
        ended = await self._ended
        if ended.fault is not None:
            raise WonderError(ended.fault)
        return ended.output

    async def close(self) -> None:
        """Cancel the running tasks and stop the loop."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self._loops.stop()

    def _publish(self, actor_id: str, events: list[Event]) -> None:
        for event in events:
            if event.emit.kind in RUN_ENDED and actor_id == self._run_id and not self._ended.done():
                self._ended.set_result(event.emit.value)

    def _dispatch(self, actor_id: str, command: Command) -> None:
        match command:
            case RunTask():
                work = asyncio.get_running_loop().create_task(self._execute(actor_id, command))
                self._running[command.operation_id] = work
            case RunWorkflow():
                start = Start(
                    run_id=command.run_id,
                    workflow=command.workflow,
                    input=command.input,
                    scope=command.scope,
                    parent=command.parent,
                )
                self._loops.tell(command.run_id, start, fresh=True)
            case CallAgent():
                self._loops.report_failure(actor_id, command.operation_id, _refusal("it calls an agent"))
            case Stop():
                task = self._running.pop(command.operation_id, None)
                if task is not None:
                    task.cancel()
                if command.child_id.startswith("run_"):
                    self._loops.tell(
                        command.child_id,
                        CancelRun(reason="The operation that started this run was cancelled."),
                    )
            case ReportGate():
                pass  # The run has no turn above it.
            case CallModel() | ApplyMemory() | MeasureWaits() | Answer():
                raise AssertionError("a run has no such command")
            case _:
                assert_never(command)

    async def _execute(self, actor_id: str, command: RunTask) -> None:
        try:
            fault, output = await self._outcome(command.task, command)
        except WonderError as problem:
            fault, output = problem.fault, {}
        except Exception:
            fault, output = report_incident("dry_run_failed", operation=command.operation_id), {}
        self._running.pop(command.operation_id, None)
        if fault is not None:
            self._loops.report_failure(actor_id, command.operation_id, fault)
        else:
            self._loops.report_success(actor_id, command.operation_id, output)

    async def _outcome(self, task: PinnedTask, command: RunTask) -> tuple[Fault | None, JsonDict]:
        if not is_read_only(task):
            return _refusal(f"the task {task.pin} may change something"), {}
        done = await self._tasks.execute(task, command.input, command.scope, None, None)
        return done.fault, done.output or {}


def _refusal(why: str) -> Fault:
    return Fault(reason=Reason.TASK_FAILED, message=f"A dry run cannot execute this workflow: {why}.")
