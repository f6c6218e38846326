"""The executor: runs tasks (document 5; features H1, H2, I1, G6).

The interpreter (``core/task/plan.py``) decides; the executor does what it says, with the patience that
the definitions give:

    action   its ``timeout_ms`` for each try; transient faults are tried again with exponential backoff,
             unseen by the task
    task     its ``retry.timeout_ms`` for everything together, its own retries included

Stateless: all that it knows of a task is in the call. Cancelling the call stops the action that runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from wonder_server.core import schemas
from wonder_server.core.definitions.specs import Action, PinnedTask, Step
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.task import plan
from wonder_server.services.actions import ACTIONS, ActionCall, ActionKind, ExecutionContext, Services

_log = structlog.get_logger(__name__)

LONGEST_STRETCH_S = 0.005
"""A task whose steps never wait gives way to others after this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """What became of one step, or that it has begun.

    ``status`` is ``running`` (only while progress is told), ``completed``, ``skipped`` or ``failed``;
    ``attempt`` is the task's, from 1; ``tries`` is how often the action ran. Times in milliseconds.
    """

    step_id: str
    kind: str
    position: int
    attempt: int
    status: str
    tries: int = 0
    started_ms: int = 0
    duration_ms: int = 0
    fault: Fault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """How a task ended: exactly one of ``output`` and ``fault`` is set."""

    output: dict[str, Any] | None = None
    fault: Fault | None = None
    steps: tuple[StepTrace, ...] = ()


Progress = Callable[[StepTrace], None]
Sleep = Callable[[float], Awaitable[None]]


