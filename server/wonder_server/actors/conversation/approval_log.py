"""Log events about tool calls that wait for approval because their expression failed (feature M9)."""

from __future__ import annotations

from collections.abc import Iterable

from wonder_server.core.conversation.model.decisions import RequestApproval
from wonder_server.logs import logger

_log = logger("actors")


def log_failed_approvals(actor_id: str, decisions: Iterable[object]) -> None:
    """Log each call of a conversation whose approval expression could not decide. The call waits for a
    person.
    """
    for decision in decisions:
        if type(decision) is RequestApproval and decision.gate.problem:
            gate = decision.gate
            _log.warning(
                "approval_expression_failed",
                conversation=actor_id,
                turn=gate.turn_id,
                gate=gate.id,
                tool=gate.tool_id,
                problem=gate.problem,
            )
