"""Human gates, at which a run waits for a person (feature G5).

What an answer must be is in `wonder_server.core.actor.gates`.
"""

from __future__ import annotations

from wonder_server.core.actor.gates import Gate, GateStatus, ResolveGate, problems_of_shown, shown_hash
from wonder_server.core.coordinator.model.values import Operation
from wonder_server.core.coordinator.planning.plan_builder import PlanBuilder
from wonder_server.core.definitions.specs import GateExpiry, HumanGate, Node
from wonder_server.core.json_types import JsonDict


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


def resolve(builder: PlanBuilder, gate: Gate, event: ResolveGate) -> JsonDict:
    """Close the gate with a person's answer and return the node's result."""
    status = GateStatus.APPROVED if event.approve else GateStatus.REJECTED
    return _result(builder.gates.close(gate, status, event))


def expire(builder: PlanBuilder, gate: Gate, policy: GateExpiry) -> JsonDict | str:
    """Close the gate after its time. Return the node's result, or the reason why the node fails."""
    problem = problems_of_shown(gate) if policy is GateExpiry.APPROVE else ""
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
