"""Derivation of an actor's rows and events from its journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from wonder_server.core.actor.changes import Change
from wonder_server.core.actor.planner import Planner


class Recorded(Protocol):
    """An entry of a journal: its time and its decisions."""

    @property
    def at_ms(self) -> int: ...

    @property
    def decisions(self) -> Sequence[Any]: ...


def derived(
    planner: Planner, entries: Iterable[Recorded], after: int = 0
) -> Iterator[tuple[Iterable[Change], int]]:
    """Yield the changes and the time of each decision, except those of the first ``after`` entries.

    ``entries`` are the actor's whole journal, since ``record`` reads the state that the decisions lead to.
    """
    apply, record, state = planner.apply, planner.record, planner.new_state()
    for index, entry in enumerate(entries):
        for decision in entry.decisions:
            apply(state, decision)
            if index >= after:
                yield record(state, decision), entry.at_ms
