"""What an assembly is told of an earlier turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wonder_server.core.conversation.values import Message, Turn, TurnStatus
from wonder_server.core.tokens import byte_size


@dataclass(frozen=True, slots=True)
class Told:
    """``turn`` is the entry of ``recent_turns``, ``history`` are those of ``history``; ``size`` is how many
    bytes are said there, by messages from the ordinal ``first`` on (that of the turn's first, if none is left
    out).

    The next assembly is told the very same objects as long as they say the same (`still`), so that nobody
    who meets them again has to look at them anew.
    """

    turn: dict[str, Any]
    history: list[dict[str, Any]]
    size: int
    first: int
    status: TurnStatus
    last: Message

    def still(self, turn: Turn, said: Sequence[Message], first: int) -> bool:
        """Whether this is what is told of the turn: messages are never changed, only added."""
        return (
            self.last is said[-1] and self.status is turn.status and self.first == max(first, said[0].ordinal)
        )


def tell(turn: Turn, said: Sequence[Message], first: int) -> Told | None:
    """What is told of a turn and what was ``said`` in it from the message with the ordinal ``first`` on; None
    if that is nothing."""
    seen = [message for message in said if message.ordinal >= first]
    if not seen:
        return None
    messages = [
        {"role": message.role.value, "content": message.content, "author": message.author} for message in seen
    ]
    return Told(
        turn={"turn_id": turn.id, "status": turn.status.value, "messages": messages},
        history=[{**message, "turn_id": turn.id} for message in messages],
        size=sum([byte_size(message.content) for message in seen]),
        first=max(first, said[0].ordinal),
        status=turn.status,
        last=said[-1],
    )
