"""Human gates: a run waits for a person (features G5). An answer counts once, and for what was shown."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from wonder_server.core.coordinator.inputs import ResolveGate
from wonder_server.core.coordinator.plan_builder import PlanBuilder
from wonder_server.core.coordinator.values import Gate, GateStatus, Operation
from wonder_server.core.definitions.specs import GateExpiry, HumanGate, Node
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.schema import schemas


def open_gate(builder: PlanBuilder, operation: Operation, node: Node, shown: dict[str, Any]) -> None:
    """Ask. The node's input is what the person is shown."""
    gate = node.human_gate or HumanGate()
    builder.gates.open(
        Gate(
            id=operation.child_id,
            run_id=builder.run.id,
            operation_id=operation.id,
            node_id=node.id,
            project_id=builder.run.scope.project_id,
            workflow_ref=builder.compiled.ref,
            prompt=gate.prompt,
            shown=shown,
            shown_hash=shown_hash(gate.prompt, shown),
            answer_schema=gate.answer_schema,
            user_ids=gate.user_ids,
            created_ms=builder.now,
            expires_ms=operation.until_ms,
        )
    )


def shown_hash(prompt: str, shown: dict[str, Any]) -> str:
    """SHA-256 of what a person is asked and shown, in hexadecimal."""
    text = json.dumps([prompt, shown], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def refusal(gate: Gate | None, event: ResolveGate) -> Fault | None:
    """Why an answer is not taken."""
    if gate is None:
        return Fault(reason=Reason.GATE_RESOLVED, message="The gate is not open any more.", field="gate_id")
    if event.shown_hash != gate.shown_hash:
        return Fault(
            reason=Reason.GATE_RESOLVED,
            message="This answer is for something else than the gate shows now; read the gate again.",
            field="shown_hash",
        )
    if gate.user_ids and event.user_id not in gate.user_ids:
        return Fault(
            reason=Reason.PERMISSION_DENIED,
            message=f"`{event.user_id[:64]}` may not resolve this gate; it is for {_names(gate.user_ids)}.",
            field="user_id",
        )
    if event.answer is None:
        return _unanswered(gate) if event.approve and gate.answer_schema else None
    if not gate.answer_schema:
        return Fault(
            reason=Reason.INPUT_INVALID,
            message="This gate takes no answer, only a decision.",
            field="answer",
        )
    problems = schemas.validate(gate.answer_schema, event.answer, name="answer")
    if problems:
        message = f"The answer does not match the gate's schema: {'; '.join(problems[:5])}"
        return Fault(reason=Reason.INPUT_INVALID, message=message, field="answer")
    return None


def _unanswered(gate: Gate) -> Fault | None:
    """Why an approval needs an answer: without one the run goes on with what is shown, which is held to the
    schema in its place."""
    problems = schemas.validate(gate.answer_schema, gate.shown, name="shown")
    if not problems:
        return None
    message = (
        "This gate takes no approval without an answer: what it shows does not match its schema "
        f"({'; '.join(problems[:5])}). Send an answer that does, or reject."
    )
    return Fault(reason=Reason.INPUT_INVALID, message=message, field="answer")


def resolve(builder: PlanBuilder, gate: Gate, event: ResolveGate) -> dict[str, Any]:
    """Somebody has answered: the node's result."""
    status = GateStatus.APPROVED if event.approve else GateStatus.REJECTED
    return _result(
        builder.gates.close(gate, status, user_id=event.user_id, answer=event.answer, comment=event.comment)
    )


def expire(builder: PlanBuilder, gate: Gate, policy: GateExpiry) -> dict[str, Any] | None:
    """Nobody has answered in time: the node's result, None if it has none."""
    if policy is GateExpiry.FAIL:
        builder.gates.close(gate, GateStatus.EXPIRED)
        return None
    status = GateStatus.APPROVED if policy is GateExpiry.APPROVE else GateStatus.REJECTED
    return _result(builder.gates.close(gate, status))


def _result(gate: Gate) -> dict[str, Any]:
    return {
        "decision": "approved" if gate.status is GateStatus.APPROVED else "rejected",
        "input": gate.shown if gate.answer is None else gate.answer,
        "comment": gate.comment,
        "user_id": gate.user_id,
    }


def _names(user_ids: tuple[str, ...]) -> str:
    return ", ".join(f"`{user}`" for user in user_ids[:5]) + (", …" if len(user_ids) > 5 else "")
