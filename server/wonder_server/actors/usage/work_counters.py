"""Counts of finished work since the start of the server, for metrics.

Turns and runs are counted from their committed events, so each is counted once. A server without metrics has
no counters, and counts nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from wonder_server.core.conversation.model.event_payloads import TURN_ENDED
from wonder_server.core.conversation.model.usage import began_ms
from wonder_server.core.conversation.model.values import Turn
from wonder_server.core.coordinator.output.record import RUN_ENDED
from wonder_server.ports.journal import Event
from wonder_server.ports.metrics import Histogram

TURN_BOUNDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
"""Upper bounds of the durations of turns, in seconds."""
FIRST_BOUNDS: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of the times to the first chunk of a model's answer, in seconds."""


class WorkCounters:
    """Ended turns, runs and model calls of this process."""

    def __init__(self, providers: Collection[str] = ()) -> None:
        """``providers`` are the names under which model calls are counted; others count as "other"."""
        self._providers = frozenset(providers)
        self.turns = Counter[str]()
        """Ended turns by outcome: completed, failed, cancelled."""
        self.turn_seconds = Histogram(TURN_BOUNDS)
        """Durations of ended turns, from their start to their end, without the time in a queue."""
        self.runs = Counter[str]()
        """Ended runs by outcome, without compact ones that are written with the commit of their parent."""
        self.tokens = Counter[str]()
        """Tokens of ended turns by kind. Cached tokens are input tokens too, and reasoning is output."""
        self.cost_micros = 0
        """Known cost of ended turns, in millionths of a US dollar."""
        self.unpriced_calls = 0
        """Model calls of ended turns whose price is unknown."""
        self.model_calls = Counter[tuple[str, str]]()
        """Ended model calls of agents by provider and outcome: completed, failed, cancelled."""
        self.first_chunk_seconds: dict[str, Histogram] = {}
        """Times from a model call to the first chunk of its answer, by provider."""

    def before(self, publish: Callable[[str, list[Event]], None]) -> Callable[[str, list[Event]], None]:
        """Return a function that counts committed events and calls ``publish`` with them."""

        def count_and_publish(actor_id: str, events: list[Event]) -> None:
            for event in events:
                kind = event.emit.kind
                if kind in TURN_ENDED:
                    self._turn_ended(kind, event.emit.value)
                elif kind in RUN_ENDED and actor_id.startswith("run_"):
                    self.runs[kind.removeprefix("workflow_")] += 1
            publish(actor_id, events)

        return count_and_publish

    def call_ended(self, provider: str, outcome: str, first_chunk_s: float | None) -> None:
        """Count a model call. ``first_chunk_s`` is the time to its first chunk; None without one."""
        provider = provider if provider in self._providers else "other"
        self.model_calls[provider, outcome] += 1
        if first_chunk_s is not None:
            seconds = self.first_chunk_seconds.setdefault(provider, Histogram(FIRST_BOUNDS))
            seconds.observe(first_chunk_s)

    def _turn_ended(self, kind: str, turn: Turn) -> None:
        self.turns[kind.removeprefix("turn_")] += 1
        self.turn_seconds.observe(max(0, turn.completed_ms - began_ms(turn)) / 1000)
        tokens = self.tokens
        tokens["input"] += turn.input_tokens
        tokens["input_cached"] += turn.cached_input_tokens
        tokens["input_cache_write"] += turn.cache_write_input_tokens
        tokens["output"] += turn.output_tokens
        tokens["output_reasoning"] += turn.reasoning_tokens
        self.cost_micros += turn.cost_micros
        self.unpriced_calls += turn.unpriced_calls
