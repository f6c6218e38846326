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

from wonder_server.actors.streams import Delta, Item, Quiet, Streams, Subscription, ended_by
from wonder_server.core.errors import Reason, error
from wonder_server.core.planner import Planner
from wonder_server.ports.journal import Event, Journal
from wonder_server.ports.records import Records

PAGE = 200
LOOK_BACK = 1000
"""More events than are ever written but not yet shown: what one round of an actor can lead to."""
QUIET_AFTER_S = 15.0


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
        streams: Streams,
        *,
        after: int,
        head: int,
        subscription: Subscription,
        so_far: list[Delta],
    ) -> None:
        self._actor_id = actor_id
        self._planner = planner
        self._journal = journal
        self._streams = streams
        self.head = head
        self._so_far = so_far
        self._after = after
        self._ended: set[str] = set()
        """Messages and turns that are over, though some of their text may still be queued."""
        self._pulse: _Pulse | None = None
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
                self._ended |= ended_by(event)
            if page:
                return page
        if self._pulse is None:
            await self._look_back()
            self._pulse = _Pulse(self.subscription)
            so_far = [delta for delta in self._so_far if not self._is_over(delta)]
            return [*so_far, CaughtUp(self.sequence)]
        while True:
            if not self.subscription.holds_any:
                await self.subscription.wait()
            self._pulse.beat()
            items = self.subscription.take()
            if len(items) == 1 and type(items[0]) is Delta and not self._ended:
                return items  # what nearly always happens
            news = [item for item in items if self._is_news(item)]
            if news:
                return news

    def close(self) -> None:
        """Stop listening."""
        self._streams.unsubscribe(self._actor_id, self.subscription)
        if self._pulse is not None:
            self._pulse.stop()

    async def _look_back(self) -> None:
        """What ended just before the cursor, but after we began to listen: its text is not shown half."""
        count = min(self._after, LOOK_BACK)
        if count and (self._so_far or self.subscription.holds_any):
            start = self._after - count
            while start < self._after:
                count = self._after - start
                page = await self._journal.events(self._actor_id, self._planner, start, count)
                if not page:
                    break
                for event in page:
                    self._ended |= ended_by(event)
                start = page[-1].sequence

    def _is_over(self, delta: Delta) -> bool:
        return delta.message_id in self._ended or delta.turn_id in self._ended

    def _is_news(self, item: Item) -> bool:
        """Whether a live item is to be shown; what the past has shown already is not."""
        if isinstance(item, Delta):
            return not self._ended or not self._is_over(item)
        if isinstance(item, Event):
            if item.sequence <= self.sequence:
                return False
            self.sequence = item.sequence
            # Nothing behind it in the queue can be of what ended before it.
            self._ended.clear()
        return True


class _Pulse:
    """Puts a `Quiet` into a subscription that has heard nothing for a while. One timer, no task."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._handle = self._loop.call_later(QUIET_AFTER_S, self._look)

    def beat(self) -> None:
        self._last = self._loop.time()

    def stop(self) -> None:
        self._handle.cancel()

    def _look(self) -> None:
        idle = self._loop.time() - self._last
        if idle >= QUIET_AFTER_S:
            self._subscription.push(Quiet())
            idle = 0.0
        self._handle = self._loop.call_later(QUIET_AFTER_S - idle, self._look)


async def attach(
    actor_id: str,
    planner: Planner,
    journal: Journal,
    records: Records,
    streams: Streams,
    *,
    after: int,
    tail_only: bool = False,
    wants_progress: bool = False,
) -> Attachment | None:
    """Attach a reader that has seen events up to ``after``; None if there is no such actor.

    ``wants_progress``: of a run, what its nodes do in their tasks is shown too. Errors: CURSOR_OUT_OF_RANGE.
    """
    # Before the record's end is read, or an event in between would be neither past nor live.
    subscription, so_far = streams.subscribe(actor_id, wants_progress=wants_progress)
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
        so_far=so_far,
    )
