"""The state of one conversation: the values that its planner reads.

The state holds unfinished turns, their pending operations and the last `RECENT_TURNS` turns. Everything else
is in the store. Only `wonder_server.core.conversation.output.state_changes` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wonder_server.core.actor.gates import Gate
from wonder_server.core.content.parts import character_count
from wonder_server.core.conversation.model.exchange import Exchange, exchanges_bytes
from wonder_server.core.conversation.model.history_entry import HistoryEntry
from wonder_server.core.conversation.model.past_turn import PastTurn
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

RECENT_TURNS = 201
"""Number of recent turns in the state: the longest ``recent_turns_limit`` of a persona, and the new turn."""

EXCHANGES_BYTES = 4 << 20
"""Maximum size of the tool calls and results of ended turns in the state."""


@dataclass(slots=True)
class ConversationState:
    """State of one conversation. ``conversation`` is None until it is created."""

    conversation: Conversation | None = None
    turns: dict[str, Turn] = field(default_factory=dict)
    messages: dict[str, list[Message]] = field(default_factory=dict)
    """Messages of the turns in the state, by turn id."""
    moves: dict[str, list[Move]] = field(default_factory=dict)
    """Moves of turns with unfinished work, by turn id."""
    exchanges: dict[str, tuple[Exchange, ...]] = field(default_factory=dict)
    """Moves of turns with tool calls whose work has ended, by turn id: the newest up to `EXCHANGES_BYTES`."""
    turn_work: dict[str, TurnWork] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    gates: dict[str, Gate] = field(default_factory=dict)
    """Gates of tool calls that wait for a person, by id."""
    message_count: int = field(default=0, repr=False)
    """Number of messages in the state."""
    character_count: int = field(default=0, repr=False)
    """Number of characters of these messages."""
    past_cache: dict[str, PastTurn] = field(default_factory=dict, compare=False, repr=False)
    """Earlier turns with their sizes that the last selection of a history saw, by turn id."""
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

    def waiting_since(self, turn_id: str) -> int:
        """Return the time at which the oldest open gate of the turn opened; 0 without one."""
        if not self.gates:
            return 0
        return min((gate.created_ms for gate in self.gates.values() if gate.turn_id == turn_id), default=0)

    def active_turns(self) -> list[Turn]:
        """Return the active turns by ordinal. Each of them has work."""
        unfinished = [self.turns[turn_id] for turn_id in self.turn_work]
        active = [turn for turn in unfinished if turn.status is TurnStatus.ACTIVE]
        return sorted(active, key=lambda turn: turn.ordinal) if len(active) > 1 else active

    def queued_turns(self) -> list[Turn]:
        """Return the queued turns by ordinal."""
        unfinished = [self.turns[turn_id] for turn_id in self.turn_work]
        queued = [turn for turn in unfinished if turn.status is TurnStatus.QUEUED]
        return sorted(queued, key=lambda turn: turn.ordinal)

    def add_message(self, message: Message) -> None:
        """Add a message of a turn in the state."""
        self.messages.setdefault(message.turn_id, []).append(message)
        self.message_count += 1
        self.character_count += character_count(message.content, message.parts)

    def drop_old_exchanges(self) -> None:
        """Remove the oldest exchanges beyond `EXCHANGES_BYTES`."""
        left = EXCHANGES_BYTES
        for turn_id in reversed(self.turns) if self.exchanges else ():
            exchanges = self.exchanges.get(turn_id, ())
            left -= exchanges_bytes(exchanges)
            if left < 0 and exchanges:
                del self.exchanges[turn_id]
