"""Whole texts of messages that were cut, from the journal of their conversation."""

from __future__ import annotations

from wonder_server.core.conversation.model.decisions import AppendMessage
from wonder_server.core.conversation.model.inputs import ModelAnswered
from wonder_server.core.conversation.model.values import Message
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.ports.journal import Journal

ENTRIES_PAGE = 10
"""Entries that are read at once; each may hold a request of some MiB."""


async def whole_text(journal: Journal, message: Message) -> str:
    """Return the text of ``message`` as its author wrote it.

    The answer that it was cut from is an input of the conversation. It was written in the commit that has the
    message, lies in the archive with it and goes with it; so nothing has to be kept in step.
    """
    after = 0
    while message.whole_bytes:
        entries = await journal.entries(message.conversation_id, CONVERSATION, after, ENTRIES_PAGE)
        for entry in entries:
            answered = entry.input
            if not isinstance(answered, ModelAnswered) or answered.full_result is None:
                continue
            for decision in entry.decisions:
                if isinstance(decision, AppendMessage) and decision.message.id == message.id:
                    return answered.full_result.text
        if not entries:
            break
        after = entries[-1].sequence
    return message.content
