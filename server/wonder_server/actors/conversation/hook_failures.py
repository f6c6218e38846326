"""Failures of hooks: one log event for each, and a count of those in a row for each agent and hook.

Most hooks that fail do not fail their turn, so a broken one would stay unseen. The counts are those of this
process: a restart begins anew, and so does the first success of the hook.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Final

from wonder_server.core.conversation.model.decisions import (
    AssemblyFailed,
    CancelOperation,
    ContextAssembled,
    ExtractionEnded,
    HistorySummarized,
)
from wonder_server.core.conversation.model.event_payloads import HookOutcome
from wonder_server.core.conversation.model.inputs import Failed, Succeeded, TimerFired
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Operation, OperationKind
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.ports.hook_failures import Hook, HookFailure

_log = logger("actors")

MAX_COUNTED: Final = 10_000
"""Agents and hooks with a count. Beyond it, the one that failed the longest ago is forgotten."""

ERROR_AFTER: Final = 5
"""Failures in a row from which on the log event is an error: the hook is broken, not unlucky."""

_NO_SUMMARY = Fault(reason=Reason.OUTPUT_INVALID, message="The hook returned no summary.")
_TIMED_OUT = Fault(reason=Reason.TIMEOUT, message="The hook timed out.")


class HookFailures:
    """Logs and counts failed hooks. Implements the port `wonder_server.ports.hook_failures.FailedHooks`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted: OrderedDict[tuple[str, Hook], HookFailure] = OrderedDict()

    def of_agent(self, agent_id: str) -> list[HookFailure]:
        """Return the hooks of the agent that failed the last time, in the order of `Hook`."""
        found = (self._counted.get((agent_id, hook)) for hook in Hook)
        return [failure for failure in found if failure is not None]

    def failing(self) -> dict[Hook, int]:
        """Return for each hook the number of agents whose hook failed the last time it ran."""
        found = Counter(hook for _, hook in self._counted)
        return {hook: found[hook] for hook in Hook}

    def on_planned(
        self, actor_id: str, state: ConversationState, event: object, decisions: Iterable[object]
    ) -> None:
        """Record the hooks of a conversation that ``decisions`` end. ``event`` is the input that led to them,
        and ``state`` the state after them."""
        for decision in decisions:
            match decision:
                case ContextAssembled():
                    self._succeeded(decision.turn.agent_id, Hook.ASSEMBLY)
                case HistorySummarized():
                    self._succeeded(_agent_id(state, decision.turn_id), Hook.SUMMARY)
                case ExtractionEnded():
                    if decision.outcome.fault is None:
                        self._succeeded(decision.turn.agent_id, Hook.EXTRACTION)
                    else:
                        self._ended(Hook.EXTRACTION, actor_id, state, decision.turn.id, decision.outcome)
                case AssemblyFailed():
                    self._ended(Hook.ASSEMBLY, actor_id, state, decision.turn_id, decision.outcome)
                case CancelOperation() if decision.operation.kind is OperationKind.SUMMARY:
                    fault = _fault_of_summary(event)
                    if fault is not None:
                        outcome = _outcome_of_summary(state, decision.operation, fault)
                        self._ended(Hook.SUMMARY, actor_id, state, decision.operation.turn_id, outcome)

    def _ended(
        self, hook: Hook, actor_id: str, state: ConversationState, turn_id: str, outcome: HookOutcome
    ) -> None:
        """Count and log a failed hook."""
        assert outcome.fault is not None, "the hook failed"
        failure = HookFailure(
            hook=hook,
            workflow=outcome.workflow,
            conversation_id=actor_id,
            turn_id=turn_id,
            run_id=outcome.run_id,
            fault=outcome.fault,
        )
        self._failed(_agent_id(state, turn_id), failure, attempts=outcome.attempts)

    def _succeeded(self, agent_id: str, hook: Hook) -> None:
        if self._counted:
            self._counted.pop((agent_id, hook), None)

    def _failed(self, agent_id: str, failure: HookFailure, attempts: int) -> None:
        now = self._clock.now_ms()
        before = self._counted.pop((agent_id, failure.hook), None)
        failure = replace(
            failure,
            count=1 + (before.count if before is not None else 0),
            first_ms=before.first_ms if before is not None else now,
            last_ms=now,
        )
        self._counted[agent_id, failure.hook] = failure
        while len(self._counted) > MAX_COUNTED:
            self._counted.popitem(last=False)
        match failure.hook:
            case Hook.ASSEMBLY:
                _log_failure("context_assembly_failed", agent_id, failure, attempts)
            case Hook.EXTRACTION:
                _log_failure("memory_extraction_failed", agent_id, failure, attempts)
            case Hook.SUMMARY:
                _log_failure("summarization_failed", agent_id, failure, attempts)


def _log_failure(event: str, agent_id: str, failure: HookFailure, attempts: int) -> None:
    _log.log(
        logging.ERROR if failure.count >= ERROR_AFTER else logging.WARNING,
        event,
        agent=agent_id,
        conversation=failure.conversation_id,
        turn=failure.turn_id,
        run=failure.run_id,
        workflow=failure.workflow,
        attempts=attempts,
        in_a_row=failure.count,
        reason=failure.fault.reason.value,
        problem=failure.fault.message,
    )


def _agent_id(state: ConversationState, turn_id: str) -> str:
    turn = state.turns.get(turn_id)
    return turn.agent_id if turn is not None else ""


def _outcome_of_summary(state: ConversationState, operation: Operation, fault: Fault) -> HookOutcome:
    work = state.turn_work.get(operation.turn_id)
    workflow = work.agent.summary if work is not None else None
    return HookOutcome(
        run_id=operation.run_id,
        workflow=str(workflow.pin) if workflow is not None else "",
        attempts=operation.attempt,
        duration_ms=0,
        fault=fault,
    )


def _fault_of_summary(event: object) -> Fault | None:
    """Return why the input ended a summary; None if it did not fail, such as after a cancel."""
    match event:
        case Failed():
            return event.fault
        case Succeeded():
            return _NO_SUMMARY
        case TimerFired():
            return _TIMED_OUT
    return None
