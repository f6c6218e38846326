"""Replay: a recorded journal, fed to today's planner, must give the recorded decisions (feature G8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wonder_server.core.actor.planner import Planner
from wonder_server.ports.journal import Entry


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """Where the planner first decides otherwise; decisions as text for people."""

    step: int
    input: str
    recorded: tuple[str, ...]
    planned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """How many inputs were fed, and where it first went another way, if it did."""

    steps: int
    difference: ReplayDifference | None = None


class Replay:
    """A replay under way: `feed` it a journal from the actor's first entry on, page by page."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._state: Any = planner.new_state()
        self.result = ReplayResult(0)

    def feed(self, entries: Iterable[Entry]) -> bool:
        """Whether to go on: False once the planner has decided otherwise."""
        planner, state, steps = self._planner, self._state, self.result.steps
        for entry in entries:
            steps += 1
            planned = planner.plan(state, entry.input, entry.at_ms)
            if planned != entry.decisions:
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
    """Feed a whole journal, from the actor's first entry, to the planner."""
    whole = Replay(planner)
    whole.feed(entries)
    return whole.result
