"""Limits and pauses of the loop."""

from __future__ import annotations

from dataclasses import dataclass

RELOAD_AFTER_S = 1.0
"""Pause before the loop reloads an actor after a failure. An input that arrives sooner reloads it at once."""

TIME_SLICE_S = 0.005
"""Time that actors work before the event loop serves its other callbacks."""

FLUSH_AFTER_S = 0.2
"""Age at which an unfinished volatile run is written. Most volatile runs end within a few milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """Limits and pauses of one loop. Durations are in seconds of the event loop's clock."""

    idle_actors: int = 1000
    """Idle actors that stay in memory."""
    idle_bytes: int = 1 << 30
    """Total size of the idle actors in memory, in bytes of text (approximate)."""
    time_slice_s: float = TIME_SLICE_S
    flush_after_s: float = FLUSH_AFTER_S
    reload_after_s: float = RELOAD_AFTER_S
