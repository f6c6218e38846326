"""The agent loop: call the model, execute its tool calls, call it again with the results, until it
answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wonder_server.core.conversation.context.notices import askers
from wonder_server.core.conversation.context.output_requests import ask_for_repair, output_schema_of
from wonder_server.core.conversation.context.permissions import may_decline
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
    DispatchTask,
    DispatchWorkflow,
    LimitReached,
    MarkWaiting,
    RecordMove,
    RejectOutput,
    ReleaseTurn,
    ResumeFromTool,
    TrackAsyncOperation,
)
from wonder_server.core.conversation.model.event_payloads import Limit, OutputRejection
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
from wonder_server.core.conversation.model.turn_progress import progress_of
from wonder_server.core.conversation.model.usage import add_usage, of_call, reported_usage
from wonder_server.core.conversation.model.values import (
    Conversation,
    Move,
    Operation,
    OperationKind,
    ToolResult,
    Turn,
    TurnStatus,
)
from wonder_server.core.conversation.planning import assembly, async_tools, limits, output_checks, tool_calls
from wonder_server.core.conversation.planning.agent_calls import (
    decline_of,
    declined,
    declining_move,
    with_output,
)
from wonder_server.core.conversation.planning.approval.requests import edit_note, request_approval, with_gate
from wonder_server.core.conversation.planning.hooks.side_models import with_model
from wonder_server.core.conversation.planning.large_results import bounded
from wonder_server.core.conversation.planning.model_requests import PreparedRequest, call_model
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult
from wonder_server.core.schema.truncation import utf8_size

_REQUESTING = (OperationKind.ASSEMBLY, OperationKind.MODEL)
"""Operations of a turn whose end leads to a decision about the next request."""

RULES_OF_HIDDEN_IDS = 6
"""Version of `TURN_RULES` from which on models get the answers of called agents without ids."""
RULES_OF_NAMED_MODELS = 4
"""Version of `TURN_RULES` from which on a move names the provider and the model profile that answered."""


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
    turn = add_usage(turn, of_call(result.usage, operation.attempt, itemized=turn.itemized), moves=sequence)
    limit = agent.persona.constraints.max_moves_per_turn
    request = state.requests[turn.id]
    is_last = request.wrap_up is not None or request.repair or bool(limit and sequence >= limit)
    calls_tools = bool(result.tool_calls) and not is_last
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
    work = state.turn_work[turn.id]
    if work.rules >= RULES_OF_NAMED_MODELS:
        profile = work.agent.profile
        move = replace(move, provider=profile.spec.provider, model_profile=str(profile.pin))
    if move.reported:
        move = replace(move, asker=askers(state, turn, request.through))
    messages = _answer_message(conversation, turn, operation, event, now)
    answer = _Answer(operation, result, turn, move, messages)
    if result.tool_calls and may_decline(state, turn, agent):
        decisions = _declined(state, answer, now)
        if decisions:
            return decisions
    if calls_tools:
        return _call_tools(state, answer, ids, now)
    recorded = (RecordMove(turn=progress_of(turn), move=move, operation_id=operation.id), *messages)
    if not result.tool_calls or request.repair:
        return (*recorded, *_answered(state, answer, event, ids, now))
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
    """Return the message of the model's text and images, which may precede tool calls (B6)."""
    result = event.result
    if not result.text and not event.parts:
        return ()
    cut = result.stop_reason == "length"
    message = agent_message(conversation, turn, operation.message_id, result.text, now, partial=cut)
    if event.full_result is not None and event.full_result.text != result.text:
        message = replace(message, whole_bytes=utf8_size(event.full_result.text))
    if event.parts:
        message = replace(message, parts=event.parts)
    return (AppendMessage(message=message),)


