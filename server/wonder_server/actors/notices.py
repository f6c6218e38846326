"""Log lines for what went wrong and fails no turn: a hook that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wonder_server.core.conversation.decisions import AssemblyFailed, CancelOperation, ExtractionEnded
from wonder_server.core.conversation.inputs import Failed, Succeeded, Woken
from wonder_server.core.conversation.values import HookOutcome, OperationKind
from wonder_server.logs import logger

_log = logger("actors")

_UNUSABLE = "It put out no summary."
_OVERDUE = "It took too long."


def note(actor_id: str, event: Any, decisions: Sequence[Any]) -> None:
    """Log the hooks that ``decisions``, which ``event`` led to, give up."""
    for decision in decisions:
        kind = type(decision)
        if kind is ExtractionEnded and decision.outcome.fault is not None:
            _log_hook("memory_extraction_failed", actor_id, decision.turn.id, decision.outcome)
        elif kind is AssemblyFailed:
            _log_hook("context_assembly_failed", actor_id, decision.turn_id, decision.outcome)
        elif kind is CancelOperation and decision.operation.kind is OperationKind.SUMMARY:
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
                    _log.warning("summarization_failed", **where, why=_UNUSABLE)
                case Woken():
                    _log.warning("summarization_failed", **where, why=_OVERDUE)


def _log_hook(event: str, actor_id: str, turn_id: str, outcome: HookOutcome) -> None:
    fault = outcome.fault
    assert fault is not None, "only what failed is logged"
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
