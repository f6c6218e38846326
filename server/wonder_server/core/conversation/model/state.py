"""The state of one conversation: the values that its planner reads.

The state holds unfinished turns, their pending operations and the last `RECENT_TURNS` turns. Everything else
is in the store. Only `wonder_server.core.conversation.output.state_changes` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wonder_server.core.conversation.model.history_entry import HistoryEntry
from wonder_server.core.conversation.model.usage import AccountCharge
from wonder_server.core.conversation.model.values import (
    Conversation,
    Message,
    Move,
    Operation,
    Request,
    Turn,
    TurnStatus,
    TurnWork,
)

RECENT_TURNS = 50
"""Number of recent turns in the state. A persona's ``recent_turns_limit`` may not exceed it."""


@dataclass(slots=True)
class ConversationState:
    """State of one conversation. ``conversation`` is None until it is created."""

    conversation: Conversation | None = None
    turns: dict[str, Turn] = field(default_factory=dict)
    messages: dict[str, list[Message]] = field(default_factory=dict)
    """Messages of the turns in the state, by turn id."""
    moves: dict[str, list[Move]] = field(default_factory=dict)
    """Moves of turns with unfinished work, by turn id."""
    turn_work: dict[str, TurnWork] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    message_count: int = field(default=0, repr=False)
    """Number of messages in the state."""
    character_count: int = field(default=0, repr=False)
    """Number of characters of these messages."""
    history_cache: dict[str, HistoryEntry] = field(default_factory=dict, compare=False, repr=False)
    """Entries of earlier turns that the last assembly received, by turn id."""
    status_changed: bool = field(default=False, compare=False, repr=False)
    """True if the last decision changed the conversation's status."""
    turn_unchanged: bool = field(default=False, compare=False, repr=False)
    """True if the last decision left its turn equal, so its row need not be written again."""
    charge: AccountCharge | None = field(default=None, compare=False, repr=False)
    """Charge of the last decision to an agent's account."""

    def pending(self, turn_id: str) -> list[Operation]:
        """Return the turn's operations whose results are pending, oldest first."""
        # Sort by id, which begins with the time: a state that was loaded gives the same order.
        return [op for _, op in sorted(self.operations.items()) if op.turn_id == turn_id]

    def active_turns(self) -> list[Turn]:
        """Return the active turns by ordinal. Each of them has work."""
        unfinished = [self.turns[turn_id] for turn_id in self.turn_work]
        active = [turn for turn in unfinished if turn.status is TurnStatus.ACTIVE]
        return sorted(active, key=lambda turn: turn.ordinal) if len(active) > 1 else active

    def add_message(self, message: Message) -> None:
        """Add a message of a turn in the state."""
        self.messages.setdefault(message.turn_id, []).append(message)
        self.message_count += 1
        self.character_count += len(message.content)
