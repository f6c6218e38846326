"""Tool calls of a model: resolve, validate and map each one (feature C7) before any of them runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wonder_server.core import expressions
from wonder_server.core.actor.gates import Gate
from wonder_server.core.conversation.context.permissions import call_refusal, forbidden_action
from wonder_server.core.conversation.model.agent_tools import LOOP_IN, own_schema, split_mode
from wonder_server.core.conversation.model.values import (
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
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonValue
from wonder_server.core.model import ToolCall
from wonder_server.core.schema import schemas
from wonder_server.core.schema.truncation import is_notice
from wonder_server.core.task.action_effects import is_repeatable

_CODES = {
    Reason.TIMEOUT: ToolErrorCode.TIMEOUT,
    Reason.INPUT_INVALID: ToolErrorCode.INVALID_INPUT,
    Reason.PERMISSION_DENIED: ToolErrorCode.PERMISSION_DENIED,
    Reason.DEFINITION_NOT_FOUND: ToolErrorCode.NOT_FOUND,
    Reason.AGENT_NOT_FOUND: ToolErrorCode.NOT_FOUND,
    Reason.INTERNAL: ToolErrorCode.INTERNAL_ERROR,
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """One prepared call: an operation to dispatch, or a refusal for the model. With a ``gate`` it waits
    there first.
    """

    invocation: Invocation
    operation: Operation | None = None
    refusal: ToolResult | None = None
    gate: Gate | None = None


RULES_OF_PINNED_TOOLS = 3
"""Version of `TURN_RULES` from which on a tool call names the pinned revision of its tool."""

CUT_OFF = (
    "Your answer was cut off by its limit of tokens, so that this call may be incomplete: it was not carried "
    "out. Call the tool again, with less around it."
)


def allowed_calls(
    agent: PinnedAgent, moves: Iterable[Move], calls: Sequence[ToolCall]
) -> tuple[int, Fault | None]:
    """Return the number of ``calls``, from the first, that may run after ``moves`` of the same turn.

    The fault is the limit that the other calls exceed; None if all may run.
    """
    limits = agent.persona.constraints
    per_answer, per_turn = limits.max_tool_calls_per_answer, limits.max_tool_calls_per_turn
    made = sum(1 for move in moves for entry in move.invocations if entry.operation_id) if per_turn else 0
    by_answer = per_answer or len(calls)
    by_turn = max(0, per_turn - made) if per_turn else len(calls)
    number = min(len(calls), by_answer, by_turn)
    if number == len(calls):
        return number, None
    whose, limit = ("turn", per_turn) if by_turn < by_answer else ("answer", per_answer)
    message = (
        f"The {whose} may have {limit:,} tool calls: {len(calls) - number:,} of the {len(calls):,} in this "
        f"answer were not carried out. Raise max_tool_calls_per_{whose} in the persona to allow more."
    )
    metadata = {"limit": str(limit), "calls": str(len(calls)), "of": whose}
    return number, Fault(reason=Reason.LIMIT_EXCEEDED, message=message, metadata=metadata)


def refuse_beyond_limit(calls: Iterable[ToolCall], limit: Fault | None, now: int) -> tuple[Invocation, ...]:
    """Return the calls beyond ``limit``, each with a refusal as its result.

    They are part of the move, so a thousand of them are one change of the record.
    """
    if limit is None:
        return ()
    whose = limit.metadata["of"]
    rest = "Call what is still needed in the next answer." if whose == "answer" else "Call no more tools."
    message = f"Not carried out: one {whose} may have {limit.metadata['limit']} tool calls. {rest}"
    refused = [_refused(call, ToolErrorCode.PERMISSION_DENIED, message) for call in calls]
    return tuple(
        replace(item.invocation, result=replace(item.refusal, created_ms=now))
        for item in refused
        if item.refusal is not None
    )


NO_OBJECT = "The arguments are no JSON object. Call the tool again with a valid one."
TOO_LONG = (
    "The arguments are longer than this server takes, so that the tool was not called. Say less in one call."
)


def prepare(
    agent: PinnedAgent, call: ToolCall, turn: Turn, ids: Minter, now: int, *, cut: bool = False
) -> Prepared:
    """Resolve ``call`` to one of the agent's tools, validate its input and map it to the target's.

    ``cut``: the model's answer broke off, so the call may be incomplete.
    """
    tool = next((tool for tool in agent.tools if tool.spec.name == call.name), None)
    if tool is None:
        offered = ", ".join(tool.spec.name for tool in agent.tools) or "none"
        message = f"There is no tool `{call.name}`. Available tools: {offered}."
        return _refused(call, ToolErrorCode.NOT_FOUND, message)
    tool_id = tool.pin.definition_id
    if cut:
        return _refused(call, ToolErrorCode.INVALID_INPUT, CUT_OFF, tool_id)
    if call.arguments is None:
        message = NO_OBJECT
        if is_notice(call.malformed):
            message = f"{TOO_LONG} {call.malformed}"
        return _refused(call, ToolErrorCode.INVALID_INPUT, message, tool_id)
    mode, arguments, problem = split_mode(tool, call.arguments)
    problems = [problem] if problem else schemas.validate(own_schema(tool), arguments)
    if problems:
        return _refused(call, ToolErrorCode.INVALID_INPUT, "; ".join(problems[:5]), tool_id)
    if tool.spec.input_mapping:
        try:
            arguments = expressions.evaluate_mapping(tool.spec.input_mapping, {"input": arguments})
        except expressions.ExpressionError as problem:
            message = f"The tool's input mapping failed: {problem}"
            return _refused(call, ToolErrorCode.INVALID_INPUT, message, tool_id)
    kind = _target(tool)
    if kind is None:
        message = f"There is no agent `{tool.spec.target_id}`, which this tool calls."
        return _refused(call, ToolErrorCode.NOT_FOUND, message, tool_id)
    denied = _denied(agent, tool, turn)
    if denied:
        return _refused(call, ToolErrorCode.PERMISSION_DENIED, denied, tool_id)
    operation = Operation(
        id=ids.new("op"),
        turn_id=turn.id,
        kind=kind,
        input=arguments,
        tool_call_id=call.id,
        tool_name=call.name,
        target=_target_name(tool),
        mode=mode if kind is OperationKind.AGENT else "",
        # A looped-in agent answers in the same conversation, so its call is never asynchronous.
        is_async=tool.spec.is_async and not (kind is OperationKind.AGENT and mode == LOOP_IN),
        run_id=_child_id(kind, mode, turn, ids),
        max_attempts=tool.spec.retry.max_attempts,
        backoff_ms=tool.spec.retry.backoff_ms,
        timeout_ms=tool.spec.retry.timeout_ms,
        wake_ms=now + tool.spec.retry.timeout_ms,
        repeatable=tool.task is None or is_repeatable(tool.task),
        created_ms=now,
    )
    invocation = Invocation(
        call=call, tool_id=tool_id, operation_id=operation.id, is_async=operation.is_async
    )
    return Prepared(invocation, operation=operation)


def with_pinned_tool(prepared: Prepared, agent: PinnedAgent) -> Prepared:
    """Return the call with the pinned revision of its tool, ``library/name@revision``."""
    invocation, operation = prepared.invocation, prepared.operation
    pins = (str(tool.pin) for tool in agent.tools if tool.spec.name == invocation.call.name)
    if not (tool_id := next(pins, "")):
        return prepared
    return dataclasses.replace(
        prepared,
        invocation=replace(invocation, tool_id=tool_id),
        operation=replace(operation, tool_id=tool_id) if operation is not None else None,
    )


def success(operation: Operation, output: JsonValue, now: int) -> ToolResult:
    """Return the result for the output of the target."""
    return _timed(
        ToolResult(tool_call_id=operation.tool_call_id, success=True, result=output), operation, now
    )


def failure(operation: Operation, fault: Fault, now: int) -> ToolResult:
    """Return the result for a fault of the target."""
    result = ToolResult(
        tool_call_id=operation.tool_call_id,
        success=False,
        code=_code(operation, fault),
        message=fault.message,
        retriable=fault.transient,
        fault=fault,
    )
    return _timed(result, operation, now)


def with_result(move: Move, index: int, result: ToolResult, now: int) -> Move:
    """Return ``move`` with ``result`` for its call number ``index``."""
    invocations = list(move.invocations)
    result = replace(result, created_ms=result.created_ms or now)
    invocations[index] = replace(invocations[index], result=result)
    return complete_move(replace(move, invocations=tuple(invocations)), now)


def complete_move(move: Move, now: int) -> Move:
    """Return ``move`` as completed if every call that it waits for has a result."""
    if move.completed_ms or any(entry.result is None and not entry.is_async for entry in move.invocations):
        return move
    return replace(move, completed_ms=now)


def _code(operation: Operation, fault: Fault) -> ToolErrorCode:
    code = _CODES.get(fault.reason, ToolErrorCode.EXECUTION_FAILED)
    if operation.kind is not OperationKind.AGENT:
        return code
    if fault.reason is Reason.LIMIT_EXCEEDED:
        return ToolErrorCode.PERMISSION_DENIED
    if "declined" in fault.metadata:
        return ToolErrorCode.AGENT_DECLINED
    # The cause of a failed turn, such as a timeout of its model, is internal to the agent.
    return ToolErrorCode.EXECUTION_FAILED if "turn_id" in fault.metadata else code


def _timed(result: ToolResult, operation: Operation, now: int) -> ToolResult:
    took = now - operation.created_ms
    return replace(result, created_ms=now, attempts=operation.attempt, duration_ms=took)


def _target(tool: PinnedTool) -> OperationKind | None:
    if tool.task is not None:
        return OperationKind.TASK
    if tool.workflow is not None:
        return OperationKind.WORKFLOW
    return OperationKind.AGENT if tool.agent_id else None


def _target_name(tool: PinnedTool) -> str:
    target = tool.task or tool.workflow
    return str(target.pin) if target is not None else tool.agent_id


def _child_id(kind: OperationKind, mode: str, turn: Turn, ids: Minter) -> str:
    if kind is OperationKind.AGENT and mode == LOOP_IN:
        return turn.conversation_id
    prefix = {OperationKind.WORKFLOW: "run", OperationKind.AGENT: "conv"}.get(kind)
    return ids.child(prefix, turn.conversation_id) if prefix else ""


def _denied(agent: PinnedAgent, tool: PinnedTool, turn: Turn) -> str:
    """Return the reason why the agent may not use the tool, as a sentence for the model; empty if it may."""
    if tool.agent_id:
        return call_refusal(turn, tool.agent_id)
    kind = forbidden_action(tool, agent.persona.constraints.allowed_actions)
    return f"The tool uses the action `{kind}`, which this agent is not allowed." if kind else ""


def _refused(call: ToolCall, code: ToolErrorCode, message: str, tool_id: str = "") -> Prepared:
    result = ToolResult(tool_call_id=call.id, success=False, code=code, message=message, retriable=False)
    return Prepared(Invocation(call=call, tool_id=tool_id), refusal=result)
