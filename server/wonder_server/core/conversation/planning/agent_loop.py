"""The agent loop: call the model, execute its tool calls, call it again with the results, until it
answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wonder_server.core.conversation.context.dialects import dialect_of
from wonder_server.core.conversation.context.window import (
    RETRY_SHARE,
    TrimmedRequest,
    context_limit,
    is_too_long,
    trim_request,
)
from wonder_server.core.conversation.model import agent_tools
from wonder_server.core.conversation.model.agent_tools import LOOP_IN
from wonder_server.core.conversation.model.decisions import (
    AgentCallEnded,
    AppendMessage,
    AsyncOperationCompleted,
    ChargeTurn,
    CompleteTurn,
    Decision,
    DispatchAgent,
    DispatchModel,
    DispatchTask,
    DispatchWorkflow,
    LimitReached,
    MarkWaiting,
    RecordMove,
    ReduceContext,
    ReleaseTurn,
    ResumeFromTool,
    TrackAsyncOperation,
)
from wonder_server.core.conversation.model.inputs import ModelAnswered
from wonder_server.core.conversation.model.operations import (
    Decisions,
    agent_message,
    cancel_pending,
    fail_turn,
    hook_operation,
    run_started,
)
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.usage import add_usage, of_call, reported_usage
from wonder_server.core.conversation.model.values import (
    ContextReduction,
    Conversation,
    HistoryTruncation,
    Limit,
    Move,
    Operation,
    OperationKind,
    Request,
    ToolResult,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.planning import async_tools, limits, tool_calls
from wonder_server.core.conversation.planning.agent_calls import declined, with_output
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult
from wonder_server.core.token_estimates import json_tokens
from wonder_server.core.truncation import utf8_size

MODEL_BACKOFF_MS = 500

WRAP_UP = (
    "You have reached the limit of moves for this turn. Do not call tools any more: "
    "answer now with what you have, and say what is missing."
)
"""Note for the model with the last move of a turn."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request body, the history that its assembly omitted, and the asynchronous operations in it."""

    body: JsonDict
    truncation: HistoryTruncation | None = None
    reports: tuple[str, ...] = ()


def call_model(
    state: ConversationState, turn: Turn, agent: PinnedAgent, prepared: PreparedRequest, ids: Minter, now: int
) -> Decisions:
    """Call the model with the request, trimmed to fit the model.

    The request forbids tools if a limit allows only this call.
    """
    reduced, body = _within_window(turn, agent, prepared.body, prepared.truncation)
    limited, request = _within_limits(state, turn, agent, body, now)
    return (*reduced, *limited, _dispatch_model(agent, request, ids, now, prepared.reports))


def request_of(output: JsonValue, agent: PinnedAgent) -> JsonDict | Fault:
    """Return the request in an assembly's output; a fault if it is invalid in the agent's format."""
    request = output.get("request") if isinstance(output, dict) else None
    dialect = dialect_of(agent.profile.spec.format)
    if isinstance(request, dict) and dialect.fits(request):
        return request
    return Fault(
        reason=Reason.CONTEXT_ASSEMBLY_FAILED,
        message="The output of the context-assembly workflow has no `request` object with a list of "
        f"`{dialect.messages}`.",
    )


def first_request(
    state: ConversationState, turn: Turn, agent: PinnedAgent, output: JsonValue, now: int
) -> JsonDict | Fault:
    """Return the first request of ``turn`` to the model, for the assembly's ``output``; a fault if it is
    invalid.
    """
    request = request_of(output, agent)
    if isinstance(request, Fault):
        return request
    decided = call_model(state, turn, agent, PreparedRequest(request), Minter(turn.id, now), now)
    return next((each.request.body for each in decided if isinstance(each, DispatchModel)), request)


def retry_shortened(
    state: ConversationState, operation: Operation, fault: Fault, ids: Minter, now: int
) -> Decisions:
    """Call the model with a shorter request, if the provider rejected this one as too long for the first
    time.

    Returns no decisions if the request cannot be retried or shortened.
    """
    turn, request = state.turns[operation.turn_id], state.requests[operation.turn_id]
    agent = state.turn_work[turn.id].agent
    if request.shortened or not is_too_long(fault):
        return ()
    limit = max(1, int(json_tokens(request.body) * RETRY_SHARE))
    smaller = trim_request(request.body, agent.profile.spec.format, limit)
    if smaller is None:
        return ()
    request = replace(request, body=smaller.body, shortened=True)
    return (_reduction(turn, smaller, None), _dispatch_model(agent, request, ids, now, operation.reports))


