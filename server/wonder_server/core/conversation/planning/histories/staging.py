"""A new conversation with a history: hidden while the history is added, then published."""

from __future__ import annotations

import dataclasses

from wonder_server.core.conversation.model.decisions import Refuse
from wonder_server.core.conversation.model.histories.staging import (
    AddHistory,
    Discard,
    KeepHistory,
    PublishConversation,
)
from wonder_server.core.conversation.model.inputs import Publish, Staging
from wonder_server.core.conversation.model.lifecycle_decisions import EraseRecord
from wonder_server.core.conversation.model.lifecycle_inputs import LifecycleInput
from wonder_server.core.conversation.model.operations import Decisions
from wonder_server.core.conversation.model.state import ConversationState
from wonder_server.core.conversation.model.status import is_staged
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.conversation.planning.lifecycle import plan_lifecycle
from wonder_server.core.conversation.planning.start_turn import refuse, start_turn
from wonder_server.core.errors import Reason
from wonder_server.core.frozen import replace


def plan_whole(state: ConversationState, event: LifecycleInput | Staging, now: int) -> Decisions:
    """Return the decisions for an input about the conversation as a whole."""
    match event:
        case AddHistory() | Publish() | Discard():
            return _plan_staging(state, event, now)
        case _:
            return plan_lifecycle(state, event, now)


def _plan_staging(state: ConversationState, event: Staging, now: int) -> Decisions:
    """Return the decisions for an input about a conversation whose history is incomplete."""
    conversation = state.conversation
    if conversation is None or conversation.deleted_ms or not is_staged(conversation):
        if isinstance(event, Discard):
            return ()
        message = "The conversation is not being created. Repeat the request that creates it."
        return refuse(Reason.CONVERSATION_NOT_FOUND, message)
    match event:
        case AddHistory():
            return _add(conversation, event)
        case Publish():
            return _publish(state, conversation, event, now)
        case Discard():
            return (EraseRecord(),)


def _add(conversation: Conversation, event: AddHistory) -> Decisions:
    turns = max([each.turn.ordinal for each in event.turns], default=0)
    messages = max([each.ordinal for turn in event.turns for each in turn.messages], default=0)
    longer = replace(
        conversation,
        turn_count=max(conversation.turn_count, turns),
        message_count=max(conversation.message_count, messages),
    )
    return (KeepHistory(conversation=longer, turns=event.turns),)


def _publish(state: ConversationState, staged: Conversation, event: Publish, now: int) -> Decisions:
    published = replace(event.conversation, turn_count=staged.turn_count, message_count=staged.message_count)
    decided: Decisions = (PublishConversation(conversation=published),)
    if event.send is None:
        return decided
    started = start_turn(dataclasses.replace(state, conversation=published), event.send, now)
    return started if any(isinstance(each, Refuse) for each in started) else (*decided, *started)
