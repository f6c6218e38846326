"""Full texts of truncated messages, from the journal of their conversation."""

from __future__ import annotations

from wonder_server.core.conversation.model.decisions import AppendMessage
from wonder_server.core.conversation.model.inputs import ModelAnswered
from wonder_server.core.conversation.model.values import Message
from wonder_server.ports.scoped import JournalView

ENTRIES_PAGE = 10
"""Journal entries per read. Each may hold a request of several MiB."""


async def whole_text(journal: JournalView, message: Message) -> str:
    """Return the full text of ``message``.

    The untruncated answer is an input of the conversation. It is written in the message's commit and is
    archived and deleted with the conversation, so no second copy exists.
    """
    after = 0
    while message.whole_bytes:
        entries = await journal.entries(message.conversation_id, after, ENTRIES_PAGE)
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
