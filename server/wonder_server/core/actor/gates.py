"""Gates, at which a run or a tool call of a turn waits for a person (features G5, M9).

A gate takes one answer, and only for what it showed.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum

from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import Value, field
from wonder_server.core.json_types import JsonDict
from wonder_server.core.schema import schemas


class GateStatus(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Gate(Value, frozen=True, kw_only=True):
    """A gate of a run, or of a tool call of a turn.

    ``shown_hash`` binds an answer to the prompt and input that the gate showed. ``principal`` is the
    authenticated caller that resolved the gate; "" for its expiry policy.

    The gate of a tool call shows the arguments of the call. It has ``conversation_id``, ``turn_id``,
    ``tool_call_id``, ``tool_name`` and ``tool_id``, the pin of the tool, instead of run, node and workflow.
    ``problem`` says why the tool's approval expression could not decide; "" if it could.
    """

    id: str
    run_id: str
    operation_id: str
    node_id: str
    project_id: str
    workflow_ref: str
    prompt: str
    shown: JsonDict
    shown_hash: str
    answer_schema: JsonDict = field(default_factory=dict)
    user_ids: tuple[str, ...] = ()
    status: GateStatus = GateStatus.PENDING
    user_id: str = ""
    answer: JsonDict | None = None
    comment: str = ""
    created_ms: int = 0
    expires_ms: int = 0
    resolved_ms: int = 0
    principal: str = ""
    conversation_id: str = ""
    turn_id: str = ""
    tool_call_id: str = ""
    tool_name: str = ""
    tool_id: str = ""
    problem: str = ""

    @property
    def actor_id(self) -> str:
        """The run or conversation that waits at the gate."""
        return self.run_id or self.conversation_id


class ResolveGate(Value, frozen=True, kw_only=True):
    """A person's answer to a gate.

    ``shown_hash`` identifies what the gate showed to the person. ``principal`` is the authenticated caller
    that sent the answer, as in `Scope`.
    """

    gate_id: str
    approve: bool
    shown_hash: str
    answer: JsonDict | None = None
    comment: str = ""
    user_id: str = ""
    principal: str = ""


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
        named = f"`{event.user_id[:64]}` may not resolve this gate"
        who = named if event.user_id else "The answer names no user"
        return Fault(
            reason=Reason.PERMISSION_DENIED,
            message=f"{who}; it is for {_names(gate.user_ids)}.",
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
    problems = problems_of_shown(gate)
    if not problems:
        return None
    message = f"An approval of this gate needs an answer: {problems}. Send an answer that matches, or reject."
    return Fault(reason=Reason.INPUT_INVALID, message=message, field="answer")


def problems_of_shown(gate: Gate) -> str:
    """Return the reason why an approval without an answer is impossible, or "".

    Without an answer the run continues with what the gate shows, so that must match the schema.
    """
    problems = schemas.validate(gate.answer_schema, gate.shown, name="shown") if gate.answer_schema else ()
    return f"what the gate shows does not match its schema ({'; '.join(problems[:5])})" if problems else ""


def _names(user_ids: tuple[str, ...]) -> str:
    return ", ".join(f"`{user}`" for user in user_ids[:5]) + (", …" if len(user_ids) > 5 else "")
