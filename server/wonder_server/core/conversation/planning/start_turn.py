"""Start of a turn: a message for an agent, from a person or from a caller of the agent."""

from __future__ import annotations

from wonder_server.core.conversation.context.history import select_history
from wonder_server.core.conversation.model.decisions import (
    AppendMessage,
    DispatchWorkflow,
    MarkWaiting,
    PostMessage,
    Refuse,
    RefuseCall,
    StartTurn,
)
from wonder_server.core.conversation.model.exchange import Quote
from wonder_server.core.conversation.model.inputs import Post, Send
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
    TurnStatus,
    TurnWork,
)
from wonder_server.core.conversation.planning.agent_calls import check_repeated_call
from wonder_server.core.conversation.planning.lifecycle import MAX_PARTICIPANTS, reactivate, unavailable
from wonder_server.core.conversation.planning.limits import unaffordable
from wonder_server.core.conversation.planning.summarization import (
    RULES_OF_RESTING_SUMMARIES,
    assembly_hook,
    earlier_first_hook,
    first_hook,
    was_tried,
)
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
    refusal = refusal_of(state, event)
    if refusal is not None:
        return (
            Refuse(fault=refusal) if event.parent is None else RefuseCall(parent=event.parent, fault=refusal),
        )
    assert conversation is not None, "a message to a missing conversation is rejected"
    reactivated, conversation = reactivate(conversation, now)
    ids = Minter(event.seed, now)
    turn = new_turn(conversation, event, ids, now)
    message = first_message(conversation, event, turn.id, ids.new("msg"), now)
    if event.rules:
        omitted = select_history(state, turn, event.agent)
        turn = replace(turn, history_start=omitted.first_turn if omitted is not None else 0)
        if event.rules >= RULES_OF_RESTING_SUMMARIES and was_tried(state, turn):
            first = assembly_hook(turn, omitted, ids, now)
        else:
            first = first_hook(state, turn, event.agent, omitted, ids, now)
    else:
        first = earlier_first_hook(state, turn, event.agent, ids, now)
    return (
        *reactivated,
        *join(conversation, event, now),
        StartTurn(turn=turn, work=work_of(turn, event)),
        AppendMessage(message=message),
        DispatchWorkflow(operation=first),
        MarkWaiting(turn_id=turn.id, operation_id=first.id),
    )


def post(state: ConversationState, event: Post, now: int) -> Decisions:
    """Append a message without a turn of an agent, or reject it. Its record is a turn without an agent."""
    conversation = state.conversation
    closed = _closed(conversation)
    if conversation is None or closed is not None:
        return () if closed is None else (Refuse(fault=closed),)
    crowded = _crowded(conversation, event)
    if crowded is not None:
        return (Refuse(fault=crowded),)
    reactivated, conversation = reactivate(conversation, now)
    ids = Minter(event.seed, now)
    turn = Turn(
        id=ids.new("turn"),
        conversation_id=conversation.id,
        ordinal=conversation.turn_count + 1,
        caller=event.caller,
        agent_id="",
        agent_name="",
        persona="",
        input=event.content,
        reply_to_message_id=event.reply_to_message_id,
        status=TurnStatus.COMPLETED,
        metadata=event.metadata,
        created_ms=now,
        completed_ms=now,
        principal=event.principal,
        quote=visible_quote(conversation, event.quote),
    )
    message = first_message(conversation, event, turn.id, ids.new("msg"), now)
    return (*reactivated, *join(conversation, event, now), PostMessage(turn=turn, message=message))


def refuse(reason: Reason, message: str) -> Decisions:
    """Return the decision that rejects an input."""
    return (Refuse(fault=Fault(reason=reason, message=message)),)


def first_message(
    conversation: Conversation, event: Send | Post, turn_id: str, message_id: str, now: int
) -> Message:
    """Return the message of the input, as the newest of the conversation."""
    return Message(
        id=message_id,
        conversation_id=conversation.id,
        turn_id=turn_id,
        ordinal=conversation.message_count + 1,
        role=Role.USER,
        author=event.caller.user_id or event.caller.agent_id or event.caller.run_id,
        content=event.content,
        reply_to_message_id=event.reply_to_message_id,
        created_ms=now,
        parts=event.parts,
    )


def new_turn(conversation: Conversation, event: Send, ids: Minter, now: int) -> Turn:
    """Return the turn that the message starts."""
    agent = event.agent
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
        quote=visible_quote(conversation, event.quote),
        overrides=event.overrides,
        itemized=event.rules >= RULES_OF_ITEMIZED_USAGE,
        root_id=event.root_id,
    )


def work_of(turn: Turn, event: Send) -> TurnWork:
    """Return the data of the message's turn beyond its row."""
    return TurnWork(turn_id=turn.id, agent=event.agent, rules=event.rules, levels=event.levels)


def visible_quote(conversation: Conversation, quote: Quote | None) -> Quote | None:
    """Return the quote of a reply, unless a reset came after the sender read the message."""
    return quote if quote is not None and quote.turn_ordinal > conversation.reset_ordinal else None


def refusal_of(state: ConversationState, event: Send) -> Fault | None:
    """Return the reason why no turn can start now; None if one can."""
    conversation = state.conversation
    closed = _closed(conversation)
    if conversation is None or closed is not None:
        return closed
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
    return _crowded(conversation, event)


def _closed(conversation: Conversation | None) -> Fault | None:
    """Return the reason why the conversation takes no message; None if it does."""
    missing = unavailable(conversation)
    if conversation is None or missing is not None:
        return missing
    if conversation.status not in OPEN:
        return Fault(
            reason=Reason.CONVERSATION_NOT_ACTIVE,
            message=f"The conversation is {conversation.status.value}; reopen it before you send to it.",
        )
    return None


def _crowded(conversation: Conversation, event: Send | Post) -> Fault | None:
    participant = _new_participant(conversation, event, 0)
    if participant is not None and len(conversation.participants) >= MAX_PARTICIPANTS:
        return Fault(
            reason=Reason.LIMIT_EXCEEDED,
            message=f"The conversation already has {MAX_PARTICIPANTS} participants; remove one.",
        )
    return None


def join(conversation: Conversation, event: Send | Post, now: int) -> Decisions:
    """Return the decision that adds the participant of the message; nothing if it takes part already."""
    participant = _new_participant(conversation, event, now)
    if participant is None:
        return ()
    joined = replace(conversation, participants=(*conversation.participants, participant))
    return (AddParticipant(conversation=joined, participant=participant),)


def _new_participant(conversation: Conversation, event: Send | Post, now: int) -> Participant | None:
    """Return the participant that the message adds: a looped-in agent, or a user with a first message."""
    caller = event.caller
    if isinstance(event, Send) and event.loop_in:
        agent = event.agent
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
