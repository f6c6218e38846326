"""Monotonic time of the actor runtime.

All durations, time slices and pauses in `wonder_server.actors` read the running event loop's clock. An
event loop with virtual time therefore drives the whole runtime.
"""

from __future__ import annotations

from asyncio import get_running_loop


def monotonic_s() -> float:
    """Return the running event loop's time, in seconds."""
    return get_running_loop().time()
