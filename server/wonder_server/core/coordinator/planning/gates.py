"""Human gates, at which a run waits for a person (feature G5).

A gate takes one answer, and only for what it showed.
"""

from __future__ import annotations

import hashlib
import json

from wonder_server.core.coordinator.model.inputs import ResolveGate
from wonder_server.core.coordinator.model.values import Gate, GateStatus, Operation
from wonder_server.core.coordinator.planning.plan_builder import PlanBuilder
from wonder_server.core.definitions.specs import GateExpiry, HumanGate, Node
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema import schemas


def open_gate(builder: PlanBuilder, operation: Operation, node: Node, shown: JsonDict) -> None:
    """Open the node's gate. ``shown``, the node's input, is shown to the person."""
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


def shown_hash(prompt: str, shown: JsonDict) -> str:
    """Return the SHA-256 of a gate's prompt and input, in hexadecimal."""
    text = json.dumps([prompt, shown], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def refusal(gate: Gate | None, event: ResolveGate) -> Fault | None:
    """Return the fault if the gate does not accept the answer, else None."""
    if gate is None:
        return Fault(reason=Reason.GATE_RESOLVED, message="The gate is no longer open.", field="gate_id")
    if event.shown_hash != gate.shown_hash:
        return Fault(
            reason=Reason.GATE_RESOLVED,
            message="shown_hash does not match what the gate shows now. Read the gate again.",
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
            message="This gate has no answer_schema. Approve or reject it without an answer.",
            field="answer",
        )
    problems = schemas.validate(gate.answer_schema, event.answer, name="answer")
    if problems:
        message = f"The answer does not match the gate's schema: {'; '.join(problems[:5])}"
        return Fault(reason=Reason.INPUT_INVALID, message=message, field="answer")
    return None


def _unanswered(gate: Gate) -> Fault | None:
    """Return the fault if an approval needs an answer, else None."""
    problems = _problems_of_shown(gate)
    if not problems:
        return None
    message = f"An approval of this gate needs an answer: {problems}. Send an answer that matches, or reject."
    return Fault(reason=Reason.INPUT_INVALID, message=message, field="answer")


def _problems_of_shown(gate: Gate) -> str:
    """Return the reason why an approval without an answer is impossible, or "".

    Without an answer the run continues with what the gate shows, so that must match the schema.
    """
    problems = schemas.validate(gate.answer_schema, gate.shown, name="shown") if gate.answer_schema else ()
    return f"what the gate shows does not match its schema ({'; '.join(problems[:5])})" if problems else ""


def resolve(builder: PlanBuilder, gate: Gate, event: ResolveGate) -> JsonDict:
    """Close the gate with a person's answer and return the node's result."""
    status = GateStatus.APPROVED if event.approve else GateStatus.REJECTED
    return _result(builder.gates.close(gate, status, event))


def expire(builder: PlanBuilder, gate: Gate, policy: GateExpiry) -> JsonDict | str:
    """Close the gate after its time. Return the node's result, or the reason why the node fails."""
    problem = _problems_of_shown(gate) if policy is GateExpiry.APPROVE else ""
    if policy is GateExpiry.FAIL or problem:
        builder.gates.close(gate, GateStatus.EXPIRED)
        return problem and f", and on_expire cannot approve it: {problem}"
    status = GateStatus.APPROVED if policy is GateExpiry.APPROVE else GateStatus.REJECTED
    return _result(builder.gates.close(gate, status))


def _result(gate: Gate) -> JsonDict:
    return {
        "decision": "approved" if gate.status is GateStatus.APPROVED else "rejected",
        "input": gate.shown if gate.answer is None else gate.answer,
        "comment": gate.comment,
        "user_id": gate.user_id,
    }


def _names(user_ids: tuple[str, ...]) -> str:
    return ", ".join(f"`{user}`" for user in user_ids[:5]) + (", …" if len(user_ids) > 5 else "")