def retry_wrap_up(state: ConversationState, operation: Operation, fault: Fault, now: int) -> Decisions:
    """Request an answer without tools by the same operation, since the agent's budget allows only one more
    call.
    """
    turn, request = state.turns[operation.turn_id], state.requests[operation.turn_id]
    agent = state.turn_work[turn.id].agent
    if request.wrap_up is not None:
        return ()
    body = dialect_of(agent.profile.spec.format).wrap_up(request.body, limits.wrap_up_note(fault))
    request = replace(request, body=body, wrap_up=fault)
    later = replace(operation, wake_ms=now + operation.timeout_ms)
    return (
        LimitReached(turn_id=turn.id, limit=Limit(fault=fault, enforced=False)),
        DispatchModel(operation=later, request=request),
    )


def _within_window(
    turn: Turn, agent: PinnedAgent, body: JsonDict, truncation: HistoryTruncation | None
) -> tuple[Decisions, JsonDict]:
    smaller = trim_request(body, agent.profile.spec.format, context_limit(agent))
    if smaller is None and truncation is None:
        return (), body
    if smaller is None:
        tokens = json_tokens(body)
        smaller = TrimmedRequest(body, 0, tokens, tokens)
    return (_reduction(turn, smaller, truncation),), smaller.body


def _reduction(turn: Turn, smaller: TrimmedRequest, truncation: HistoryTruncation | None) -> ReduceContext:
    reduction = ContextReduction(
        messages_left_out=smaller.omitted_messages
        + (truncation.omitted_messages if truncation is not None else 0),
        summarized=truncation is not None and truncation.summarized,
        tokens_before=smaller.tokens_before + (truncation.tokens if truncation is not None else 0),
        tokens_after=smaller.tokens_after,
    )
    return ReduceContext(turn_id=turn.id, reduction=reduction)


def _within_limits(
    state: ConversationState, turn: Turn, agent: PinnedAgent, body: JsonDict, now: int
) -> tuple[Decisions, Request]:
    limit = agent.persona.constraints.max_moves_per_turn
    decisions: list[Decision] = []
    last = limits.check_last_call(state, turn, agent, body, now) if agent.tools else None
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
    return tuple(decisions), Request(turn_id=turn.id, body=body, wrap_up=wrap_up)


def _dispatch_model(
    agent: PinnedAgent, request: Request, ids: Minter, now: int, reports: tuple[str, ...]
) -> DispatchModel:
    profile = agent.profile.spec
    operation = Operation(
        id=ids.new("op"),
        turn_id=request.turn_id,
        kind=OperationKind.MODEL,
        message_id=ids.new("msg"),
        reports=reports,
        max_attempts=profile.max_attempts,
        backoff_ms=MODEL_BACKOFF_MS,
        timeout_ms=profile.timeout_ms,
        wake_ms=now + profile.timeout_ms,
        created_ms=now,
    )
    return DispatchModel(operation=operation, request=request)


