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
from typing import assert_never

from wonder_server.core.conversation import tools
from wonder_server.core.conversation.answering import call_model, model_answered, tool_ended
from wonder_server.core.conversation.decisions import (
    AddParticipant,
    AppendMessage,
    AssemblyFailed,
    CancelOperation,
    ContextAssembled,
    Decision,
    DispatchWorkflow,
    EndTurnByCancel,
    MarkWaiting,
    Redispatch,
    Refuse,
    ReleaseWork,
    RetryOperation,
    StartConversation,
    StartTurn,
)
from wonder_server.core.conversation.extraction import extracted, extraction_failed, memory_written
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
from wonder_server.core.conversation.pieces import (
    Decisions,
    again,
    agent_message,
    fail_turn,
    hook,
    is_run,
    linked,
    outcome_of,
)
from wonder_server.core.conversation.state import ConversationState
from wonder_server.core.conversation.values import (
    Caller,
    Conversation,
    ConversationStatus,
    Message,
    Operation,
    OperationKind,
    OperationStatus,
    Participant,
    Role,
    ToolResult,
    Turn,
    TurnStatus,
    Work,
)
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.ids import Minter

MAX_ACTIVE_TURNS = 64
"""Turns that one conversation may have active at once."""


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
            return model_answered(state, operation, event, now_ms)
        case Succeeded():
            operation = state.operations.get(event.operation_id)
            if operation is None or _is_of_another_attempt(operation, event):
                return ()
            return _succeeded(state, operation, event, now_ms)
        case Failed():
            operation = state.operations.get(event.operation_id)
            if operation is None or _is_of_another_attempt(operation, event):
                return ()
            return _failed(state, operation, event.fault, now_ms, event.spoken)
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
    assembly = hook(ids.new("op"), turn, OperationKind.ASSEMBLY, turn.context_assembly_run_id, now)
    return (
        *_join(conversation, event.caller, now),
        StartTurn(turn=turn, work=Work(turn_id=turn.id, agent=agent)),
        AppendMessage(message=message),
        DispatchWorkflow(operation=assembly),
        MarkWaiting(turn_id=turn.id, operation_id=assembly.id),
    )


def _half_said(
    state: ConversationState, operation: Operation, turn: Turn, spoken: str, now: int
) -> Decisions:
    """What a model call had said before it was cut off stands as a partial message."""
    if not spoken or operation.kind is not OperationKind.MODEL or state.conversation is None:
        return ()
    message = agent_message(state.conversation, turn, operation.message_id, spoken, now, partial=True)
    return (AppendMessage(message=message),)


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
        return _refuse(Reason.TURN_NOT_ACTIVE, f"The turn is already {turn.status.value}; nothing to cancel.")
    decisions: list[Decision] = [CancelOperation(operation=op) for op in state.pending(turn.id)]
    for operation in state.pending(turn.id):
        decisions.extend(_half_said(state, operation, turn, event.spoken, now))
    fault = Fault(reason=Reason.CANCELLED, message="The turn was cancelled.")
    ended = replace(turn, status=TurnStatus.CANCELLED, fault=fault, completed_ms=now)
    return (*decisions, EndTurnByCancel(turn=ended), ReleaseWork(turn_id=turn.id))


def _refuse(reason: Reason, message: str) -> Decisions:
    return (Refuse(fault=Fault(reason=reason, message=message)),)


# --- results ----------------------------------------------------------------------------------------


def _is_of_another_attempt(operation: Operation, event: Succeeded | Failed) -> bool:
    """Whether an attempt that was given up says so: its run, being stopped, still answers. Nothing can
    fail between two attempts either; a late success is welcome."""
    if event.run_id and event.run_id != operation.run_id:
        return True
    return isinstance(event, Failed) and operation.status is OperationStatus.BACKOFF