class Executor:
    """Runs tasks with the given services and action kinds."""

    def __init__(
        self,
        services: Services,
        *,
        kinds: Mapping[str, ActionKind] = ACTIONS,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._services = services
        self._kinds = kinds
        self._sleep = sleep

    async def execute(
        self,
        task: PinnedTask,
        input: Mapping[str, Any],
        context: ExecutionContext,
        on_progress: Progress | None = None,
    ) -> TaskOutcome:
        """Run a task to its end. Whatever goes wrong is a fault of the outcome; only a cancel is raised.

        ``on_progress`` is told when a step begins and when it is over.
        """
        run = _TaskRun(self, task, context, on_progress)
        limit_ms = task.spec.retry.timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                output = await run.to_the_end(input)
        except TimeoutError:
            fault = Fault(
                reason=Reason.TIMEOUT,
                message=f"The task took longer than {limit_ms} ms.",
                metadata={"task": str(task.pin)},
            )
            return TaskOutcome(fault=fault, steps=tuple(run.trace))
        if isinstance(output, Fault):
            return TaskOutcome(fault=output, steps=tuple(run.trace))
        return TaskOutcome(output=output, steps=tuple(run.trace))

    async def wait(self, delay_ms: int) -> None:
        """Let time pass before something is tried again."""
        await self._sleep(delay_ms / 1000)

    async def act(
        self, action: Action, input: Mapping[str, Any], context: ExecutionContext
    ) -> tuple[plan.Outcome, int]:
        """Carry out one action, infrastructure retries included: its outcome, and how often it ran."""
        kind = self._kinds.get(action.kind)
        if kind is None:
            message = f"There is no action kind '{action.kind}' on this server."
            return Fault(reason=Reason.NOT_IMPLEMENTED, message=message), 0
        problems = schemas.validate(kind.input_schema, input, name="input")
        if problems:
            message = f"The input does not fit the action '{kind.name}': {'; '.join(problems[:5])}"
            return Fault(reason=Reason.INPUT_INVALID, message=message), 0
        call = ActionCall(input=input, context=context, services=self._services)
        delay_ms = max(action.backoff_ms, kind.least_backoff_ms)
        tries = 1
        while True:
            outcome = await _attempt(kind, call, action.timeout_ms)
            if not isinstance(outcome, Fault) or not outcome.transient or tries >= action.max_attempts:
                return outcome, tries
            await self.wait(max(delay_ms, outcome.retry_after_ms or 0))
            delay_ms *= 2
            tries += 1

    @property
    def clock_ms(self) -> int:
        """Now, in milliseconds since 1970."""
        return self._services.clock.now_ms()


class _TaskRun:
    """One execution of one task; ``trace`` grows as its steps end."""

    def __init__(
        self, executor: Executor, task: PinnedTask, context: ExecutionContext, on_progress: Progress | None
    ) -> None:
        self._executor = executor
        self._task = task
        self._context = context
        self._on_progress = on_progress
        self.trace: list[StepTrace] = []

    async def to_the_end(self, input: Mapping[str, Any]) -> dict[str, Any] | Fault:
        """The task's output, or why there is none."""
        state = plan.begin(self._task, input)
        if isinstance(state, plan.Failed):
            return state.fault
        began = time.perf_counter()
        while True:
            decision = plan.decide(self._task, state)
            if isinstance(decision, plan.Done):
                return decision.output
            decision = await self._carry_out(decision, state)
            if isinstance(decision, plan.Failed):
                return decision.fault
            if isinstance(decision, plan.RetryTask):
                await self._executor.wait(decision.delay_ms)
            state = decision.state
            if time.perf_counter() - began > LONGEST_STRETCH_S:
                await asyncio.sleep(0)
                began = time.perf_counter()

    async def _carry_out(
        self, decision: plan.Skip | plan.Run | plan.AfterFailure, state: plan.TaskState
    ) -> plan.Skip | plan.AfterFailure:
        """Do what there is to do for a step, and note what became of it."""
        started_ms, tries = self._executor.clock_ms, 0
        if isinstance(decision, plan.Run):
            self._tell_begun(decision, state, started_ms)
            context = replace(self._context, key=f"{self._context.key}/{decision.step.id}")
            outcome, tries = await self._executor.act(decision.action, decision.input, context)
            decision = plan.record(self._task, state, outcome)
        if state.position < len(self._task.spec.steps):
            self._note(self._task.spec.steps[state.position], state, decision, tries, started_ms)
        return decision

    def _tell_begun(self, run: plan.Run, state: plan.TaskState, started_ms: int) -> None:
        if self._on_progress is not None:
            self._on_progress(
                StepTrace(
                    step_id=run.step.id,
                    kind=run.action.kind,
                    position=run.position,
                    attempt=state.attempt,
                    status="running",
                    started_ms=started_ms,
                )
            )

    def _note(
        self,
        step: Step,
        state: plan.TaskState,
        decision: plan.Skip | plan.AfterFailure,
        tries: int,
        started_ms: int,
    ) -> None:
        fault = None if isinstance(decision, plan.Skip) else decision.fault
        status = "skipped" if isinstance(decision, plan.Skip) else "failed" if fault else "completed"
        entry = StepTrace(
            step_id=step.id,
            kind=step.action.kind if step.action is not None else "",
            position=state.position,
            attempt=state.attempt,
            status=status,
            tries=tries,
            started_ms=started_ms,
            duration_ms=max(self._executor.clock_ms - started_ms, 0),
            fault=fault,
        )
        self.trace.append(entry)
        if self._on_progress is not None:
            self._on_progress(entry)


async def _attempt(kind: ActionKind, call: ActionCall, timeout_ms: int) -> plan.Outcome:
    """One try of an action. A try that ran out of time may be repeated only if the kind may be."""
    deadline = asyncio.timeout(None if kind.keeps_time else timeout_ms / 1000)
    try:
        async with deadline:
            return plan.Succeeded(result=await kind.run(call))
    except WonderError as error:
        return error.fault
    except Exception:
        if deadline.expired():
            message = f"The action '{kind.name}' took longer than {timeout_ms} ms."
            return Fault(reason=Reason.TIMEOUT, message=message, transient=kind.repeatable)
        _log.exception("action failed unexpectedly", kind=kind.name)
        return Fault(reason=Reason.INTERNAL, message=f"The action '{kind.name}' failed unexpectedly.")
