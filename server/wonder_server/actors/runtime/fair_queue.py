"""Fair queues: turns do not wait behind bulk work, nor one caller's work behind another's.

A lane consists of a class and an owner. The class is bulk for runs that no turn waits for. The owner is the
name of the caller's token, "" without tokens. Turns and bulk are served alternately, and within each the
owners in turn, so ten thousand runs of one caller delay a turn by one piece of work.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Generic, NamedTuple, TypeVar

from wonder_server.core.round_robin import RoundRobin

T = TypeVar("T")

current_caller: ContextVar[str] = ContextVar("current_caller", default="")
"""The caller on whose behalf an actor is asked; set where calls come in."""


class Lane(NamedTuple):
    """The queue that a piece of work waits in."""

    is_bulk: bool
    caller: str = ""


class FairQueue(Generic[T]):
    """Items in lanes. `popleft` alternates between turns and bulk, and between the owners of each."""

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
