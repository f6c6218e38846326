"""The planner of conversations: what the agent loop decides (document 1).

The theory. A turn is a small machine driven by results::

    Send ─▶ assembly ─▶ model ─▶ (no tool calls) ─▶ completed ─▶ extraction ─▶ released
                ▲         │  ▲
              retry       ▼  │ every call has its result
                        tools

Each arrow is an *operation* in the outbox: dispatched after a commit, answered by an input that carries
its id. So the whole state of a turn is "which operations are pending", and a crash at any point leaves a
state from which the same arrows go on. An answer to an operation that is not pending changes nothing:
that is what makes every dispatch safe to repeat.

Laws (``tests/core/test_conversation_plan.py``): same state, input and time, same decisions; `plan` never
raises, a refusal is the value `Refuse`; an active turn always has a pending operation, so nothing is ever
stuck; a turn ends exactly once.

Infrastructure faults (``transient``) are tried again here, with persisted waits: assembly and extraction
3 × (100, 200, 400 ms), models 3 × (500 ms, 1 s, 2 s), tools as they say (feature I3). Everything else is
a business fault: assembly fails the turn, extraction marks it, a tool's fault goes to the model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, assert_never

from wonder_server.core.conversation import tools
from wonder_server.core.conversation.decisions import (
    AddParticipant,
    AppendMessage,
    AssemblyFailed,
    CancelOperation,
    CompleteTurn,
    ContextAssembled,
    Decision,
    DispatchModel,
    DispatchTask,
    DispatchWorkflow,
    EndTurnByCancel,
    ExtractionEnded,
    FailTurn,
    LimitReached,
    MarkWaiting,
    MemoryWritten,
    RecordMove,
    Redispatch,
    Refuse,
    ReleaseWork,
    ResumeFromTool,
    RetryOperation,
    StartConversation,
    StartTurn,
    WriteMemory,
)
from wonder_server.core.conversation.dialects import DIALECTS
from wonder_server.core.conversation.hooks import MAX_MEMORY_OPERATIONS
from wonder_server.core.conversation.inputs import (
    CancelTurn,
    Create,
    Failed,
    Input,
    ModelAnswered,
    Restarted,
    Send,
    Succeeded,
    Woken,
)
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.values import (
    Caller,
    Conversation,
    ConversationStatus,
    HookOutcome,
    Limit,
    Message,
    Move,
    Operation,
    OperationKind,
    OperationStatus,
    Participant,
    Request,
    Role,
    ToolResult,
    Turn,
    TurnStatus,
    Work,
)
from wonder_server.core.definitions.specs import PinnedAgent, PinnedWorkflow
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.ids import Minter
from wonder_server.core.model import ToolCall

MAX_ACTIVE_TURNS = 64
"""Turns that one conversation may have active at once."""

HOOK_ATTEMPTS, HOOK_BACKOFF_MS, HOOK_TIMEOUT_MS = 3, 100, 30_000
MODEL_BACKOFF_MS = 500

WRAP_UP = (
    "You have reached the limit of moves for this turn. Do not call tools any more: "
    "answer now with what you have, and say what is missing."
)

Decisions = tuple[Decision, ...]


def plan(state: ConversationState, event: Input, now_ms: int) -> Decisions:
    """What to do about ``event``. Pure; never raises."""
    match event:
        case Create():
            return _create(state, event)
        case Send():
            return _send(state, event, now_ms)
        case CancelTurn():
            return _cancel(state, event, now_ms)
        case ModelAnswered():
            operation = state.operations.get(event.operation_id)
            if operation is None or operation.kind is not OperationKind.MODEL:
                return ()
            return _model_answered(state, operation, event, now_ms)
        case Succeeded():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _succeeded(state, operation, event, now_ms)
        case Failed():
            operation = state.operations.get(event.operation_id)
            if operation is None:
                return ()
            return _failed(state, operation, event.fault, now_ms)
        case Woken():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _woken(state, operation, now_ms)
        case Restarted():
            operation = state.operations.get(event.operation_id)
            return () if operation is None else _restarted(state, operation, now_ms)
        case _:
            assert_never(event)


# --- the room ---------------------------------------------------------------------------------------


def _create(state: ConversationState, event: Create) -> Decisions:
    if state.conversation is not None:
        return _refuse(Reason.ALREADY_EXISTS, "This conversation already exists.")
    return (StartConversation(conversation=event.conversation),)


def _send(state: ConversationState, event: Send, now: int) -> Decisions:
    conversation = state.conversation
    if conversation is None:
        return _refuse(Reason.CONVERSATION_NOT_FOUND, "No conversation has this id.")
    if conversation.status not in (ConversationStatus.ACTIVE, ConversationStatus.WAITING):
        return _refuse(
            Reason.CONVERSATION_NOT_ACTIVE,
            f"The conversation is {conversation.status.value}; reopen it before you send to it.",
        )
    if len(state.active_turns()) >= MAX_ACTIVE_TURNS:
        return _refuse(
            Reason.LIMIT_EXCEEDED,
            f"The conversation already has {MAX_ACTIVE_TURNS} active turns; wait for one to end.",
        )
    ids = Minter(event.seed, now)
    agent = event.agent
    turn = Turn(
        id=ids.new("turn"),
        conversation_id=conversation.id,
        ordinal=conversation.turn_count + 1,
        caller=event.caller,
        agent_id=agent.agent_id,
        agent_name=agent.name,
        persona=agent.persona_ref,
        input=event.content,
        reply_to_message_id=event.reply_to_message_id,
        metadata=event.metadata,
        context_assembly_run_id=ids.child("run", conversation.id),
        created_ms=now,
    )
    message = Message(
        id=ids.new("msg"),
        conversation_id=conversation.id,
        turn_id=turn.id,
        ordinal=conversation.message_count + 1,
        role=Role.USER,
        author=event.caller.user_id or event.caller.agent_id or event.caller.run_id,
        content=event.content,
        reply_to_message_id=event.reply_to_message_id,
        created_ms=now,
    )
    assembly = _hook(
        ids.new("op"), turn, OperationKind.ASSEMBLY, turn.context_assembly_run_id, now
    )
    return (
        *_join(conversation, event.caller, now),
        StartTurn(turn=turn, work=Work(turn_id=turn.id, agent=agent)),
        AppendMessage(message=message),
        DispatchWorkflow(operation=assembly),
        MarkWaiting(turn_id=turn.id, operation_id=assembly.id),
    )


def _join(conversation: Conversation, caller: Caller, now: int) -> Decisions:
    """A user who speaks for the first time takes part from now on."""
    known = {person.id for person in conversation.participants if person.type == "user"}
    if caller.type != "user" or not caller.user_id or caller.user_id in known:
        return ()
    person = Participant(type="user", id=caller.user_id, joined_ms=now)
    joined = replace(conversation, participants=(*conversation.participants, person))
    return (AddParticipant(conversation=joined, participant=person),)


def _cancel(state: ConversationState, event: CancelTurn, now: int) -> Decisions:
    turn = state.turns.get(event.turn_id)
    if turn is None:
        return _refuse(Reason.TURN_NOT_FOUND, "No turn of this conversation has this id.")
    if turn.status is not TurnStatus.ACTIVE:
        return _refuse(
            Reason.TURN_NOT_ACTIVE, f"The turn is already {turn.status.value}; nothing to cancel."
        )
    decisions: list[Decision] = [CancelOperation(operation=op) for op in state.pending(turn.id)]
    speaking = [op for op in state.pending(turn.id) if op.kind is OperationKind.MODEL]
    if event.spoken and speaking and state.conversation is not None:
        message = _agent_message(
            state.conversation, turn, speaking[0].message_id, event.spoken, now, partial=True
        )
        decisions.append(AppendMessage(message=message))
    fault = Fault(reason=Reason.CANCELLED, message="The turn was cancelled.")
    ended = replace(turn, status=TurnStatus.CANCELLED, fault=fault, completed_ms=now)
    return (*decisions, EndTurnByCancel(turn=ended), ReleaseWork(turn_id=turn.id))


# --- results ----------------------------------------------------------------------------------------


def _succeeded(
    state: ConversationState, operation: Operation, event: Succeeded, now: int
) -> Decisions:
    ids = Minter(operation.id, now)
    match operation.kind:
        case OperationKind.ASSEMBLY:
            return _assembled(state, operation, event, ids, now)
        case OperationKind.TASK | OperationKind.WORKFLOW:
            result = ToolResult(
                tool_call_id=operation.tool_call_id, success=True, result=event.output
            )
            return _tool_ended(state, operation, result, ids, now)
        case OperationKind.EXTRACTION:
            return _extracted(state, operation, event, ids, now)
        case OperationKind.MEMORY:
            return _memory_written(state, operation, event.output, now)
        case OperationKind.MODEL:
            return ()
        case _:
            assert_never(operation.kind)


def _assembled(
    state: ConversationState, operation: Operation, event: Succeeded, ids: Minter, now: int
) -> Decisions:
    request = event.output.get("request") if isinstance(event.output, dict) else None
    if not isinstance(request, dict):
        fault = Fault(
            reason=Reason.CONTEXT_ASSEMBLY_FAILED,
            message="The context-assembly workflow put out no `request` object.",
        )
        return _failed(state, operation, fault, now)
    turn = _ran(state.turns[operation.turn_id], operation)
    agent = state.works[turn.id].agent
    return (
        ContextAssembled(
            turn=turn,
            operation_id=operation.id,
            outcome=_outcome(operation, agent.assembly, now),
        ),
        *_call_model(turn, agent, request, ids, now),
    )


def _call_model(
    turn: Turn, agent: PinnedAgent, body: dict[str, Any], ids: Minter, now: int
) -> Decisions:
    limit = agent.persona.constraints.max_moves_per_turn
    decisions: list[Decision] = []
    if limit and turn.moves + 1 >= limit and agent.tools:
        body = DIALECTS[agent.profile.spec.format].wrap_up(body, WRAP_UP)
        if turn.moves:
            message = f"Move {limit} of {limit}: the model is asked to answer without tools."
            fault = Fault(reason=Reason.MAX_MOVES_REACHED, message=message)
            limited = Limit(fault=fault, enforced=False)
            decisions.append(LimitReached(turn_id=turn.id, limit=limited))
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
    return (*decisions, DispatchModel(operation=operation, request=Request(turn_id=turn.id, body=body)))


def _model_answered(
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
    turn = replace(
        turn,
        moves=move.sequence,
        input_tokens=turn.input_tokens + (result.usage.input_tokens or 0),
        output_tokens=turn.output_tokens + (result.usage.output_tokens or 0),
    )
    if not result.tool_calls:
        move = replace(move, completed_ms=now)
        recorded = RecordMove(turn=turn, move=move, operation_id=operation.id)
        return (recorded, *_respond(conversation, turn, agent, operation, result.text, ids, now))
    limit = agent.persona.constraints.max_moves_per_turn
    if limit and move.sequence >= limit:
        move = replace(move, completed_ms=now)
        recorded = RecordMove(turn=turn, move=move, operation_id=operation.id)
        fault = Fault(
            reason=Reason.MAX_MOVES_REACHED,
            message=f"The turn used all of its {limit} moves without an answer.",
        )
        limited = LimitReached(turn_id=turn.id, limit=Limit(fault=fault, enforced=True))
        return (recorded, limited, *_fail(turn, fault, now))
    request = state.requests[turn.id].body
    return _call_tools(operation, turn, agent, request, move, result.tool_calls, ids, now)


def _respond(
    conversation: Conversation,
    turn: Turn,
    agent: PinnedAgent,
    operation: Operation,
    text: str,
    ids: Minter,
    now: int,
) -> Decisions:
    decisions: list[Decision] = []
    if text:
        message = _agent_message(conversation, turn, operation.message_id, text, now)
        decisions.append(AppendMessage(message=message))
    turn = replace(turn, status=TurnStatus.COMPLETED, completed_ms=now)
    if agent.extraction is None:
        return (*decisions, CompleteTurn(turn=turn), ReleaseWork(turn_id=turn.id))
    run_id = ids.child("run", turn.conversation_id)
    turn = replace(turn, memory_extraction_run_id=run_id)
    extraction = _hook(ids.new("op"), turn, OperationKind.EXTRACTION, run_id, now)
    return (*decisions, CompleteTurn(turn=turn), DispatchWorkflow(operation=extraction))


# --- tools ------------------------------------------------------------------------------------------


def _call_tools(
    operation: Operation,
    turn: Turn,
    agent: PinnedAgent,
    request: dict[str, Any],
    move: Move,
    calls: tuple[ToolCall, ...],
    ids: Minter,
    now: int,
) -> Decisions:
    prepared = [tools.prepare(agent, call, turn, ids, now) for call in calls]
    move = replace(move, invocations=tuple(item.invocation for item in prepared))
    decisions: list[Decision] = [RecordMove(turn=turn, move=move, operation_id=operation.id)]
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
        decisions.extend(_go_on(turn, agent, request, move, ids, now))
    return tuple(decisions)


def _tool_ended(
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
    return (resumed, *_go_on(turn, agent, request, move, ids, now))


def _go_on(
    turn: Turn, agent: PinnedAgent, request: dict[str, Any], move: Move, ids: Minter, now: int
) -> Decisions:
    """Every call of ``move`` has its result: ask the model again."""
    results = [entry.result for entry in move.invocations if entry.result is not None]
    dialect = DIALECTS[agent.profile.spec.format]
    return _call_model(turn, agent, dialect.resume(request, move.raw, results), ids, now)


# --- extraction -------------------------------------------------------------------------------------


def _extracted(
    state: ConversationState, operation: Operation, event: Succeeded, ids: Minter, now: int
) -> Decisions:
    turn = _ran(state.turns[operation.turn_id], operation)
    asked = event.output.get("memory_operations", []) if isinstance(event.output, dict) else []
    if not isinstance(asked, list) or not all(isinstance(item, dict) for item in asked):
        fault = Fault(
            reason=Reason.MEMORY_EXTRACTION_FAILED,
            message="The memory-extraction workflow put out `memory_operations` that are no list of objects.",
        )
        return _failed(state, operation, fault, now)
    writes = [
        WriteMemory(
            operation=Operation(
                id=ids.new("op"),
                turn_id=turn.id,
                kind=OperationKind.MEMORY,
                input=item,
                run_id=operation.run_id,
                max_attempts=HOOK_ATTEMPTS,
                backoff_ms=HOOK_BACKOFF_MS,
                timeout_ms=HOOK_TIMEOUT_MS,
                wake_ms=now + HOOK_TIMEOUT_MS,
                created_ms=now,
            )
        )
        for item in asked[:MAX_MEMORY_OPERATIONS]
    ]
    if writes:
        # The turn's extraction is over when the last of these is; the event waits for it.
        return (*writes, CancelOperation(operation=operation))
    return (
        _extraction_ended(state, turn, operation, now),
        ReleaseWork(turn_id=turn.id),
    )


def _memory_written(
    state: ConversationState, operation: Operation, output: object, now: int
) -> Decisions:
    turn = _ran(state.turns[operation.turn_id], operation)
    others = [op for op in state.pending(turn.id) if op.id != operation.id]
    if others:
        return (MemoryWritten(operation_id=operation.id, output=output),)
    return (
        MemoryWritten(operation_id=operation.id, output=output),
        _extraction_ended(state, turn, operation, now),
        ReleaseWork(turn_id=turn.id),
    )


def _extraction_ended(
    state: ConversationState, turn: Turn, operation: Operation, now: int, fault: Fault | None = None
) -> ExtractionEnded:
    outcome = _outcome(operation, state.works[turn.id].agent.extraction, now, fault)
    return ExtractionEnded(turn=turn, operation_id=operation.id, outcome=outcome)


def _extraction_failed(
    state: ConversationState, operation: Operation, fault: Fault, now: int
) -> Decisions:
    turn = _ran(state.turns[operation.turn_id], operation)
    turn = replace(turn, memory_extraction_failed=True)
    others = [op for op in state.pending(turn.id) if op.id != operation.id]
    ended = _extraction_ended(state, turn, operation, now, fault)
    return (ended,) if others else (ended, ReleaseWork(turn_id=turn.id))


# --- failures, waits, restarts ----------------------------------------------------------------------


def _failed(state: ConversationState, operation: Operation, fault: Fault, now: int) -> Decisions:
    # The attempt is part of the seed, for an operation can fail more than once.
    ids = Minter(f"{operation.id}/{operation.attempt}", now)
    if fault.transient and operation.attempt < operation.max_attempts:
        wait = operation.backoff_ms * 2 ** (operation.attempt - 1)
        again = replace(
            operation,
            status=OperationStatus.BACKOFF,
            attempt=operation.attempt + 1,
            run_id=ids.child("run", operation.run_id) if _is_run(operation) else operation.run_id,
            wake_ms=now + max(wait, fault.retry_after_ms or 0),
        )
        return (RetryOperation(operation=again, fault=fault, run_id=operation.run_id),)
    match operation.kind:
        case OperationKind.ASSEMBLY:
            turn = _ran(state.turns[operation.turn_id], operation)
            told = replace(
                fault,
                reason=Reason.CONTEXT_ASSEMBLY_FAILED,
                message=f"The context could not be assembled: {fault.message}",
                metadata={**fault.metadata, "cause": fault.reason.value},
            )
            agent = state.works[turn.id].agent
            failed = AssemblyFailed(
                turn_id=turn.id,
                operation_id=operation.id,
                outcome=_outcome(operation, agent.assembly, now, fault),
            )
            return (CancelOperation(operation=operation), failed, *_fail(turn, told, now))
        case OperationKind.MODEL:
            turn = state.turns[operation.turn_id]
            return (CancelOperation(operation=operation), *_fail(turn, fault, now))
        case OperationKind.TASK | OperationKind.WORKFLOW:
            result = tools.failure(operation.tool_call_id, fault)
            return _tool_ended(state, operation, result, ids, now)
        case OperationKind.EXTRACTION | OperationKind.MEMORY:
            return _extraction_failed(state, operation, fault, now)
        case _:
            assert_never(operation.kind)


def _woken(state: ConversationState, operation: Operation, now: int) -> Decisions:
    if now < operation.wake_ms:
        return ()
    if operation.status is OperationStatus.BACKOFF:
        return (Redispatch(operation=_again(operation, now)),)
    seconds = operation.timeout_ms / 1000
    fault = Fault(
        reason=Reason.TIMEOUT, message=f"No result within {seconds:g} s.", transient=True
    )
    return _failed(state, operation, fault, now)


def _restarted(state: ConversationState, operation: Operation, now: int) -> Decisions:
    if operation.status is OperationStatus.BACKOFF:
        return ()
    if operation.repeatable:
        return (Redispatch(operation=_again(operation, now)),)
    fault = Fault(
        reason=Reason.OUTCOME_UNKNOWN,
        message="The server stopped while this ran; whether it took effect is unknown.",
    )
    return _failed(state, operation, fault, now)


def _again(operation: Operation, now: int) -> Operation:
    return replace(
        operation,
        status=OperationStatus.DISPATCHED,
        dispatches=operation.dispatches + 1,
        wake_ms=now + operation.timeout_ms,
    )


# --- pieces -----------------------------------------------------------------------------------------


def _outcome(
    operation: Operation, workflow: PinnedWorkflow | None, now: int, fault: Fault | None = None
) -> HookOutcome:
    return HookOutcome(
        run_id=operation.run_id,
        workflow=str(workflow.pin) if workflow is not None else "",
        attempts=operation.attempt,
        duration_ms=now - operation.created_ms,
        fault=fault,
    )


def _is_run(operation: Operation) -> bool:
    return operation.kind in (
        OperationKind.ASSEMBLY,
        OperationKind.EXTRACTION,
        OperationKind.WORKFLOW,
    )


def _ran(turn: Turn, operation: Operation) -> Turn:
    """``turn``, linked to the run that a hook's last attempt was."""
    if operation.kind is OperationKind.ASSEMBLY:
        return replace(turn, context_assembly_run_id=operation.run_id)
    if operation.kind in (OperationKind.EXTRACTION, OperationKind.MEMORY):
        return replace(turn, memory_extraction_run_id=operation.run_id)
    return turn


