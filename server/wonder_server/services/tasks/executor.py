"""The executor: runs tasks (features H1, H2, I1, I4, G6).

The interpreter (``core/task/plan.py``) decides the next action. The executor executes it within these limits:

- An action has its ``timeout_ms`` for each attempt. The executor retries transient faults with exponential
  backoff, invisibly to the task, if the action is repeatable (``core/task/outcome_errors.py``).
- A task has its ``retry.timeout_ms`` for everything, its own retries included.

`Executor.execute` waits for actions. `Executor.execute_inline` is a plain function for tasks whose actions
need not wait, and saves the cost of the event loop. It reports no progress and records no trace.

The executor is stateless: the call contains everything about a task. Cancelling the call stops its running
action."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from wonder_server.core import frozen
from wonder_server.core.definitions.specs import PinnedTask
from wonder_server.core.errors import Fault, Reason, WonderError, system_fault
from wonder_server.core.identity_cache import cache_by_identity
from wonder_server.core.json_types import JsonObject
from wonder_server.core.schema import schemas
from wonder_server.core.task import plan
from wonder_server.core.task.action_effects import may_repeat
from wonder_server.core.task.outcome_errors import NotStartedError, outcome_unknown
from wonder_server.logs import logger
from wonder_server.ports.access import ByPrincipal, working_principal
from wonder_server.ports.clock import Clock
from wonder_server.services.actions import ACTIONS, ActionCall, ActionKind, ExecutionContext, Services
from wonder_server.services.actions.contract.kind import InlineNotPossibleError
from wonder_server.services.tasks.task_run import (
    Ending,
    OnEvent,
    Progress,
    StepProgress,
    StepTrace,
    TaskOutcome,
    TaskRun,
)

__all__ = ["Executor", "OnEvent", "Progress", "StepProgress", "StepTrace", "TaskOutcome"]

_log = logger("executor")

MAX_INLINE_S: Final = 0.005
"""Time after which a task whose steps never wait yields to other work."""

Sleep = Callable[[float], Awaitable[None]]

ActionAttempts = tuple[plan.Outcome, int]
"""The outcome of an action and the number of attempts."""


class Executor:
    """Executes tasks with the given services and action kinds, for the principal of each task's work."""

    def __init__(
        self,
        services: ByPrincipal[Services],
        clock: Clock,
        *,
        kinds: Mapping[str, ActionKind] = ACTIONS,
        sleep: Sleep = asyncio.sleep,
        monotonic_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``monotonic_s`` measures how long a task runs without a pause."""
        self._monotonic_s = monotonic_s
        self._services = services
        self._clock = clock
        self._kinds = kinds
        self._sleep = sleep
        self._may_run_inline = cache_by_identity(self._every_step_may_run_inline)

    async def execute(
        self,
        task: PinnedTask,
        input: JsonObject,
        context: ExecutionContext,
        on_progress: Progress | None = None,
        on_event: OnEvent | None = None,
    ) -> TaskOutcome:
        """Run a task to its end. Every error is a fault of the outcome; only a cancel is raised.

        ``on_progress`` receives the start, progress and end of each step. ``on_event`` receives the events
        that steps emit."""
        run = TaskRun(task, context, self._clock, on_progress, on_event)
        limit_ms = task.spec.retry.timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000) as limit:
                ending = await self._drive(run, input, limit.when() or 0.0)
        except TimeoutError:
            ending = run.timed_out(limit_ms)
        return run.outcome(ending)

    def execute_inline(
        self, task: PinnedTask, input: JsonObject, context: ExecutionContext
    ) -> TaskOutcome | None:
        """Run a task without waiting. Return None if it must be executed with `execute` instead.

        That is the case if an action must wait, if the task takes longer than `MAX_INLINE_S`, or if it pauses
        before a retry. Nothing has happened then: inline actions have no side effects. The outcome has no
        trace."""
        if not self._may_run_inline(task):
            return None
        state = plan.begin(task, input)
        if type(state) is plan.Failed:
            return TaskOutcome(fault=state.fault)
        latest = self._monotonic_s() + min(MAX_INLINE_S, task.spec.retry.timeout_ms / 1000)
        while True:
            decision = plan.decide(task, state)
            if type(decision) is plan.Run:
                try:
                    outcome = self._run_action_inline(decision, context)
                except InlineNotPossibleError:
                    return None
                decision = plan.record(task, state, outcome)
            if type(decision) is plan.Done:
                return TaskOutcome(output=decision.output)
            if type(decision) is plan.Failed:
                return TaskOutcome(fault=decision.fault)
            if type(decision) is plan.RetryTask or self._monotonic_s() > latest:
                return None
            state = decision.state

    # --- execution ------------------------------------------------------------------------------

    async def _drive(self, run: TaskRun, input: JsonObject, deadline: float) -> Ending:
        """Run the task until it ends. ``deadline`` is the event loop's time at which it will be stopped."""
        task, state = run.task, plan.begin(run.task, input)
        if isinstance(state, plan.Failed):
            return state.fault
        began = self._monotonic_s()
        while True:
            decision = plan.decide(task, state)
            if isinstance(decision, plan.Done):
                return decision.output
            started_ms, tries = self._clock.now_ms(), 0
            if isinstance(decision, plan.Run):
                run.step_started(decision, state, started_ms)
                outcome, tries = await self._run_action(run, decision, deadline)
                decision = plan.record(task, state, outcome)
            run.step_ended(state, decision, tries, started_ms)
            if isinstance(decision, plan.Failed):
                return decision.fault
            if isinstance(decision, plan.RetryTask):
                await self._sleep(decision.delay_ms / 1000)
            if self._monotonic_s() - began > MAX_INLINE_S:
                await asyncio.sleep(0)
                began = self._monotonic_s()
            state = decision.state

    async def _run_action(self, run: TaskRun, need: plan.Run, deadline: float) -> ActionAttempts:
        """Execute one action, including infrastructure retries."""
        kind = self._validated_kind(need)
        if isinstance(kind, Fault):
            return kind, 0
        if kind.run_inline is not None:
            with contextlib.suppress(InlineNotPossibleError):
                return self._run_inline(kind, need, run.context), 1
        call = self._call(kind, need, run)
        delay_ms = max(need.action.backoff_ms, kind.min_backoff_ms)
        tries = 1
        while True:
            run.uncertain_step = "" if call.repeatable else need.step.id
            outcome = await _run_attempt(kind, call)
            run.uncertain_step = ""
            if not isinstance(outcome, Fault) or not outcome.transient or tries >= need.action.max_attempts:
                return outcome, tries
            pause_s = max(delay_ms, outcome.retry_after_ms or 0) / 1000
            if asyncio.get_running_loop().time() + pause_s >= deadline:
                return (
                    outcome,
                    tries,
                )  # The task would time out first, and this fault says more.
            await self._sleep(pause_s)
            delay_ms *= 2
            tries += 1

    def _run_action_inline(self, need: plan.Run, context: ExecutionContext) -> plan.Outcome:
        """Execute one action without waiting. Raises `InlineNotPossibleError`."""
        kind = self._validated_kind(need)
        return kind if isinstance(kind, Fault) else self._run_inline(kind, need, context)

    def _run_inline(self, kind: ActionKind, need: plan.Run, context: ExecutionContext) -> plan.Outcome:
        """Return the outcome of an action of an inline kind. Raises `InlineNotPossibleError` for other kinds,
        and for calls that must wait."""
        if kind.run_inline is None:
            raise InlineNotPossibleError
        try:
            call = ActionCall(input=need.input, context=context, services=self._services_for(context))
            return plan.Succeeded(result=kind.run_inline(call))
        except InlineNotPossibleError:
            raise
        except Exception as problem:
            return _fault_of(kind, problem)

    # --- pieces ---------------------------------------------------------------------------------

    def _services_for(self, context: ExecutionContext) -> Services:
        """Return the services for the principal that started the work around the task."""
        return self._services.of(working_principal(context.principal))

    def _every_step_may_run_inline(self, task: PinnedTask) -> bool:
        """Return True if every unconditional action of the task may run inline, so that `execute_inline` may
        succeed."""
        return all(
            step.condition or step.action is None or self._kind_may_run_inline(step.action.kind)
            for step in task.spec.steps
        )

    def _kind_may_run_inline(self, name: str) -> bool:
        kind = self._kinds.get(name)
        return kind is None or kind.run_inline is not None

    def _validated_kind(self, need: plan.Run) -> ActionKind | Fault:
        """Return the kind of an action if its input is valid, else the fault."""
        kind = self._kinds.get(need.action.kind)
        if kind is None:
            message = f"This server has no action kind '{need.action.kind}'."
            return Fault(reason=Reason.NOT_IMPLEMENTED, message=message)
        problems = schemas.validate(kind.input_schema, need.input, name="input")
        if problems:
            message = f"The input is not valid for the action '{kind.name}': {'; '.join(problems[:5])}"
            return Fault(reason=Reason.INPUT_INVALID, message=message)
        return kind

    def _call(self, kind: ActionKind, need: plan.Run, run: TaskRun) -> ActionCall:
        """Return the call of an action that may wait."""
        context = frozen.replace(run.context, key=f"{run.context.key}/{need.step.id}")
        return ActionCall(
            input=need.input,
            context=context,
            services=self._services_for(context),
            timeout_ms=need.action.timeout_ms,
            repeatable=may_repeat(need.step, need.action),
            idempotent=need.action.idempotent,
            progress=partial(run.report_progress, need.step),
            emit=partial(run.emit, need.step, context),
        )


async def _run_attempt(kind: ActionKind, call: ActionCall) -> plan.Outcome:
    """Run one attempt of an action. A transient fault means that another attempt is allowed."""
    deadline = asyncio.timeout(None if kind.enforces_timeout else call.timeout_ms / 1000)
    try:
        async with deadline:
            return plan.Succeeded(result=await kind.run(call))
    except Exception as problem:
        if deadline.expired() and not isinstance(problem, WonderError):
            message = f"The action '{kind.name}' took longer than {call.timeout_ms} ms."
            fault = Fault(reason=Reason.TIMEOUT, message=message, transient=True)
        else:
            fault = _fault_of(kind, problem)
        if not fault.transient or call.repeatable or isinstance(problem, NotStartedError):
            return fault
        return outcome_unknown(fault)


def _fault_of(kind: ActionKind, problem: Exception) -> Fault:
    if isinstance(problem, WonderError):
        return problem.fault
    known = system_fault(problem)
    if known is not None:
        _log.error("action_failed", kind=kind.name, reason=known.reason, problem=str(problem))
        return known
    _log.error("action_failed", kind=kind.name, exc_info=problem)
    return Fault(reason=Reason.INTERNAL, message=f"The action '{kind.name}' failed unexpectedly.")
