"""Agents as tools (features C8, C9): what a model is offered, how it says in which mode, what it gets back.

The model may choose the mode for each call by a field of the input that the platform adds to the tool's
schema, ``invocation_mode``; without it the tool's own mode counts. A tool whose schema has a field of that
name keeps it for itself, and its mode cannot be chosen.
"""

from __future__ import annotations

from typing import Any

from wonder_server.core.conversation.model.values import AgentCall, Operation
from wonder_server.core.definitions.specs import PinnedTool
from wonder_server.core.errors import Fault

MODE = "invocation_mode"
DELEGATE, LOOP_IN = "delegate", "loop_in"
MODES = (DELEGATE, LOOP_IN)

QUESTION = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What the agent is told or asked."}},
    "required": ["message"],
}
"""The input of a tool that calls an agent and says nothing of its input."""


def attempt_id(operation: Operation) -> str:
    """What the result of the operation's attempt names as what carried it out."""
    if operation.mode != LOOP_IN:
        return operation.run_id
    return f"{operation.run_id}#{operation.attempt}"


def own_schema(tool: PinnedTool) -> dict[str, Any]:
    """The schema that a call's input is held to, without what the platform adds."""
    if tool.spec.input_schema:
        return tool.spec.input_schema
    return QUESTION if tool.spec.target_type == "agent" else {}


def offered_schema(tool: PinnedTool) -> dict[str, Any]:
    """The schema of a tool's input as the model sees it."""
    schema = own_schema(tool) or {"type": "object", "properties": {}}
    if "type" not in schema:
        # Providers ask for it, though it goes without saying.
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


def split_mode(tool: PinnedTool, arguments: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """How the agent is called, the input without that, and what is wrong with it, empty if nothing is."""
    if not _may_choose(tool) or MODE not in arguments:
        return tool.spec.invocation_mode, arguments, ""
    rest = {name: value for name, value in arguments.items() if name != MODE}
    chosen = arguments[MODE]
    if chosen not in MODES:
        return "", rest, f"{MODE}: must be one of {', '.join(MODES)}"
    return chosen, rest, ""


def result_of(operation: Operation, output: Any) -> dict[str, Any]:
    """What the calling model gets for the answer of the agent's turn (`calls.answer`)."""
    answer = output if isinstance(output, dict) else {}
    told = {name: answer[name] for name in ("text", "agent_id", "turn_id") if name in answer}
    if operation.mode != LOOP_IN:
        return told
    return {
        **told,
        "joined": True,
        "note": "The agent has joined the conversation, where everybody has seen its answer, and stays until "
        "it is removed. Do not repeat what it said.",
    }


def ended_call(operation: Operation, now: int, output: Any = None, fault: Fault | None = None) -> AgentCall:
    """How a call of an agent ended."""
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