def _succeeded(state: ConversationState, operation: Operation, event: Succeeded, now: int) -> Decisions:
    ids = Minter(operation.id, now)
    match operation.kind:
        case OperationKind.ASSEMBLY:
            return _assembled(state, operation, event, ids, now)
        case OperationKind.TASK | OperationKind.WORKFLOW:
            result = ToolResult(tool_call_id=operation.tool_call_id, success=True, result=event.output)
            return tool_ended(state, operation, result, ids, now)
        case OperationKind.EXTRACTION:
            done = extracted(state, operation, event.output, ids, now)
            return _failed(state, operation, done, now) if isinstance(done, Fault) else done
        case OperationKind.MEMORY:
            return memory_written(state, operation, event.output, now)
        case OperationKind.MODEL:
            return ()
        case _:
            assert_never(operation.kind)


def _assembled(
    state: ConversationState, operation: Operation, event: Succeeded, ids: Minter, now: int
) -> Decisions:
    request = event.output.get("request") if isinstance(event.output, dict) else None
    messages = request.get("messages") if isinstance(request, dict) else None
    if (
        not isinstance(request, dict)
        or not isinstance(messages, list)
        or not all(isinstance(message, dict) for message in messages)
    ):
        fault = Fault(
            reason=Reason.CONTEXT_ASSEMBLY_FAILED,
            message="The context-assembly workflow put out no `request` object with a list of `messages`.",
        )
        return _failed(state, operation, fault, now)
    turn = linked(state.turns[operation.turn_id], operation)
    agent = state.works[turn.id].agent
    return (
        ContextAssembled(
            turn=turn,
            operation_id=operation.id,
            outcome=outcome_of(operation, agent.assembly, now),
        ),
        *call_model(turn, agent, request, ids, now),
    )


# --- failures, waits, restarts ----------------------------------------------------------------------


def _failed(
    state: ConversationState, operation: Operation, fault: Fault, now: int, spoken: str = ""
) -> Decisions:
    # The attempt is part of the seed, for an operation can fail more than once.
    ids = Minter(f"{operation.id}/{operation.attempt}", now)
    if fault.transient and operation.attempt < operation.max_attempts:
        wait = operation.backoff_ms * 2 ** (operation.attempt - 1)
        again = replace(
            operation,
            status=OperationStatus.BACKOFF,
            attempt=operation.attempt + 1,
            run_id=ids.child("run", operation.run_id) if is_run(operation) else operation.run_id,
            wake_ms=now + max(wait, fault.retry_after_ms or 0),
        )
        return (RetryOperation(operation=again, fault=fault, run_id=operation.run_id),)
    match operation.kind:
        case OperationKind.ASSEMBLY:
            turn = linked(state.turns[operation.turn_id], operation)
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
                outcome=outcome_of(operation, agent.assembly, now, fault),
            )
            return (CancelOperation(operation=operation), failed, *fail_turn(turn, told, now))
        case OperationKind.MODEL:
            turn = state.turns[operation.turn_id]
            return (
                CancelOperation(operation=operation),
                *_half_said(state, operation, turn, spoken, now),
                *fail_turn(turn, fault, now),
            )
        case OperationKind.TASK | OperationKind.WORKFLOW:
            result = tools.failure(operation.tool_call_id, fault)
            return tool_ended(state, operation, result, ids, now)
        case OperationKind.EXTRACTION | OperationKind.MEMORY:
            return extraction_failed(state, operation, fault, now)
        case _:
            assert_never(operation.kind)


def _woken(state: ConversationState, operation: Operation, now: int) -> Decisions:
    if now < operation.wake_ms:
        return ()
    if operation.status is OperationStatus.BACKOFF:
        return (Redispatch(operation=again(operation, now)),)
    seconds = operation.timeout_ms / 1000
    fault = Fault(reason=Reason.TIMEOUT, message=f"No result within {seconds:g} s.", transient=True)
    failed = _failed(state, operation, fault, now)
    if any(isinstance(decision, RetryOperation | CancelOperation) for decision in failed):
        return failed
    # What it did goes on: nobody waits for it any more.
    return (CancelOperation(operation=operation), *failed)


def _restarted(state: ConversationState, operation: Operation, now: int) -> Decisions:
    if operation.status is OperationStatus.BACKOFF:
        return ()
    if operation.repeatable:
        return (Redispatch(operation=again(operation, now)),)
    fault = Fault(
        reason=Reason.OUTCOME_UNKNOWN,
        message="The server stopped while this ran; whether it took effect is unknown.",
    )
    return _failed(state, operation, fault, now)
