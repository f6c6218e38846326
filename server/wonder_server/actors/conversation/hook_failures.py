"""Log events for failed hooks, which do not fail their turn."""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.conversation.model.decisions import AssemblyFailed, CancelOperation, ExtractionEnded
from wonder_server.core.conversation.model.inputs import Failed, Succeeded, TimerFired
from wonder_server.core.conversation.model.values import HookOutcome, OperationKind
from wonder_server.logs import logger

_log = logger("actors")

_NO_SUMMARY = "The hook returned no summary."
_TIMED_OUT = "The hook timed out."


def log_failed_hooks(actor_id: str, event: object, decisions: Sequence[object]) -> None:
    """Log each hook that ``decisions`` end as failed. ``event`` is the input that led to them.

    An implementation of `LoopPorts.on_planned`; it ignores actors that are not conversations.
    """
    if not actor_id.startswith("conv_"):
        return
    for decision in decisions:
        if isinstance(decision, ExtractionEnded) and decision.outcome.fault is not None:
            _log_hook_failure("memory_extraction_failed", actor_id, decision.turn.id, decision.outcome)
        elif isinstance(decision, AssemblyFailed):
            _log_hook_failure("context_assembly_failed", actor_id, decision.turn_id, decision.outcome)
        elif isinstance(decision, CancelOperation) and decision.operation.kind is OperationKind.SUMMARY:
            operation = decision.operation
            where = {"conversation": actor_id, "turn": operation.turn_id, "run": operation.run_id}
            match event:
                case Failed():
                    _log.warning(
                        "summarization_failed",
                        **where,
                        reason=event.fault.reason.value,
                        why=event.fault.message,
                    )
                case Succeeded():
                    _log.warning("summarization_failed", **where, why=_NO_SUMMARY)
                case TimerFired():
                    _log.warning("summarization_failed", **where, why=_TIMED_OUT)


def _log_hook_failure(event: str, actor_id: str, turn_id: str, outcome: HookOutcome) -> None:
    fault = outcome.fault
    assert fault is not None, "only failed hooks are logged"
    _log.warning(
        event,
        conversation=actor_id,
        turn=turn_id,
        run=outcome.run_id,
        workflow=outcome.workflow,
        attempts=outcome.attempts,
        reason=fault.reason.value,
        why=fault.message,
    )