def _answered(
    state: ConversationState, answer: _Answer, event: ModelAnswered, ids: Minter, now: int
) -> Decisions:
    """Complete the turn with a final answer, or go on: asynchronous operations are pending, or the answer
    does not satisfy the output schema.
    """
    turn, operation_id = answer.turn, answer.operation.id
    agent = state.turn_work[turn.id].agent
    refusal = declined(state, turn, answer.result)
    if refusal is not None:
        cancelled = cancel_pending(state, turn.id, now, except_id=operation_id)
        return (*cancelled, *fail_turn(turn, refusal, now))
    moves = [*state.moves[turn.id], answer.move]
    if async_tools.running(moves) or async_tools.unreported(moves):
        return _continue_loop(state, turn, moves, ids, now)
    schema = output_schema_of(turn, agent)
    if not schema:
        return _complete(with_output(state, turn, answer.messages), agent, ids, now)
    output = output_checks.read_output(schema, event)
    if output.value is not None:
        return _complete(replace(turn, output=output.value), agent, ids, now)
    return _reject_output(state, answer, output.problems, ids, now)


def _declined(state: ConversationState, answer: _Answer, now: int) -> Decisions:
    """Fail the turn of a called agent that declines; nothing if it does not."""
    turn, calls = answer.turn, answer.result.tool_calls
    declining = decline_of(turn, calls)
    if declining is None:
        return ()
    call, fault = declining
    move = declining_move(answer.move, calls, call, now)
    operation_id = answer.operation.id
    recorded = RecordMove(turn=progress_of(turn), move=move, operation_id=operation_id)
    cancelled = cancel_pending(state, turn.id, now, except_id=operation_id)
    return (recorded, *answer.messages, *cancelled, *fail_turn(turn, fault, now))


def _reject_output(
    state: ConversationState, answer: _Answer, problems: tuple[str, ...], ids: Minter, now: int
) -> Decisions:
    """Ask the model to repair an answer that does not satisfy the output schema, or fail the turn."""
    turn, result = answer.turn, answer.result
    agent, request = state.turn_work[turn.id].agent, state.requests[turn.id]
    body = ask_for_repair(request.body, agent, result.raw, result.text, problems)
    repairing = output_checks.may_repair(state, turn, agent, body, now)
    message_id = answer.operation.message_id if answer.messages else ""
    rejection = OutputRejection(message_id=message_id, problems=problems, repairing=repairing)
    rejected = RejectOutput(turn_id=turn.id, rejection=rejection)
    if repairing:
        rules = state.turn_work[turn.id].rules
        repair = PreparedRequest(body, rules, repair=True, through=request.through)
        return (rejected, *call_model(state, turn, agent, repair, ids, now))
    cancelled = cancel_pending(state, turn.id, now, except_id=answer.operation.id)
    fault = output_checks.output_fault(problems, repaired=request.repair)
    return (rejected, *cancelled, *fail_turn(turn, fault, now))


def _complete(turn: Turn, agent: PinnedAgent, ids: Minter, now: int) -> Decisions:
    if agent.extraction is None:
        turn = replace(turn, status=TurnStatus.COMPLETED, completed_ms=now)
        return (CompleteTurn(turn=progress_of(turn)), ReleaseTurn(turn_id=turn.id))
    run_id = ids.child("run", turn.conversation_id)
    turn = replace(turn, status=TurnStatus.COMPLETED, completed_ms=now, memory_extraction_run_id=run_id)
    extraction = hook_operation(ids.new("op"), turn, OperationKind.EXTRACTION, run_id, now)
    extraction = with_model(extraction, agent)
    return (CompleteTurn(turn=progress_of(turn)), DispatchWorkflow(operation=extraction))


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
    if state.turn_work[turn.id].rules >= tool_calls.RULES_OF_PINNED_TOOLS:
        prepared = [tool_calls.with_pinned_tool(each, agent) for each in prepared]
    prepared = [with_gate(state, each, turn, agent, ids, now) for each in prepared]
    beyond = tool_calls.refuse_beyond_limit(result.tool_calls[allowed:], limit, now)
    turn = replace(turn, tool_failures=turn.tool_failures + len(beyond))
    move = replace(move, invocations=(*(item.invocation for item in prepared), *beyond))
    if not any(item.refusal for item in prepared):
        move = tool_calls.complete_move(move, now)
    decisions: list[Decision] = [
        RecordMove(turn=progress_of(turn), move=move, operation_id=answer.operation.id),
        *answer.messages,
    ]
    if limit is not None:
        decisions.append(LimitReached(turn_id=turn.id, limit=Limit(fault=limit, enforced=True)))
    for index, item in enumerate(prepared):
        if item.operation is not None and item.gate is not None:
            decisions.extend(request_approval(item.operation, item.gate))
        elif item.operation is not None:
            decisions.extend(dispatched(item.operation))
        elif item.refusal is not None:
            turn = replace(turn, tool_failures=turn.tool_failures + 1)
            move = tool_calls.with_result(move, index, item.refusal, now)
            resumed = ResumeFromTool(
                turn=progress_of(turn), move=move, invocation=move.invocations[index], operation_id=""
            )
            decisions.append(resumed)
    decisions.extend(_continue_loop(state, turn, [*state.moves[turn.id], move], ids, now))
    return tuple(decisions)


