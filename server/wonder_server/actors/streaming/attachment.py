"""A reader's whole view of an actor: its past from a cursor, what is being said, then what happens (B3).

The order is what makes it exact. The subscription opens first, so nothing that happens from now on is
missed; then the record is read up to its end, then comes the text so far of messages being spoken, then
the live tail, from which everything already shown is left out: events by their sequence, and the text of
messages that those events had ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from wonder_server.actors.streaming.hub import Delta, Item, KeepAlive, StreamHub, Subscription, ended_ids
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import Reason, error
from wonder_server.ports.journal import Event, Journal
from wonder_server.ports.records import Records

PAGE = 200
MAX_HISTORY_EVENTS = 1000
"""More events than are ever written but not yet shown: what one round of an actor can lead to."""
KEEP_ALIVE_AFTER_S = 15.0


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything from before has been shown, up to ``sequence``."""

    sequence: int


class Attachment:
    """One attached reader. `take` until a `Closed`; `close` when done."""

    def __init__(
        self,
        actor_id: str,
        planner: Planner,
        journal: Journal,
        streams: StreamHub,
        *,
        after: int,
        head: int,
        subscription: Subscription,
        partial_texts: list[Delta],
    ) -> None:
        self._actor_id = actor_id
        self._planner = planner
        self._journal = journal
        self._streams = streams
        self.head = head
        self._partial_texts = partial_texts
        self._after = after
        self._ended: set[str] = set()
        """Messages and turns that are over, though some of their text may still be queued."""
        self._keep_alive: _KeepAliveTimer | None = None
        self.subscription = subscription
        self.sequence = after
        """The last event shown: the cursor to attach with again."""

    async def take(self) -> Sequence[Item | CaughtUp]:
        """What comes next, in order, as much as there is; wait until there is something.

        First the past, a page at a time, then the text so far and a `CaughtUp`, then what happens. The last
        item of all is a `Closed`.
        """
        if self.sequence < self.head:
            page = await self._journal.events(self._actor_id, self._planner, self.sequence, PAGE)
            for event in page:
                self.sequence = event.sequence
                self._ended |= ended_ids(event)
            if page:
                return page
        if self._keep_alive is None:
            await self._read_history()
            self._keep_alive = _KeepAliveTimer(self.subscription)
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
        """Stop listening."""
        self._streams.unsubscribe(self._actor_id, self.subscription)
        if self._keep_alive is not None:
            self._keep_alive.stop()

    async def _read_history(self) -> None:
        """What ended just before the cursor, but after we began to listen: its text is not shown half."""
        count = min(self._after, MAX_HISTORY_EVENTS)
        if count and (self._partial_texts or self.subscription.has_items):
            start = self._after - count
            while start < self._after:
                count = self._after - start
                page = await self._journal.events(self._actor_id, self._planner, start, count)
                if not page:
                    break
                for event in page:
                    self._ended |= ended_ids(event)
                start = page[-1].sequence

    def _has_ended(self, delta: Delta) -> bool:
        return delta.message_id in self._ended or delta.turn_id in self._ended

    def _is_new(self, item: Item) -> bool:
        """Whether a live item is to be shown; what the past has shown already is not."""
        if isinstance(item, Delta):
            return not self._ended or not self._has_ended(item)
        if isinstance(item, Event):
            if item.sequence <= self.sequence:
                return False
            self.sequence = item.sequence
            # Nothing behind it in the queue can be of what ended before it.
            self._ended.clear()
        return True


class _KeepAliveTimer:
    """Puts a `Quiet` into a subscription that has heard nothing for a while. One timer, no task."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._handle = self._loop.call_later(KEEP_ALIVE_AFTER_S, self._check)

    def reset(self) -> None:
        self._last = self._loop.time()

    def stop(self) -> None:
        self._handle.cancel()

    def _check(self) -> None:
        idle = self._loop.time() - self._last
        if idle >= KEEP_ALIVE_AFTER_S:
            self._subscription.push(KeepAlive())
            idle = 0.0
        self._handle = self._loop.call_later(KEEP_ALIVE_AFTER_S - idle, self._check)


async def attach(
    actor_id: str,
    planner: Planner,
    journal: Journal,
    records: Records,
    streams: StreamHub,
    *,
    after: int,
    tail_only: bool = False,
    wants_progress: bool = False,
) -> Attachment | None:
    """Attach a reader that has seen events up to ``after``; None if there is no such actor.

    ``wants_progress``: of a run, what its nodes do in their tasks is shown too. Errors: CURSOR_OUT_OF_RANGE.
    """
    # Before the record's end is read, or an event in between would be neither past nor live.
    subscription, partial_texts = streams.subscribe(actor_id, wants_progress=wants_progress)
    try:
        head = await records.head(actor_id)
    except BaseException:
        streams.unsubscribe(actor_id, subscription)
        raise
    if head is None or (after > head and not tail_only):
        streams.unsubscribe(actor_id, subscription)
    if head is None:
        return None
    if after > head and not tail_only:
        raise error(
            Reason.CURSOR_OUT_OF_RANGE,
            f"The cursor {after} lies beyond the last event, {head}.",
            field="after_sequence",
            last_sequence=str(head),
        )
    return Attachment(
        actor_id,
        planner,
        journal,
        streams,
        after=head if tail_only else after,
        head=head,
        subscription=subscription,
        partial_texts=partial_texts,
    )