def model_answered(
    state: ConversationState, operation: Operation, event: ModelAnswered, now: int
) -> Decisions:
    """Record the model's answer, then call its tools, complete the turn or fail it."""
    turn, result = state.turns[operation.turn_id], event.result
    agent = state.turn_work[turn.id].agent
    conversation = state.conversation
    if conversation is None:
        return ()
    ids = Minter(operation.id, now)
    sequence = turn.moves + 1
    turn = add_usage(turn, of_call(result.usage, operation.attempt), moves=sequence)
    limit = agent.persona.constraints.max_moves_per_turn
    request = state.requests[turn.id]
    calls_tools = bool(result.tool_calls) and not request.wrap_up and not (limit and sequence >= limit)
    move = Move(
        id=ids.new("move"),
        conversation_id=turn.conversation_id,
        turn_id=turn.id,
        sequence=sequence,
        message_id=operation.message_id,
        reasoning=result.text,
        reported=async_tools.of_operations(state.moves[turn.id], operation.reports),
        raw=result.raw,
        model=result.model,
        stop_reason=result.stop_reason,
        usage=result.usage,
        created_ms=operation.created_ms,
        completed_ms=0 if calls_tools else now,
    )
    messages = _answer_message(conversation, turn, operation, event, now)
    if calls_tools:
        return _call_tools(state, _Answer(operation, result, turn, move, messages), ids, now)
    recorded = (RecordMove(turn=turn, move=move, operation_id=operation.id), *messages)
    if not result.tool_calls:
        refusal = declined(state, turn, result)
        if refusal is not None:
            cancelled = cancel_pending(state, turn.id, now, except_id=operation.id)
            return (*recorded, *cancelled, *fail_turn(turn, refusal, now))
        moves = [*state.moves[turn.id], move]
        if async_tools.running(moves) or async_tools.unreported(moves):
            return (*recorded, *_continue_loop(state, turn, moves, ids, now))
        return (*recorded, *_complete(with_output(state, turn, messages), agent, ids, now))
    if request.wrap_up is not None and not (limit and sequence >= limit):
        return (*recorded, *limits.exhausted(state, turn, request.wrap_up, now, answered=operation.id))
    fault = Fault(
        reason=Reason.MAX_MOVES_REACHED,
        message=f"The turn used all of its {limit} moves without an answer.",
    )
    limited = LimitReached(turn_id=turn.id, limit=Limit(fault=fault, enforced=True))
    cancelled = cancel_pending(state, turn.id, now, except_id=operation.id)
    return (*recorded, limited, *cancelled, *fail_turn(turn, fault, now))


def _answer_message(
    conversation: Conversation, turn: Turn, operation: Operation, event: ModelAnswered, now: int
) -> Decisions:
    """Return the message of the model's text, which may precede tool calls (B6)."""
    result = event.result
    if not result.text:
        return ()
    cut = result.stop_reason == "length"
    message = agent_message(conversation, turn, operation.message_id, result.text, now, partial=cut)
    if event.full_result is not None and event.full_result.text != result.text:
        message = replace(message, whole_bytes=utf8_size(event.full_result.text))
    return (AppendMessage(message=message),)


