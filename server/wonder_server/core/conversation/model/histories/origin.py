"""The origin of a conversation with a history from its start."""

from __future__ import annotations

from wonder_server.core.frozen import Value


class ConversationOrigin(Value, frozen=True, kw_only=True):
    """The beginning of a conversation: a fork of ``conversation_id``, with its messages up to ``message_id``.

    Both are "" for an imported history, and ``message_id`` for a fork without messages. ``staged_ms`` is the
    time at which its history began to be written; 0 once it is complete. Until then reads do not find the
    conversation, and a restart removes it.
    """

    conversation_id: str = ""
    message_id: str = ""
    staged_ms: int = 0
