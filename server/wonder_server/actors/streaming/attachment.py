"""One reader's view of an actor: its history from a cursor, the text in progress, then live items (B3).

The order makes the view exact. The subscription opens first, so no later item is missed. Then the record is
read to its end, then comes the text so far of messages in progress, then the live items. Live items that
the reader has seen already are skipped: events by their sequence, and the text of messages that those
events ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from wonder_server.actors.streaming.hub import StreamHub
from wonder_server.actors.streaming.items import Delta, Item, KeepAlive, PartKind, ended_ids
from wonder_server.actors.streaming.subscription import Subscription
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.journal import Event, Journal
from wonder_server.ports.scoped import ScopedRecords

PAGE = 200
MAX_HISTORY_EVENTS = 1000
"""Limit above the number of events that are committed and not yet published: those of one batch."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All events up to ``sequence`` were sent."""

    sequence: int


@dataclass(frozen=True, slots=True)
class StreamSource:
    """The record and the live streams of one actor."""

    actor_id: str
    journal: Journal
    records: ScopedRecords
    streams: StreamHub


class Attachment:
    """One attached reader. Call `take` until it returns a `Closed`, then `close`."""

    def __init__(
        self,
        source: StreamSource,
        subscription: Subscription,
        partial_texts: list[Delta],
        *,
        after: int,
        head: int,
    ) -> None:
        self._source = source
        self.head = head
        self._partial_texts = partial_texts
        self._after = after
        self._ended: set[str] = set()
        """Ids of messages and turns that have ended, whose text may still be queued."""
        self._keep_alive: _KeepAliveTimer | None = None
        self.subscription = subscription
        self.sequence = after
        """Sequence of the last event sent: the cursor for the next attach."""

    @property
    def keep_alive_after_s(self) -> float:
        """Seconds without items after which the reader gets a `KeepAlive`."""
        return self._source.streams.keep_alive_after_s

    async def take(self) -> Sequence[Item | CaughtUp]:
        """Wait for the next items and return them, in order.

        First comes the history, a page at a time, then the text so far and a `CaughtUp`, then live items.
        The last item is a `Closed`.
        """
        if self.sequence < self.head:
            page = await self._events(self.sequence, PAGE)
            for event in page:
                self.sequence = event.sequence
                self._ended |= ended_ids(event)
            if page:
                return page
        if self._keep_alive is None:
            await self._read_history()
            self._keep_alive = _KeepAliveTimer(self.subscription, self._source.streams.keep_alive_after_s)
            partial_texts = [delta for delta in self._partial_texts if not self._has_ended(delta)]
            return [*partial_texts, CaughtUp(self.sequence)]
        while True:
            if not self.subscription.has_items:
                await self.subscription.wait()
            self._keep_alive.reset()
            items = self.subscription.take()
            if len(items) == 1 and type(items[0]) is Delta and not self._ended:
                return items  # what nearly always happens
            new_items = [item for item in items if self._is_new(item)]
            if new_items:
                return new_items

    def close(self) -> None:
        """Close the subscription."""
        self._source.streams.unsubscribe(self._source.actor_id, self.subscription)
        if self._keep_alive is not None:
            self._keep_alive.stop()

    async def _read_history(self) -> None:
        """Find the messages that ended before the cursor but after the subscription opened, whose queued
        text must be skipped."""
        count = min(self._after, MAX_HISTORY_EVENTS)
        if count and (self._partial_texts or self.subscription.has_items):
            start = self._after - count
            while start < self._after:
                count = self._after - start
                page = await self._events(start, count)
                if not page:
                    break
                for event in page:
                    self._ended |= ended_ids(event)
                start = page[-1].sequence

    async def _events(self, after: int, limit: int) -> list[Event]:
        source = self._source
        return await source.journal.events(source.actor_id, after, limit)

    def _has_ended(self, delta: Delta) -> bool:
        return delta.message_id in self._ended or delta.turn_id in self._ended

    def _is_new(self, item: Item) -> bool:
        """Return True for a live item that the history has not shown."""
        if isinstance(item, Delta):
            return not self._ended or not self._has_ended(item)
        if isinstance(item, Event):
            if item.sequence <= self.sequence:
                return False
            self.sequence = item.sequence
            # No later item in the queue can belong to what ended before this event.
            self._ended.clear()
        return True


class _KeepAliveTimer:
    """Adds a `KeepAlive` to a subscription without recent items. It needs one timer and no task."""

    def __init__(self, subscription: Subscription, after_s: float) -> None:
        self._subscription = subscription
        self._after_s = after_s
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._handle = self._loop.call_later(self._after_s, self._check)

    def reset(self) -> None:
        self._last = self._loop.time()

    def stop(self) -> None:
        self._handle.cancel()

    def _check(self) -> None:
        idle = self._loop.time() - self._last
        if idle >= self._after_s:
            self._subscription.push(KeepAlive())
            idle = 0.0
        self._handle = self._loop.call_later(self._after_s - idle, self._check)


async def attach(
    source: StreamSource,
    *,
    after: int,
    tail_only: bool = False,
    wants_progress: bool = False,
    kinds: Collection[PartKind] = (),
) -> Attachment | None:
    """Attach a reader that has seen events up to ``after``. Return None if the actor does not exist.

    ``wants_progress``: send the progress of a run's tasks too. ``kinds``: send parts of messages of these
    kinds too. Errors: CURSOR_OUT_OF_RANGE.
    """
    # Subscribe before reading the head, so that no event in between is missed.
    actor_id, streams = source.actor_id, source.streams
    subscription, partial_texts = streams.subscribe(actor_id, wants_progress=wants_progress, kinds=kinds)
    try:
        head = await source.records.head(actor_id)
    except BaseException:
        streams.unsubscribe(actor_id, subscription)
        raise
    if head is None or (after > head and not tail_only):
        streams.unsubscribe(actor_id, subscription)
    if head is None:
        return None
    if after > head and not tail_only:
        raise beyond_last_event(after, head)
    return Attachment(source, subscription, partial_texts, after=head if tail_only else after, head=head)


def beyond_last_event(after: int, head: int) -> WonderError:
    """Return the error of a reader whose cursor is beyond the last event."""
    return error(
        Reason.CURSOR_OUT_OF_RANGE,
        f"The cursor {after} is beyond the last event, {head}. Use a cursor of at most {head}.",
        field="after_sequence",
        last_sequence=str(head),
    )