def _complete(turn: Turn, agent: PinnedAgent, ids: Minter, now: int) -> Decisions:
    if agent.extraction is None:
        turn = replace(turn, status=TurnStatus.COMPLETED, completed_ms=now)
        return (CompleteTurn(turn=turn), ReleaseTurn(turn_id=turn.id))
    run_id = ids.child("run", turn.conversation_id)
    turn = replace(turn, status=TurnStatus.COMPLETED, completed_ms=now, memory_extraction_run_id=run_id)
    extraction = hook_operation(ids.new("op"), turn, OperationKind.EXTRACTION, run_id, now)
    return (CompleteTurn(turn=turn), DispatchWorkflow(operation=extraction))


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer of the model: its operation and result, its turn, move and messages."""

    operation: Operation
    result: ModelResult
    turn: Turn
    move: Move
    messages: Decisions


def _call_tools(state: ConversationState, answer: _Answer, ids: Minter, now: int) -> Decisions:
    result, turn, move = answer.result, answer.turn, answer.move
    agent, cut = state.turn_work[turn.id].agent, result.stop_reason == "length"
    allowed, limit = tool_calls.allowed_calls(agent, state.moves[turn.id], result.tool_calls)
    prepared = [
        tool_calls.prepare(agent, call, turn, ids, now, cut=cut) for call in result.tool_calls[:allowed]
    ]
    beyond = tool_calls.refuse_beyond_limit(result.tool_calls[allowed:], limit, now)
    turn = replace(turn, tool_failures=turn.tool_failures + len(beyond))
    move = replace(move, invocations=(*(item.invocation for item in prepared), *beyond))
    if not any(item.refusal for item in prepared):
        move = tool_calls.complete_move(move, now)
    decisions: list[Decision] = [
        RecordMove(turn=turn, move=move, operation_id=answer.operation.id),
        *answer.messages,
    ]
    if limit is not None:
        decisions.append(LimitReached(turn_id=turn.id, limit=Limit(fault=limit, enforced=True)))
    for index, item in enumerate(prepared):
        if item.operation is not None:
            decisions.extend(_dispatched(item.operation))
        elif item.refusal is not None:
            turn = replace(turn, tool_failures=turn.tool_failures + 1)
            move = tool_calls.with_result(move, index, item.refusal, now)
            resumed = ResumeFromTool(
                turn=turn, move=move, invocation=move.invocations[index], operation_id=""
            )
            decisions.append(resumed)
    decisions.extend(_continue_loop(state, turn, [*state.moves[turn.id], move], ids, now))
    return tuple(decisions)


def _dispatched(operation: Operation) -> Decisions:
    dispatch: Decision
    match operation.kind:
        case OperationKind.TASK:
            dispatch = DispatchTask(operation=operation)
        case OperationKind.AGENT:
            dispatch = DispatchAgent(operation=operation)
        case _:
            dispatch = DispatchWorkflow(operation=operation)
    started = (run_started(operation),) if operation.kind is OperationKind.WORKFLOW else ()
    if operation.is_async:
        return (dispatch, *started, TrackAsyncOperation(turn_id=operation.turn_id, operation_id=operation.id))
    return (dispatch, *started, MarkWaiting(turn_id=operation.turn_id, operation_id=operation.id))


def agent_ended(
    state: ConversationState,
    operation: Operation,
    ids: Minter,
    now: int,
    *,
    output: JsonValue = None,
    fault: Fault | None = None,
) -> Decisions:
    """Record the end of an agent call; ``fault`` is None on success.

    The usage of a delegate is charged to its caller. A looped-in agent has charged the conversation itself.
    """
    turn = state.turns[operation.turn_id]
    spent = reported_usage(output, fault) if operation.mode != LOOP_IN else None
    decisions: list[Decision] = []
    if spent is not None:
        turn = add_usage(turn, spent)
        decisions.append(ChargeTurn(turn=turn))
    if fault is None:
        result = tool_calls.success(operation, agent_tools.result_of(operation, output), now)
    else:
        result = tool_calls.failure(operation, fault, now)
    ended = AgentCallEnded(turn_id=turn.id, call=agent_tools.ended_call(operation, now, output, fault))
    return (*decisions, ended, *tool_ended(state, turn, operation, result, ids, now))


def tool_ended(
    state: ConversationState, turn: Turn, operation: Operation, result: ToolResult, ids: Minter, now: int
) -> Decisions:
    """Record the result of a tool call, and call the model if it is idle and the turn waits for nothing
    else.
    """
    moves = list(state.moves[turn.id])
    place, index = next(
        (place, index)
        for place, move in enumerate(moves)
        for index, entry in enumerate(move.invocations)
        if entry.operation_id == operation.id
    )
    move = moves[place] = tool_calls.with_result(moves[place], index, result, now)
    if not result.success:
        turn = replace(turn, tool_failures=turn.tool_failures + 1)
    ended = AsyncOperationCompleted if operation.is_async else ResumeFromTool
    resumed = ended(turn=turn, move=move, invocation=move.invocations[index], operation_id=operation.id)
    if any(op.kind is OperationKind.MODEL for op in state.pending(turn.id)):
        # The next request contains this result.
        return (resumed,)
    return (resumed, *_continue_loop(state, turn, moves, ids, now))


def _continue_loop(
    state: ConversationState, turn: Turn, moves: Sequence[Move], ids: Minter, now: int
) -> Decisions:
    """Call the model if the last of ``moves`` is complete and there are results to report."""
    agent, last = state.turn_work[turn.id].agent, moves[-1]
    news, still = async_tools.unreported(moves), async_tools.running(moves)
    if not last.completed_ms or not (last.invocations or news):
        return ()
    dialect = dialect_of(agent.profile.spec.format)
    results = [
        async_tools.running_result(entry) if entry.is_async else entry.result
        for entry in last.invocations
        if entry.is_async or entry.result is not None
    ]
    body = dialect.resume(state.requests[turn.id].body, last.raw, [each for each in results if each])
    if news:
        body = dialect.notice(body, async_tools.notice(news, still))
    limit = agent.persona.constraints.max_moves_per_turn
    is_last = bool(limit) and turn.moves + 1 >= limit
    if still and (is_last or limits.check_last_call(state, turn, agent, body, now) is not None):
        # Keep the last call until all results have arrived, so that its request contains them.
        return ()
    prepared = PreparedRequest(body, reports=tuple(entry.operation_id for entry in news))
    return call_model(state, turn, agent, prepared, ids, now)
