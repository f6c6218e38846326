"""Model calls in flight, by the turns whose budgets limit them (feature C6).

A call belongs to its turn, and through the tool calls that wait for it to the turns above. Its usage
reaches a turn above only when the work in between ends. So each turn with a budget, or below one, has an
`_Entry` here with its calls in flight and the turns that its open operations called. What a turn has used,
with all that it has caused and not yet absorbed, is the sum over this tree.

The entries are memory of one process. After a restart the work in flight is dispatched again and finds its
place here again, with the usage that its turns recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from wonder_server.core.actor.queries import Spending
from wonder_server.core.budget import BudgetLevel
from wonder_server.core.conversation.planning.budget_rules import NOTHING, Estimate, used

Pending = dict[object, Estimate]
"""Usage that is not in a turn's own record yet, by what will use it: a call in flight, or a called turn."""

_Counts: TypeAlias = Callable[[str, str], bool]

_SWEEP_AT = 1_000
"""Number of entries from which on those without calls are looked at again."""


@dataclass(slots=True)
class _Entry:
    """A turn. ``used`` is its recorded usage. ``calls`` are its calls in flight with their operations and
    estimates, ``called`` the turns that its operations called, with the operations. ``caller`` is the turn
    that waits for it."""

    level: BudgetLevel
    used: Estimate = NOTHING
    calls: dict[object, tuple[str, Estimate]] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    caller: str = ""


class Reservations:
    """The tree of calls in flight."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._places: dict[str, dict[str, _Entry]] = {}
        """The entries of each conversation and of each agent, by turn."""
        self._sweep_at = _SWEEP_AT

    def __len__(self) -> int:
        """Number of turns with an entry."""
        return len(self._entries)

    def add(self, levels: Sequence[BudgetLevel], key: object, expected: Estimate) -> None:
        """Add a call in flight, of the last of ``levels``. ``key`` is the call."""
        above: BudgetLevel | None = None
        for level in levels:
            entry = self._entry(level)
            if above is not None:
                self._entries[above.turn_id].called[level.turn_id] = above.operation_id
                entry.caller = above.turn_id
            above = level
        own = levels[-1]
        self._entries[own.turn_id].calls[key] = (own.operation_id, expected)

    def remove(self, turn_id: str, key: object) -> None:
        """Remove a call whose usage is recorded."""
        entry = self._entries.get(turn_id)
        if entry is not None:
            entry.calls.pop(key, None)
            self._drop_unused(turn_id)

    def record(self, level: BudgetLevel, spending: Spending | None) -> None:
        """Take over what a turn has recorded. None: it is not in memory, so nothing of it is in progress."""
        entry = self._entries.get(level.turn_id)
        if entry is None:
            return
        if spending is not None and spending.turn is not None:
            entry.used = used(spending.turn)
        waiting = frozenset(() if spending is None else spending.operation_ids)
        for turn_id in [each for each, operation_id in entry.called.items() if operation_id not in waiting]:
            del entry.called[turn_id]
            self._drop_tree(turn_id)
        self._drop_unused(level.turn_id)

    def of_turn(self, turn_id: str, waiting: Collection[str]) -> Estimate:
        """Return what the operations ``waiting`` of a turn will add to its usage."""
        entry = self._entries.get(turn_id)
        if entry is None:
            return NOTHING
        return sum(self._pending(entry, _those(waiting)).values(), NOTHING)

    def of_conversation(self, conversation_id: str, waiting: Collection[str]) -> Estimate:
        """Return what the operations ``waiting`` will add to the usage of a conversation.

        The usage of turns of the conversation itself is in its record.
        """
        total = NOTHING
        for entry in self._places.get(conversation_id, {}).values():
            within = self._pending(
                entry,
                lambda called, operation_id: (
                    operation_id in waiting and self._conversation_of(called) != conversation_id
                ),
            )
            total = sum(within.values(), total)
        return total

    def of_agent(self, agent_id: str, except_turn_id: str, waiting: Collection[str]) -> Pending:
        """Return what the turns of an agent will add to its account, by what will use it.

        Of the turn ``except_turn_id`` only operations ``waiting`` count: its other calls are on disk.
        """
        found: Pending = {}
        for turn_id, entry in self._places.get(agent_id, {}).items():
            counts = _all if turn_id != except_turn_id else _those(waiting)
            found |= self._pending(entry, counts)
        return found

    def levels_of_agent(self, agent_id: str) -> list[BudgetLevel]:
        """Return the turns of an agent that have called others."""
        return [entry.level for entry in self._places.get(agent_id, {}).values() if entry.called]

    def due(self) -> list[BudgetLevel]:
        """Return the turns whose records are to be read again, so that those that have ended leave."""
        if len(self._entries) < self._sweep_at:
            return []
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._entries))
        return [entry.level for entry in self._entries.values() if entry.called and not entry.calls]

    # --- pieces -----------------------------------------------------------------------------------------

    def _entry(self, level: BudgetLevel) -> _Entry:
        """Return the entry of a turn, a new one if it has none."""
        entry = self._entries.get(level.turn_id)
        if entry is None:
            entry = self._entries[level.turn_id] = _Entry(level)
            for place in (level.conversation_id, level.agent_id):
                self._places.setdefault(place, {})[level.turn_id] = entry
        return entry

    def _pending(self, entry: _Entry, counts: _Counts) -> Pending:
        """Return the calls in flight and the called turns of an entry for which ``counts`` is true: of the
        id of a called turn, "" for a call of its own, and of its operation."""
        found = {
            key: expected for key, (operation_id, expected) in entry.calls.items() if counts("", operation_id)
        }
        for turn_id, operation_id in entry.called.items():
            if counts(turn_id, operation_id):
                found[turn_id] = self._total(turn_id)
        return found

    def _total(self, turn_id: str) -> Estimate:
        """Return what a called turn has used, and what is in flight below it."""
        entry = self._entries.get(turn_id)
        if entry is None:
            return NOTHING
        return sum(self._pending(entry, _all).values(), entry.used)

    def _conversation_of(self, turn_id: str) -> str:
        entry = self._entries.get(turn_id)
        return "" if entry is None else entry.level.conversation_id

    def _drop_unused(self, turn_id: str) -> None:
        """Remove a turn without calls that no turn waits for."""
        entry = self._entries.get(turn_id)
        if entry is None or entry.calls or entry.called or entry.caller:
            return
        del self._entries[turn_id]
        for place in {entry.level.conversation_id, entry.level.agent_id}:
            del self._places[place][turn_id]
            if not self._places[place]:
                del self._places[place]

    def _drop_tree(self, turn_id: str) -> None:
        """Remove a called turn that its caller no longer waits for, and the turns below it."""
        entry = self._entries.get(turn_id)
        if entry is None:
            return
        below, entry.called, entry.caller = list(entry.called), {}, ""
        for each in below:
            self._drop_tree(each)
        self._drop_unused(turn_id)


def _all(_called: str, _operation_id: str) -> bool:
    return True


def _those(waiting: Collection[str]) -> _Counts:
    """Return the test for calls and called turns of these operations."""
    return lambda _, operation_id: operation_id in waiting
