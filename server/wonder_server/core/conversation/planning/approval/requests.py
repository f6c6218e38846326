"""Approval of tool calls by people (feature M9): which calls wait, and their gates.

A tool says ``never``, ``always`` or an expression over the input of a call. The expression is evaluated
once, when the model calls the tool. A call that waits is an operation with the status ``approval``: nothing
is dispatched for it until a person answers at its gate (`planning.approval.answers`). It has a timer only if
its gate expires.
"""

from __future__ import annotations

import dataclasses
import json

from wonder_server.core import expressions
from wonder_server.core.actor.gates import Gate, shown_hash
from wonder_server.core.conversation.model.agent_tools import offered_schema, split_mode
from wonder_server.core.conversation.model.decisions import (
    Decision,
    MarkWaiting,
    RequestApproval,
    TrackAsyncOperation,
)
from wonder_server.core.conversation.model.operations import Decisions
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.values import Operation, OperationStatus, Turn
from wonder_server.core.conversation.planning.tool_calls import Prepared
from wonder_server.core.definitions.specs import PinnedAgent, PinnedTool
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonDict, JsonObject

MAX_NOTED_BYTES = 2_000
"""Maximum length of the edited arguments in the note for the model."""

_MAX_PROBLEM = 300


def with_gate(
    state: ConversationState, prepared: Prepared, turn: Turn, agent: PinnedAgent, ids: Minter, now: int
) -> Prepared:
    """Return the call with its gate if it needs approval, else the call itself."""
    invocation, operation = prepared.invocation, prepared.operation
    tool = next((tool for tool in agent.tools if tool.spec.name == invocation.call.name), None)
    arguments = invocation.call.arguments
    if operation is None or tool is None or arguments is None:
        return prepared
    needed, problem = needs_approval(tool, arguments)
    if not needed:
        return prepared
    rules = tool.spec.approval_gate
    expires_ms = now + rules.expire_after_ms if rules.expire_after_ms else 0
    prompt = f"{agent.name} wants to call the tool `{tool.spec.name}` with these arguments. Allow it?"
    gate = Gate(
        id=ids.child("gate", turn.conversation_id),
        run_id="",
        operation_id=operation.id,
        node_id="",
        project_id="" if state.conversation is None else state.conversation.project_id,
        workflow_ref="",
        prompt=prompt,
        shown=dict(arguments),
        shown_hash=shown_hash(prompt, dict(arguments)),
        answer_schema=offered_schema(tool),
        user_ids=rules.user_ids,
        created_ms=now,
        expires_ms=expires_ms,
        conversation_id=turn.conversation_id,
        turn_id=turn.id,
        tool_call_id=operation.tool_call_id,
        tool_name=tool.spec.name,
        tool_id=invocation.tool_id,
        problem=problem,
    )
    waiting = replace(operation, status=OperationStatus.APPROVAL, gate_id=gate.id, wake_ms=expires_ms)
    invocation = replace(invocation, gate_id=gate.id)
    return dataclasses.replace(prepared, invocation=invocation, operation=waiting, gate=gate)


def needs_approval(tool: PinnedTool, arguments: JsonObject) -> tuple[bool, str]:
    """Return True if a call with ``arguments`` waits for a person, and why its expression could not decide.

    A call waits if the expression fails or gives anything but false.
    """
    rule = tool.spec.approval
    if rule in ("", "never"):
        return False, ""
    if rule == "always":
        return True, ""
    _, own, _ = split_mode(tool, dict(arguments))
    try:
        value = expressions.evaluate(rule, {"input": own})
    except expressions.ExpressionError as problem:
        return True, str(problem)[:_MAX_PROBLEM]
    if isinstance(value, bool):
        return value, ""
    return True, "The expression gives neither true nor false."


def request_approval(operation: Operation, gate: Gate) -> Decisions:
    """Return the decisions that open the gate of a call."""
    waits: Decision = MarkWaiting(turn_id=operation.turn_id, operation_id=operation.id)
    if operation.is_async:
        waits = TrackAsyncOperation(turn_id=operation.turn_id, operation_id=operation.id)
    return (RequestApproval(operation=operation, gate=gate), waits)


def edit_note(arguments: JsonDict) -> str:
    """Return the note for the model about a call that ran with other arguments than its own."""
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    shown = text if len(text) <= MAX_NOTED_BYTES else f"{text[:MAX_NOTED_BYTES]}…"
    return f"A person approved this call with other arguments, and it ran with these: {shown}"
