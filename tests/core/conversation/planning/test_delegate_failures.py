"""Failures of called agents, as the model of the caller sees them: the code, and whether a retry can help."""

from __future__ import annotations

import pytest

from tests.core.conversation.conversation_kit import NOW
from wonder_server.core.conversation.model.values import Operation, OperationKind, ToolErrorCode
from wonder_server.core.conversation.planning.tool_calls import failure
from wonder_server.core.errors import Fault, Reason

TURN = {"turn_id": "turn_1", "agent_id": "agt_1"}


@pytest.mark.parametrize(
    ("fault", "code", "retriable"),
    [
        (
            Fault(reason=Reason.MODEL_UNAVAILABLE, message="x", metadata=TURN, transient=True),
            "EXECUTION_FAILED",
            True,
        ),
        (
            Fault(reason=Reason.STORAGE_UNAVAILABLE, message="x", metadata=TURN, transient=True),
            "EXECUTION_FAILED",
            True,
        ),
        (Fault(reason=Reason.TIMEOUT, message="x", metadata=TURN, transient=True), "EXECUTION_FAILED", True),
        (Fault(reason=Reason.TIMEOUT, message="x", metadata=TURN), "EXECUTION_FAILED", False),
        (Fault(reason=Reason.BUDGET_EXHAUSTED, message="x", metadata=TURN), "EXECUTION_FAILED", False),
        (Fault(reason=Reason.MODEL_FAILED, message="x", metadata=TURN), "EXECUTION_FAILED", False),
        (
            Fault(reason=Reason.AGENT_DECLINED, message="x", metadata={**TURN, "declined": "true"}),
            "AGENT_DECLINED",
            False,
        ),
        (
            Fault(reason=Reason.MODEL_FAILED, message="x", metadata={**TURN, "declined": "true"}),
            "AGENT_DECLINED",
            False,
        ),
        (
            Fault(reason=Reason.PERMISSION_DENIED, message="x", metadata={"agent_id": "agt_1"}),
            "PERMISSION_DENIED",
            False,
        ),
        (Fault(reason=Reason.AGENT_NOT_FOUND, message="x"), "NOT_FOUND", False),
        (Fault(reason=Reason.LIMIT_EXCEEDED, message="x"), "PERMISSION_DENIED", False),
    ],
)
def test_the_caller_learns_the_kind_of_the_failure(fault: Fault, code: str, retriable: bool) -> None:
    operation = Operation(
        id="op_1", turn_id="turn_9", kind=OperationKind.AGENT, input={}, tool_call_id="call_1", created_ms=NOW
    )
    result = failure(operation, fault, NOW)
    assert (result.code, result.retriable) == (ToolErrorCode(code), retriable)
