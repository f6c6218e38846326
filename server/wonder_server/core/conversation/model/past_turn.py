"""Earlier turns with their sizes, from which a turn selects its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wonder_server.core.conversation.model.exchange import Exchange
from wonder_server.core.conversation.model.values import Message, Turn


@dataclass(frozen=True, slots=True)
class PastTurn:
    """An earlier turn that an agent sees, with its messages that no summary covers."""

    turn: Turn
    messages: Sequence[Message]
    exchanges: tuple[Exchange, ...]
    tokens: int
    size_bytes: int

    def is_current(self, turn: Turn, messages: Sequence[Message], exchanges: tuple[Exchange, ...]) -> bool:
        """Return True if the turn still has these messages and exchanges; messages never change."""
        return (
            self.turn is turn
            and self.exchanges is exchanges
            and len(self.messages) == len(messages)
            and self.messages[-1] is messages[-1]
        )
