"""Fair queues: bulk work does not delay turns, and one caller's work does not delay another's.

A lane consists of a class and a caller. The class is bulk for runs that no turn waits for. The caller is
`Principal.caller`, "" without tokens. The queue serves turns and bulk alternately, and within each
class the callers in turn. Ten thousand runs of one caller therefore delay a turn by one piece of work.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from wonder_server.core.round_robin import RoundRobin

T = TypeVar("T")


class Lane(NamedTuple):
    """The queue of a piece of work."""

    is_bulk: bool
    caller: str = ""


class FairQueue(Generic[T]):
    """Items in lanes. `popleft` alternates between turns and bulk, and between the callers of each."""

    def __init__(self) -> None:
        self._queues = (RoundRobin[T](), RoundRobin[T]())
        self._bulk_next = False

    def __bool__(self) -> bool:
        return any(self._queues)

    def append(self, item: T, lane: Lane) -> None:
        """Add an item at the end of its lane."""
        self._queues[lane.is_bulk].append(item, lane.caller)

    def popleft(self) -> T:
        """Remove and return the next item. IndexError if there is none."""
        queue = self._queues[self._bulk_next]
        if not queue:
            queue = self._queues[not self._bulk_next]
        self._bulk_next = queue is self._queues[False]
        return queue.popleft()