def _refuse(reason: Reason, message: str) -> Decisions:
    return (Refuse(fault=Fault(reason=reason, message=message)),)


def _fail(turn: Turn, fault: Fault, now: int) -> Decisions:
    failed = replace(turn, status=TurnStatus.FAILED, fault=fault, completed_ms=now)
    return (FailTurn(turn=failed), ReleaseWork(turn_id=turn.id))


def _hook(operation_id: str, turn: Turn, kind: OperationKind, run_id: str, now: int) -> Operation:
    return Operation(
        id=operation_id,
        turn_id=turn.id,
        kind=kind,
        run_id=run_id,
        max_attempts=HOOK_ATTEMPTS,
        backoff_ms=HOOK_BACKOFF_MS,
        timeout_ms=HOOK_TIMEOUT_MS,
        wake_ms=now + HOOK_TIMEOUT_MS,
        created_ms=now,
    )


def _agent_message(
    conversation: Conversation,
    turn: Turn,
    message_id: str,
    text: str,
    now: int,
    *,
    partial: bool = False,
) -> Message:
    return Message(
        id=message_id,
        conversation_id=turn.conversation_id,
        turn_id=turn.id,
        ordinal=conversation.message_count + 1,
        role=Role.AGENT,
        author=turn.agent_id,
        content=text,
        partial=partial,
        created_ms=now,
    )
