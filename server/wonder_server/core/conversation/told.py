"""What an assembly is told of an earlier turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wonder_server.core.conversation.values import Message, Turn, TurnStatus
from wonder_server.core.requests.parts import is_blank
from wonder_server.core.tokens import byte_size


@dataclass(frozen=True, slots=True)
class Told:
    """``turn`` is the entry of ``recent_turns``, ``history`` are those of ``history``; ``size`` is how many
    bytes are said there.

    ``left_out`` is the ordinal of the last message that is left out of the turn, 0 if none is, and ``first``
    that of the first that is told; ``status`` and ``last`` are the turn's status and its last message.

    The next assembly is told the very same objects as long as they say the same (`still`), so that nobody
    who meets them again has to look at them anew.
    """

    turn: dict[str, Any]
    history: list[dict[str, Any]]
    size: int
    left_out: int
    first: int
    status: TurnStatus
    last: Message

    def still(self, turn: Turn, said: Sequence[Message], first: int) -> bool:
        """Whether this is what `tell` would say: messages are never changed, only added."""
        return self.left_out < first <= self.first and self.last is said[-1] and self.status is turn.status


def tell(turn: Turn, said: Sequence[Message], first: int) -> Told | None:
    """What is told of a turn and what was ``said`` in it from the message with the ordinal ``first`` on; None
    if that is nothing."""
    seen = [message for message in said if message.ordinal >= first]
    if not seen:
        return None
    messages = [
        {"role": message.role.value, "content": message.content, "author": message.author}
        for message in seen
        # No provider takes a message of white space back, which models say at times.
        if not is_blank(message.content)
    ]
    return Told(
        turn={"turn_id": turn.id, "status": turn.status.value, "messages": messages},
        history=[{**message, "turn_id": turn.id} for message in messages],
        size=sum([byte_size(message.content) for message in seen]),
        left_out=max([message.ordinal for message in said if message.ordinal < first], default=0),
        first=min([message.ordinal for message in seen]),
        status=turn.status,
        last=said[-1],
    )
