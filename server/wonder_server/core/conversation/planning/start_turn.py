"""Start of a turn: a message for an agent, from a person or from a caller of the agent."""

from __future__ import annotations

from wonder_server.core.conversation.context.history import select_history
from wonder_server.core.conversation.model.decisions import (
    AppendMessage,
    DispatchWorkflow,
    MarkWaiting,
    Refuse,
    RefuseCall,
    StartTurn,
)
from wonder_server.core.conversation.model.inputs import Send
from wonder_server.core.conversation.model.lifecycle_decisions import AddParticipant
from wonder_server.core.conversation.model.operations import Decisions
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.status import OPEN
from wonder_server.core.conversation.model.usage import RULES_OF_ITEMIZED_USAGE
from wonder_server.core.conversation.model.values import (
    Conversation,
    Message,
    Participant,
    Role,
    Turn,
    TurnWork,
)
from wonder_server.core.conversation.planning.agent_calls import check_repeated_call
from wonder_server.core.conversation.planning.lifecycle import MAX_PARTICIPANTS, reactivate, unavailable
from wonder_server.core.conversation.planning.limits import unaffordable
from wonder_server.core.conversation.planning.summarization import earlier_first_hook, first_hook
from wonder_server.core.errors import Fault, Reason, not_found
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter

MAX_ACTIVE_TURNS = 64
"""Maximum number of active turns in one conversation."""


def start_turn(state: ConversationState, event: Send, now: int) -> Decisions:
    """Start a turn, or reject the message. A repeated call gets the outcome of the turn that it started
    before.
    """
    answered = check_repeated_call(state, event)
    if answered is not None:
        return answered
    conversation = state.conversation
    refusal = _refusal(state, event)
    if refusal is not None:
        return (
            Refuse(fault=refusal) if event.parent is None else RefuseCall(parent=event.parent, fault=refusal),
        )
    assert conversation is not None, "a message to a missing conversation is rejected"
    reactivated, conversation = reactivate(conversation, now)
    ids = Minter(event.seed, now)
    turn = _turn(conversation, event, ids, now)
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
        parts=event.parts,
    )
    if event.rules:
        omitted = select_history(state, turn, event.agent)
        turn = replace(turn, history_start=omitted.first_turn if omitted is not None else 0)
        first = first_hook(state, turn, event.agent, omitted, ids, now)
    else:
        first = earlier_first_hook(state, turn, event.agent, ids, now)
    return (
        *reactivated,
        *_join(conversation, event, now),
        StartTurn(turn=turn, work=TurnWork(turn_id=turn.id, agent=event.agent, rules=event.rules)),
        AppendMessage(message=message),
        DispatchWorkflow(operation=first),
        MarkWaiting(turn_id=turn.id, operation_id=first.id),
    )


def refuse(reason: Reason, message: str) -> Decisions:
    """Return the decision that rejects an input."""
    return (Refuse(fault=Fault(reason=reason, message=message)),)


def _turn(conversation: Conversation, event: Send, ids: Minter, now: int) -> Turn:
    agent, quote = event.agent, event.quote
    # A reset may have come after the sender read the message.
    quote = quote if quote is not None and quote.turn_ordinal > conversation.reset_ordinal else None
    return Turn(
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
        parent=event.parent,
        depth=event.depth,
        budget=event.budget,
        max_depth=min(event.max_depth, event.depth + agent.persona.constraints.max_delegation_depth),
        call_chain=event.call_chain,
        trace_id=event.trace_id,
        principal=event.principal,
        output_schema=event.output_schema,
        quote=quote,
        itemized=event.rules >= RULES_OF_ITEMIZED_USAGE,
    )


def _refusal(state: ConversationState, event: Send) -> Fault | None:
    """Return the reason why no turn can start now; None if one can."""
    conversation = state.conversation
    missing = unavailable(conversation)
    if conversation is None or missing is not None:
        return missing
    if conversation.status not in OPEN:
        return Fault(
            reason=Reason.CONVERSATION_NOT_ACTIVE,
            message=f"The conversation is {conversation.status.value}; reopen it before you send to it.",
        )
    if len(state.active_turns()) >= MAX_ACTIVE_TURNS:
        return Fault(
            reason=Reason.LIMIT_EXCEEDED,
            message=f"The conversation already has {MAX_ACTIVE_TURNS} active turns; wait for one to end.",
        )
    fault = event.unaffordable or unaffordable(conversation)
    if fault is not None:
        return fault
    # The agent may have been removed after the message was addressed.
    if not event.loop_in and not _participates(conversation, "agent", event.agent.agent_id):
        return not_found(
            Reason.AGENT_NOT_FOUND,
            event.agent.name,
            field="agent_id",
            place=" among the participants of this conversation",
            next_step="Add it with AddParticipant.",
        ).fault
    participant = _new_participant(conversation, event, 0)
    if participant is not None and len(conversation.participants) >= MAX_PARTICIPANTS:
        return Fault(
            reason=Reason.LIMIT_EXCEEDED,
            message=f"The conversation already has {MAX_PARTICIPANTS} participants; remove one.",
        )
    return None


def _join(conversation: Conversation, event: Send, now: int) -> Decisions:
    participant = _new_participant(conversation, event, now)
    if participant is None:
        return ()
    joined = replace(conversation, participants=(*conversation.participants, participant))
    return (AddParticipant(conversation=joined, participant=participant),)


def _new_participant(conversation: Conversation, event: Send, now: int) -> Participant | None:
    """Return the participant that the message adds: a looped-in agent, or a user with a first message."""
    caller, agent = event.caller, event.agent
    if event.loop_in:
        if _participates(conversation, "agent", agent.agent_id):
            return None
        return Participant(
            type="agent",
            id=agent.agent_id,
            name=agent.name,
            joined_ms=now,
            origin="looped_in",
            added_by=caller,
        )
    if caller.type != "user" or not caller.user_id or _participates(conversation, "user", caller.user_id):
        return None
    return Participant(type="user", id=caller.user_id, joined_ms=now, origin="added")


def _participates(conversation: Conversation, kind: str, participant_id: str) -> bool:
    return (kind, participant_id) in [(each.type, each.id) for each in conversation.participants]
