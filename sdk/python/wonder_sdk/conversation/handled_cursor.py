"""The position of a program in the events that it has handled.

An event counts as handled when the program requests the next item of the same iterator, not when the event
arrived. A program that stores `HandledCursor.cursor` and crashes gets every unhandled event again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable

from wonder_sdk._proto.wonder import v1


class EventTracker:
    """The events given to one iterator and not yet handled. All calls are O(1)."""

    __slots__ = ("_current", "_pending", "has_begun", "is_dropped", "is_over", "is_part", "since")

    def __init__(self, *, is_part: bool, since: int) -> None:
        self.is_part = is_part
        """True if this iterator gets only a part of the events, as a `Reply` does."""
        self.since = since
        """Sequence of the last event before it was made."""
        self.is_over = False
        """True if the iterator has ended."""
        self.has_begun = False
        self.is_dropped = False
        """True if the program has dropped the iterator."""
        self._pending: deque[int] = deque()
        self._current = 0

    def put(self, item: object) -> None:
        """Record that ``item`` waits for the program."""
        if isinstance(item, v1.Event):
            self._pending.append(item.sequence)

    def on_next_requested(self) -> None:
        """Record that the program has handled the previous item."""
        self.has_begun = True
        self._current = 0

    def on_item_given(self, item: object) -> None:
        """Record that the program has ``item``."""
        if isinstance(item, v1.Event):
            self._current = self._pending.popleft()

    def is_covered_by(self, covered: int | None) -> bool:
        """Return True if another iterator, which gives everything after ``covered``, covers this one."""
        return self.is_part and not self.has_begun and covered is not None and self.first > covered

    @property
    def is_empty(self) -> bool:
        """True if the program has every item of the iterator."""
        return self.is_over and not self._pending

    @property
    def first(self) -> int:
        """Sequence of the first event that is not handled; 0 if there is none."""
        return self._current or (self._pending[0] if self._pending else 0)


class HandledCursor:
    """The cursor of a program over the events of one stream, which several iterators share."""

    def __init__(self, after_sequence: int) -> None:
        self._arrived = self._handled = after_sequence
        self._trackers: list[EventTracker] = []

    def new_tracker(self, owner: object, *, is_part: bool) -> EventTracker:
        """Return the tracker of an iterator ``owner``, which the program may drop at any time."""
        tracker = EventTracker(is_part=is_part, since=self._arrived)
        self._trackers.append(tracker)
        weakref.finalize(owner, setattr, tracker, "is_dropped", True).atexit = False
        return tracker

    def record_arrival(self, sequence: int) -> None:
        """Record that the trackers have all events up to ``sequence``."""
        self._arrived = sequence

    def on_program_continued(self) -> None:
        """Record that the program sends or reads again: forget the iterators that it has dropped or emptied.

        An exception that leaves a loop drops its iterator too. The event whose handling failed then stays
        unhandled until the program continues.
        """
        self.cursor()
        self._trackers = [
            tracker for tracker in self._trackers if not (tracker.is_dropped or tracker.is_empty)
        ]

    def cursor(self, waiting: Iterable[object] = ()) -> int:
        """Return the sequence up to which every event is handled. It never decreases.

        ``waiting`` are items that have arrived and have no tracker yet. If an iterator receives everything,
        parts that the program has not begun to iterate do not count.
        """
        everything = [
            tracker.since for tracker in self._trackers if not tracker.is_part and not tracker.is_dropped
        ]
        covered = min(everything, default=None)
        firsts = [each.first for each in self._trackers if not each.is_covered_by(covered)]
        firsts += [item.sequence for item in waiting if isinstance(item, v1.Event)]
        first = min((first for first in firsts if first), default=0)
        self._handled = max(self._handled, first - 1 if first else self._arrived)
        return self._handled
