"""Replay: feed recorded inputs to today's planner and compare the decisions (feature G8).

Messages of faults are not compared, since a newer version may word them differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wonder_server.core.actor.comparison import same_decisions
from wonder_server.core.actor.planner import Planner
from wonder_server.ports.journal import Entry


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """The first entry whose decisions differ. Decisions are shown as text."""

    step: int
    input: str
    recorded: tuple[str, ...]
    planned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Number of replayed inputs, and the first difference, if there is one."""

    steps: int
    difference: ReplayDifference | None = None


class Replay:
    """A replay in progress. Call `feed` with the journal's pages, from the actor's first entry on."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._state: object = planner.new_state()
        self.result = ReplayResult(0)

    def feed(self, entries: Iterable[Entry]) -> bool:
        """Replay a page. Return False after the first difference."""
        planner, state, steps = self._planner, self._state, self.result.steps
        for entry in entries:
            steps += 1
            planned = planner.plan(state, entry.input, entry.at_ms)
            if not same_decisions(entry.decisions, planned):
                self.result = ReplayResult(
                    steps,
                    ReplayDifference(
                        entry.sequence,
                        type(entry.input).__name__,
                        tuple(repr(decision) for decision in entry.decisions),
                        tuple(repr(decision) for decision in planned),
                    ),
                )
                return False
            for decision in entry.decisions:
                planner.apply(state, decision)
        self.result = ReplayResult(steps)
        return True


def replay(planner: Planner, entries: Iterable[Entry]) -> ReplayResult:
    """Replay a whole journal, from the actor's first entry."""
    whole = Replay(planner)
    whole.feed(entries)
    return whole.result
