"""The model and its tools: call it, take its answer, run what it calls, ask again, until it has answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wonder_server.core.conversation import limits, tools
from wonder_server.core.conversation.calls import declined, with_output
from wonder_server.core.conversation.decisions import (
    AppendMessage,
    CompleteTurn,
    Decision,
    DispatchModel,
    DispatchTask,
    DispatchWorkflow,
    LimitReached,
    MarkWaiting,
    RecordMove,
    ReleaseWork,
    ResumeFromTool,
)
from wonder_server.core.conversation.dialects import dialect_of
from wonder_server.core.conversation.inputs import ModelAnswered
from wonder_server.core.conversation.pieces import Decisions, agent_message, fail_turn, hook
from wonder_server.core.conversation.spending import charged, of_call
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.values import (
    Conversation,
    Limit,
    Move,
    Operation,
    OperationKind,
    Request,
    ToolResult,
    Turn,
    TurnStatus,
)
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.ids import Minter
from wonder_server.core.model import ModelResult, ToolCall

MODEL_BACKOFF_MS = 500

WRAP_UP = (
    "You have reached the limit of moves for this turn. Do not call tools any more: "
    "answer now with what you have, and say what is missing."
)


def call_model(
    state: ConversationState, turn: Turn, agent: PinnedAgent, body: dict[str, Any], ids: Minter, now: int
) -> Decisions:
    """Ask the model, for an answer without tools where a limit leaves no room for more."""
    limit = agent.persona.constraints.max_moves_per_turn
    decisions: list[Decision] = []
    last = limits.near(state, turn, agent, body, now) if agent.tools else None
    if limit and turn.moves + 1 >= limit and agent.tools:
        body = dialect_of(agent.profile.spec.format).wrap_up(body, WRAP_UP)
        if turn.moves:
            message = f"Move {limit} of {limit}: the model is asked to answer without tools."
            fault = Fault(reason=Reason.MAX_MOVES_REACHED, message=message)
            limited = Limit(fault=fault, enforced=False)
            decisions.append(LimitReached(turn_id=turn.id, limit=limited))
    elif last is not None:
        body = dialect_of(agent.profile.spec.format).wrap_up(body, last.note)
        limited = Limit(fault=last.fault, enforced=False)
        decisions.append(LimitReached(turn_id=turn.id, limit=limited))
    wrap_up = last.fault if last is not None else None
    request = Request(turn_id=turn.id, body=body, wrap_up=wrap_up)
    profile = agent.profile.spec
    operation = Operation(
        id=ids.new("op"),
        turn_id=turn.id,
        kind=OperationKind.MODEL,
        message_id=ids.new("msg"),
        max_attempts=profile.max_attempts,
        backoff_ms=MODEL_BACKOFF_MS,
        timeout_ms=profile.timeout_ms,
        wake_ms=now + profile.timeout_ms,
        created_ms=now,
    )
    return (*decisions, DispatchModel(operation=operation, request=request))


def model_answered(
    state: ConversationState, operation: Operation, event: ModelAnswered, now: int
) -> Decisions:
    turn, result = state.turns[operation.turn_id], event.result
    agent = state.works[turn.id].agent
    conversation = state.conversation
    if conversation is None:
        return ()
    ids = Minter(operation.id, now)
    move = Move(
        id=ids.new("move"),
        conversation_id=turn.conversation_id,
        turn_id=turn.id,
        sequence=turn.moves + 1,
        message_id=operation.message_id,
        reasoning=result.text,
        raw=result.raw,
        model=result.model,
        stop_reason=result.stop_reason,
        usage=result.usage,
        created_ms=operation.created_ms,
    )
    turn = replace(charged(turn, of_call(result.usage, operation.attempt)), moves=move.sequence)
    said = _said(conversation, turn, operation, result, now)
    limit = agent.persona.constraints.max_moves_per_turn
    asked = state.requests[turn.id]
    if result.tool_calls and not asked.wrap_up and not (limit and move.sequence >= limit):
        return _call_tools(state, operation, turn, agent, asked.body, move, said, result.tool_calls, ids, now)
    move = replace(move, completed_ms=now)
    recorded = RecordMove(turn=turn, move=move, operation_id=operation.id)
    if not result.tool_calls:
        refusal = declined(state, turn, result)
        if refusal is not None:
            return (recorded, *said, *fail_turn(turn, refusal, now))
        return (recorded, *said, *_complete(with_output(state, turn, said), agent, ids, now))
    if asked.wrap_up is not None and not (limit and move.sequence >= limit):
        return (recorded, *said, *limits.exhausted(state, turn, asked.wrap_up, now, answered=operation.id))
    fault = Fault(
        reason=Reason.MAX_MOVES_REACHED,
        message=f"The turn used all of its {limit} moves without an answer.",
    )
    limited = LimitReached(turn_id=turn.id, limit=Limit(fault=fault, enforced=True))
    return (recorded, *said, limited, *fail_turn(turn, fault, now))


def _said(
    conversation: Conversation, turn: Turn, operation: Operation, result: ModelResult, now: int
) -> Decisions:
    """What the model said is a message, whether it ends the turn or goes before tool calls (B6)."""
    if not result.text:
        return ()
    cut = result.stop_reason == "length"
    message = agent_message(conversation, turn, operation.message_id, result.text, now, partial=cut)
    return (AppendMessage(message=message),)


def _complete(turn: Turn, agent: PinnedAgent, ids: Minter, now: int) -> Decisions:
    turn = replace(turn, status=TurnStatus.COMPLETED, completed_ms=now)
    if agent.extraction is None:
        return (CompleteTurn(turn=turn), ReleaseWork(turn_id=turn.id))
    run_id = ids.child("run", turn.conversation_id)
    turn = replace(turn, memory_extraction_run_id=run_id)
    extraction = hook(ids.new("op"), turn, OperationKind.EXTRACTION, run_id, now)
    return (CompleteTurn(turn=turn), DispatchWorkflow(operation=extraction))


def _call_tools(
    state: ConversationState,
    operation: Operation,
    turn: Turn,
    agent: PinnedAgent,
    request: dict[str, Any],
    move: Move,
    said: Decisions,
    calls: tuple[ToolCall, ...],
    ids: Minter,
    now: int,
) -> Decisions:
    prepared = [tools.prepare(agent, call, turn, ids, now) for call in calls]
    move = replace(move, invocations=tuple(item.invocation for item in prepared))
    decisions: list[Decision] = [
        RecordMove(turn=turn, move=move, operation_id=operation.id),
        *said,
    ]
    for index, item in enumerate(prepared):
        if item.operation is not None:
            dispatch = DispatchTask if item.operation.kind is OperationKind.TASK else DispatchWorkflow
            decisions.append(dispatch(operation=item.operation))
            decisions.append(MarkWaiting(turn_id=turn.id, operation_id=item.operation.id))
        elif item.refusal is not None:
            turn = replace(turn, tool_failures=turn.tool_failures + 1)
            move = tools.with_result(move, index, item.refusal, now)
            resumed = ResumeFromTool(
                turn=turn, move=move, invocation=move.invocations[index], operation_id=""
            )
            decisions.append(resumed)
    if move.completed_ms:
        decisions.extend(_go_on(state, turn, agent, request, move, ids, now))
    return tuple(decisions)


def tool_ended(
    state: ConversationState, operation: Operation, result: ToolResult, ids: Minter, now: int
) -> Decisions:
    turn = state.turns[operation.turn_id]
    agent, request = state.works[turn.id].agent, state.requests[turn.id].body
    move = state.moves[turn.id][-1]
    index = [entry.operation_id for entry in move.invocations].index(operation.id)
    move = tools.with_result(move, index, result, now)
    if not result.success:
        turn = replace(turn, tool_failures=turn.tool_failures + 1)
    resumed = ResumeFromTool(
        turn=turn, move=move, invocation=move.invocations[index], operation_id=operation.id
    )
    if not move.completed_ms:
        return (resumed,)
    return (resumed, *_go_on(state, turn, agent, request, move, ids, now))


def _go_on(
    state: ConversationState,
    turn: Turn,
    agent: PinnedAgent,
    request: dict[str, Any],
    move: Move,
    ids: Minter,
    now: int,
) -> Decisions:
    """Every call of ``move`` has its result: ask the model again."""
    results = [entry.result for entry in move.invocations if entry.result is not None]
    dialect = dialect_of(agent.profile.spec.format)
    return call_model(state, turn, agent, dialect.resume(request, move.raw, results), ids, now)
