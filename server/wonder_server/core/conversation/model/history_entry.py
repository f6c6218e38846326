"""What an assembly is told of an earlier turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wonder_server.core.conversation.model.values import Message, Turn, TurnStatus
from wonder_server.core.request_formats.parts import is_blank
from wonder_server.core.token_estimates import byte_size


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """``turn`` is the entry of ``recent_turns``, ``history`` are those of ``history``; ``size`` is how many
    bytes are said there.

    ``left_out`` is the ordinal of the last message that is left out of the turn, 0 if none is, and ``first``
    that of the first that is told; ``status`` and ``last`` are the turn's status and its last message.

    The next assembly is told the very same objects as long as they say the same (`still`), so that nobody
    who meets them again has to look at them anew.
    """

    turn: dict[str, Any]
    history: list[dict[str, Any]]
    size_bytes: int
    omitted_through: int
    first_ordinal: int
    status: TurnStatus
    last_message: Message

    def is_current(self, turn: Turn, turn_messages: Sequence[Message], first: int) -> bool:
        """Whether this is what `tell` would say: messages are never changed, only added."""
        return (
            self.omitted_through < first <= self.first_ordinal
            and self.last_message is turn_messages[-1]
            and self.status is turn.status
        )


def history_entry(turn: Turn, turn_messages: Sequence[Message], first: int) -> HistoryEntry | None:
    """What is told of a turn and what was ``said`` in it from the message with the ordinal ``first`` on; None
    if that is nothing."""
    seen = [message for message in turn_messages if message.ordinal >= first]
    if not seen:
        return None
    messages = [
        {"role": message.role.value, "content": message.content, "author": message.author}
        for message in seen
        # No provider takes a message of white space back, which models say at times.
        if not is_blank(message.content)
    ]
    return HistoryEntry(
        turn={"turn_id": turn.id, "status": turn.status.value, "messages": messages},
        history=[{**message, "turn_id": turn.id} for message in messages],
        size_bytes=sum([byte_size(message.content) for message in seen]),
        omitted_through=max(
            [message.ordinal for message in turn_messages if message.ordinal < first], default=0
        ),
        first_ordinal=min([message.ordinal for message in seen]),
        status=turn.status,
        last_message=turn_messages[-1],
    )
