"""What becomes of a model's tool calls: resolve, validate, map (feature C7), all before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wonder_server.core import expressions, schemas
from wonder_server.core.conversation.values import (
    Invocation,
    Move,
    Operation,
    OperationKind,
    ToolErrorCode,
    ToolResult,
    Turn,
)
from wonder_server.core.definitions.specs import PinnedAgent, PinnedTool
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.ids import Minter
from wonder_server.core.model import ToolCall
from wonder_server.core.task.repeatable import is_repeatable

_CODES = {
    Reason.TIMEOUT: ToolErrorCode.TIMEOUT,
    Reason.INPUT_INVALID: ToolErrorCode.INVALID_INPUT,
    Reason.PERMISSION_DENIED: ToolErrorCode.PERMISSION_DENIED,
    Reason.DEFINITION_NOT_FOUND: ToolErrorCode.NOT_FOUND,
    Reason.INTERNAL: ToolErrorCode.INTERNAL_ERROR,
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """One call, ready: either an operation to dispatch or a refusal for the model."""

    invocation: Invocation
    operation: Operation | None = None
    refusal: ToolResult | None = None


def prepare(agent: PinnedAgent, call: ToolCall, turn: Turn, ids: Minter, now: int) -> Prepared:
    """Resolve ``call`` to one of the agent's tools, validate its input and map it to the target's."""
    tool = next((tool for tool in agent.tools if tool.spec.name == call.name), None)
    if tool is None:
        offered = ", ".join(tool.spec.name for tool in agent.tools) or "none"
        message = f"There is no tool `{call.name}`. Tools at hand: {offered}."
        return _refused(call, ToolErrorCode.NOT_FOUND, message)
    tool_id = tool.pin.definition_id
    if call.arguments is None:
        message = "The arguments are no JSON object. Call the tool again with a valid one."
        return _refused(call, ToolErrorCode.INVALID_INPUT, message, tool_id)
    problems = schemas.validate(tool.spec.input_schema, call.arguments)
    if problems:
        return _refused(call, ToolErrorCode.INVALID_INPUT, "; ".join(problems[:5]), tool_id)
    arguments = call.arguments
    if tool.spec.input_mapping:
        try:
            arguments = expressions.evaluate_mapping(tool.spec.input_mapping, {"input": call.arguments})
        except expressions.ExpressionError as problem:
            message = f"The tool's input mapping failed: {problem}"
            return _refused(call, ToolErrorCode.INVALID_INPUT, message, tool_id)
    kind = _target(tool)
    if kind is None:
        message = f"`{call.name}` is bound to another agent; this server cannot call agents yet."
        return _refused(call, ToolErrorCode.NOT_FOUND, message, tool_id)
    operation = Operation(
        id=ids.new("op"),
        turn_id=turn.id,
        kind=kind,
        input=arguments,
        tool_call_id=call.id,
        tool_name=call.name,
        run_id=ids.child("run", turn.conversation_id) if kind is OperationKind.WORKFLOW else "",
        max_attempts=tool.spec.retry.max_attempts,
        backoff_ms=tool.spec.retry.backoff_ms,
        timeout_ms=tool.spec.retry.timeout_ms,
        wake_ms=now + tool.spec.retry.timeout_ms,
        repeatable=tool.task is None or is_repeatable(tool.task),
        created_ms=now,
    )
    return Prepared(Invocation(call=call, tool_id=tool_id, operation_id=operation.id), operation=operation)


def failure(tool_call_id: str, fault: Fault) -> ToolResult:
    """A fault of the target, as the model is told of it."""
    return ToolResult(
        tool_call_id=tool_call_id,
        success=False,
        code=_CODES.get(fault.reason, ToolErrorCode.EXECUTION_FAILED),
        message=fault.message,
        retriable=fault.transient,
    )


def with_result(move: Move, index: int, result: ToolResult, now: int) -> Move:
    """``move`` with ``result`` at its call number ``index``; completed once every call has one."""
    invocations = list(move.invocations)
    invocations[index] = replace(invocations[index], result=result)
    done = all(entry.result is not None for entry in invocations)
    return replace(move, invocations=tuple(invocations), completed_ms=now if done else 0)


def _target(tool: PinnedTool) -> OperationKind | None:
    if tool.task is not None:
        return OperationKind.TASK
    return OperationKind.WORKFLOW if tool.workflow is not None else None


def _refused(call: ToolCall, code: ToolErrorCode, message: str, tool_id: str = "") -> Prepared:
    result = ToolResult(tool_call_id=call.id, success=False, code=code, message=message, retriable=False)
    return Prepared(Invocation(call=call, tool_id=tool_id), refusal=result)