def dispatched(operation: Operation) -> Decisions:
    """Return the decisions that dispatch the operation of a tool call."""
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
        decisions.append(ChargeTurn(turn=progress_of(turn)))
    if fault is None:
        result = tool_calls.success(operation, agent_tools.result_of(operation, output), now)
        if state.turn_work[turn.id].rules >= RULES_OF_HIDDEN_IDS:
            result = replace(result, hidden=agent_tools.IDS)
    else:
        result = tool_calls.failure(operation, fault, now)
    ended = AgentCallEnded(turn_id=turn.id, call=agent_tools.ended_call(operation, now, output, fault))
    return (*decisions, ended, *tool_ended(state, turn, operation, result, ids, now))


def tool_ended(
    state: ConversationState, turn: Turn, operation: Operation, result: ToolResult, ids: Minter, now: int
) -> Decisions:
    """Record the result of a tool call, and call the model if it is idle and no other tool is awaited."""
    moves = list(state.moves[turn.id])
    place, index = next(
        (place, index)
        for place, move in enumerate(moves)
        for index, entry in enumerate(move.invocations)
        if entry.operation_id == operation.id
    )
    edited = moves[place].invocations[index].edited
    if edited is not None:
        result = replace(result, note=edit_note(edited))
    result = bounded(result, state.turn_work[turn.id].agent, operation, moves[place], index)
    move = moves[place] = tool_calls.with_result(moves[place], index, result, now)
    if not result.success:
        turn = replace(turn, tool_failures=turn.tool_failures + 1)
    ended = AsyncOperationCompleted if operation.is_async else ResumeFromTool
    resumed = ended(
        turn=progress_of(turn), move=move, invocation=move.invocations[index], operation_id=operation.id
    )
    if any(op.kind in _REQUESTING for op in state.pending(turn.id)):
        # The next request contains this result.
        return (resumed,)
    return (resumed, *_continue_loop(state, turn, moves, ids, now, late=operation.is_async))


def _continue_loop(
    state: ConversationState, turn: Turn, moves: Sequence[Move], ids: Minter, now: int, *, late: bool = False
) -> Decisions:
    """Call the model if the last of ``moves`` is complete and there are results to report.

    ``late``: the turn was idle until an asynchronous result arrived, so its context is assembled again first.
    """
    work, last = state.turn_work[turn.id], moves[-1]
    if not last.completed_ms or not (last.invocations or async_tools.unreported(moves)):
        return ()
    agent, rules = work.agent, work.rules
    prepared = assembly.extended(state, turn, agent, moves, rules)
    if waits_for_results(state, turn, moves, prepared.body, now):
        return ()
    if late and rules:
        return assembly.assemble_again(state, turn, agent, ids, now)
    return call_model(state, turn, agent, prepared, ids, now)


def waits_for_results(
    state: ConversationState, turn: Turn, moves: Sequence[Move], body: JsonDict, now: int
) -> bool:
    """Return True if ``body`` must wait: the next call is the last one, and it is kept until all results have
    arrived, so that its request contains them.
    """
    if not async_tools.running(moves):
        return False
    agent = state.turn_work[turn.id].agent
    limit = agent.persona.constraints.max_moves_per_turn
    is_last = bool(limit) and turn.moves + 1 >= limit
    return is_last or limits.check_last_call(state, turn, agent, body, now) is not None
