"""Agents as tools (features C8, C9): input schema, invocation mode and result.

The model may select the mode of each call with the field ``invocation_mode``, which the platform adds to
the tool's schema. Without the field the tool's own mode applies. A tool whose schema has a field of that
name keeps it, and its mode cannot be selected.
"""

from __future__ import annotations

from typing import Final

from wonder_server.core.conversation.model.event_payloads import AgentCall
from wonder_server.core.conversation.model.values import Operation
from wonder_server.core.definitions.specs import PinnedTool
from wonder_server.core.errors import Fault
from wonder_server.core.json_types import JsonDict, JsonValue

MODE = "invocation_mode"
DELEGATE, LOOP_IN = "delegate", "loop_in"
MODES = (DELEGATE, LOOP_IN)

QUESTION = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "The task or question for the agent."}},
    "required": ["message"],
}
"""Input schema of a tool that calls an agent and declares no schema."""


def attempt_id(operation: Operation) -> str:
    """Return the child id that the answer to the operation's current attempt carries."""
    if operation.mode != LOOP_IN:
        return operation.run_id
    return f"{operation.run_id}#{operation.attempt}"


def own_schema(tool: PinnedTool) -> JsonDict:
    """Return the schema that a call's input must match, without the platform's field."""
    if tool.spec.input_schema:
        return tool.spec.input_schema
    return QUESTION if tool.spec.target_type == "agent" else {}


def offered_schema(tool: PinnedTool) -> JsonDict:
    """Return the schema of a tool's input as the model receives it."""
    schema = own_schema(tool) or {"type": "object", "properties": {}}
    if "type" not in schema:
        # Providers reject a schema without a type.
        schema = {"type": "object", **schema}
    if not _may_choose(tool):
        return schema
    chosen = {
        "type": "string",
        "enum": list(MODES),
        "description": "delegate: it sees only this input and answers to you alone. loop_in: it joins the "
        "conversation, sees what was said and answers to everyone. "
        f"Default: {tool.spec.invocation_mode}.",
    }
    return {**schema, "properties": {**schema.get("properties", {}), MODE: chosen}}


def split_mode(tool: PinnedTool, arguments: JsonDict) -> tuple[str, JsonDict, str]:
    """Return the invocation mode, the input without it, and the problem with the mode (empty if valid)."""
    if not _may_choose(tool) or MODE not in arguments:
        return tool.spec.invocation_mode, arguments, ""
    rest = {name: value for name, value in arguments.items() if name != MODE}
    chosen = arguments[MODE]
    if chosen not in MODES:
        return "", rest, f"{MODE}: must be one of {', '.join(MODES)}"
    return chosen, rest, ""


IDS: Final = ("agent_id", "turn_id")
"""Members of the result of an agent call that only the record has."""


def result_of(operation: Operation, output: JsonValue) -> JsonDict:
    """Return the tool result for the answer of the called agent's turn (`agent_calls.answer`).

    A parsed answer stands in place of its text.
    """
    answer = output if isinstance(output, dict) else {}
    said = "output" if "output" in answer else "text"
    fields = {name: answer[name] for name in (said, *IDS) if name in answer}
    if operation.mode != LOOP_IN:
        return fields
    return {
        **fields,
        "joined": True,
        "note": "The agent has joined the conversation, where everybody has seen its answer, and stays until "
        "it is removed. Do not repeat what it said.",
    }


def ended_call(
    operation: Operation, now: int, output: JsonValue = None, fault: Fault | None = None
) -> AgentCall:
    """Return the payload of the event that ends an agent call."""
    answer = output if isinstance(output, dict) else {}
    turn_id = answer.get("turn_id") if fault is None else fault.metadata.get("turn_id")
    return AgentCall(
        agent_id=operation.target,
        mode=operation.mode,
        operation_id=operation.id,
        turn_id=turn_id if isinstance(turn_id, str) else "",
        fault=fault,
        duration_ms=now - operation.created_ms,
    )


def _may_choose(tool: PinnedTool) -> bool:
    if tool.spec.target_type != "agent":
        return False
    properties = own_schema(tool).get("properties")
    return not isinstance(properties, dict) or MODE not in properties
