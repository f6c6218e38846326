"""Who is listening: subscriptions to actors, and the text of messages while they are spoken.

Durable events come here after their commit; pieces of text (deltas) come straight from the model's handler
and are not part of the record. A subscription is a bounded queue that its reader empties. A slow reader
first gets its deltas merged; past the bound, or with more than `LAG_BYTES` in it for `LAG_S`, its
subscription is closed, and nobody else notices.

Whoever watches a run may also ask for the progress of its tasks. It is not part of the record either, and is
what a slow reader misses first. What was told last of a node is kept while its step is under way, for those
who begin to watch later: a node that waits for a worker says so once.

Whoever subscribes gets the text so far of every message being spoken, so that it can show a half-said
answer at once. An actor that nobody listens to and that says nothing has no entry here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from wonder_server.actors.weights import text_bytes
from wonder_server.core import frozen
from wonder_server.core.coordinator.record import RUN_ENDED
from wonder_server.ports.journal import Event

LAG_BYTES = 256 * 1024
"""As much may wait for a reader for as long as it likes, and as much is handed to it at once."""
LAG_S = 2.0
"""More may only wait for as long as this: bursts are no fault of the reader's."""


class Delta(msgspec.Struct, gc=False):
    """A piece of a message's text at ``offset`` (in code points).

    ``attempt`` above 0: the message begins again, forget what came before. ``wire`` is room for the rpc layer
    to keep the encoded piece.
    """

    turn_id: str
    message_id: str
    offset: int
    text: str
    attempt: int = 0
    wire: bytes | None = None

    @property
    def restarted(self) -> bool:
        return self.attempt > 0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to this reader alone, already encoded; kept in order with what it hears otherwise."""

    wire: bytes


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """What a node of a run does in its task. ``item`` is what the executor says: a step that begins or ends,
    or how far it is."""

    node_id: str
    execution_id: str
    item: Any


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing has happened for a while."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The last item of a subscription: why it ended: ``slow``, ``draining``, ``detached`` or ``ended``."""

    why: str


Item = Event | Delta | Reply | NodeProgress | Quiet | Closed


@dataclass(slots=True)
class _Spoken:
    """A message while it is spoken."""

    turn_id: str
    attempt: int
    length: int = 0
    pieces: list[str] = field(default_factory=list)

    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class Subscription:
    """One reader's queue. `take` empties it; `wait` sleeps until there is something to take."""

    __slots__ = (
        "_bytes",
        "_items",
        "_lag",
        "_lag_bytes",
        "_limit_bytes",
        "_limit_items",
        "_loop",
        "_waiter",
        "closed",
        "wants_progress",
    )

    def __init__(self, limit_items: int, limit_bytes: int, *, wants_progress: bool = False) -> None:
        self.wants_progress = wants_progress
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._lag: asyncio.TimerHandle | None = None
        self._lag_bytes = min(LAG_BYTES, limit_bytes)
        self._limit_items = limit_items
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False

    @property
    def holds_any(self) -> bool:
        """Whether there is something to take."""
        return bool(self._items)

    def take(self) -> deque[Item]:
        """What has come since the last time, no more than about `LAG_BYTES` of it."""
        if self._lag is not None:
            self._lag.cancel()
            self._lag = None
        if self._bytes > self._lag_bytes:
            return self._take_some()
        items, self._items, self._bytes = self._items, deque(), 0
        return items

    def wait(self) -> asyncio.Future[None]:
        """Done when there is something to take. One reader at a time."""
        self._waiter = self._loop.create_future()
        if self._items:
            self._waiter.set_result(None)
        return self._waiter

    def push(self, item: Item, weight: int | None = None) -> None:
        """Queue an item; merge or close if the reader is too slow. ``weight``: its bytes, if known."""
        if self.closed:
            return
        if self._items and isinstance(item, Delta) and self._merged(item):
            return
        self._items.append(item)
        self._bytes += _weight(item) if weight is None else weight
        if len(self._items) > self._limit_items or self._bytes > self._lag_bytes:
            self._lags()
        self._notify()

    def close(self, why: str) -> None:
        """Say why and take nothing more. A slow reader's backlog is dropped: it resumes by cursor."""
        if self.closed:
            return
        self.closed = True
        if why == "slow":
            self._items.clear()
            self._bytes = 0
        self._items.append(Closed(why))
        self._notify()

    def _take_some(self) -> deque[Item]:
        items: deque[Item] = deque()
        size = 0
        while self._items and size <= self._lag_bytes:
            items.append(self._items.popleft())
            size += _weight(items[-1])
        self._bytes = sum(map(_weight, self._items))
        if self._bytes > self._lag_bytes:
            self._lags()
        return items

    def _lags(self) -> None:
        """Past a bound: the reader has a moment if it is the lower one."""
        if len(self._items) > self._limit_items or self._bytes > self._limit_bytes:
            self._overfull(self._limit_bytes)
        elif self._lag is None:
            self._lag = self._loop.call_later(LAG_S, self._overfull, self._lag_bytes)

    def _overfull(self, limit_bytes: int) -> None:
        """Leave the progress out, and close if that does not help."""
        self._lag = None
        kept: deque[Item] = deque(item for item in self._items if not isinstance(item, NodeProgress))
        if len(kept) == len(self._items):
            self.close("slow")
            return
        self._items, self._bytes = kept, sum(map(_weight, kept))
        if len(kept) > self._limit_items or self._bytes > limit_bytes:
            self.close("slow")

    def _merged(self, delta: Delta) -> bool:
        """Append to the last queued piece of the same message, once the reader lags."""
        last = self._items[-1] if self._items else None
        if not isinstance(last, Delta) or last.message_id != delta.message_id or delta.restarted:
            return False
        self._items[-1] = Delta(
            last.turn_id, last.message_id, last.offset, last.text + delta.text, last.attempt
        )
        self._bytes += len(delta.text)
        if self._bytes > self._lag_bytes:
            self._lags()
        return True

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def ended_by(event: Event) -> set[str]:
    """The message, and the turn, that ``event`` ends: nothing more is said of them."""
    emit = event.emit
    ended = {emit.message_id} if emit.message_id else set()
    if emit.kind in ("turn_completed", "turn_failed", "turn_cancelled"):
        ended.add(emit.turn_id)
    return ended


_TEXTS = {
    "message_appended": "content",
    "conversation_turn": "input",
    "turn_completed": "input",
    "turn_failed": "input",
    "turn_cancelled": "input",
}
"""Where nearly all of an event's text stands, by its kind; of the others all is looked through."""


def _weight(item: Item) -> int:
    """About how many bytes an item holds."""
    if isinstance(item, Delta):
        return len(item.text) + 64
    if isinstance(item, Event):
        if item.wire is not None:
            return 2 * len(item.wire) + 512  # It is held as a value too.
        value, text = item.emit.value, _TEXTS.get(item.emit.kind)
        return (len(getattr(value, text, "")) if text else text_bytes(value)) + 512
    if isinstance(item, NodeProgress):
        return len(getattr(item.item, "output", "")) + 512
    return len(item.wire) + 64 if isinstance(item, Reply) else 0


MAX_DOING = 10_000
"""Of so many runs it is kept what their nodes do."""

_NODE_ENDS = frozenset({"node_completed", "node_failed", "node_cancelled"})


class Streams:
    """All subscriptions and all messages being spoken, by actor."""

    def __init__(self, limit_items: int, limit_bytes: int) -> None:
        self._limits = (limit_items, limit_bytes)
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._speaking: dict[str, dict[str, _Spoken]] = {}
        self._ends: dict[str, list[asyncio.Future[Event | None]]] = {}
        self._doing: dict[str, dict[str, NodeProgress]] = {}
        self._draining = False

    def subscribe(self, actor_id: str, *, wants_progress: bool = False) -> tuple[Subscription, list[Delta]]:
        """A new subscription, and the text so far of what is being spoken now."""
        subscription = Subscription(*self._limits, wants_progress=wants_progress)
        if self._draining:
            subscription.close("draining")
        if wants_progress:
            for item in self._doing.get(actor_id, {}).values():
                subscription.push(item)
        self._subscriptions.setdefault(actor_id, []).append(subscription)
        so_far = [
            Delta(spoken.turn_id, message_id, 0, spoken.text(), spoken.attempt)
            for message_id, spoken in self._speaking.get(actor_id, {}).items()
            if spoken.length or spoken.attempt
        ]
        return subscription, so_far

    def unsubscribe(self, actor_id: str, subscription: Subscription) -> None:
        listeners = self._subscriptions.get(actor_id, [])
        if subscription in listeners:
            listeners.remove(subscription)
        if not listeners:
            self._subscriptions.pop(actor_id, None)

    @property
    def count(self) -> int:
        """Open subscriptions."""
        return sum(len(listeners) for listeners in self._subscriptions.values())

    # --- what is said ---------------------------------------------------------------------------

    def publish(self, actor_id: str, events: list[Event]) -> None:
        """Show durable events, in order; those that close a message end its text."""
        speaking = self._speaking.get(actor_id)
        listeners = self._subscriptions.get(actor_id, ())
        doing = self._doing.get(actor_id)
        for event in events if listeners or speaking or doing is not None else ():
            if speaking:
                self._quiet(actor_id, speaking, event)
            if doing and event.emit.kind in _NODE_ENDS:
                doing.pop(event.emit.value.id, None)
            if doing is not None and event.emit.kind in RUN_ENDED:
                self._doing.pop(actor_id, None)
            weight = _weight(event) if listeners else 0
            for subscription in tuple(listeners):
                subscription.push(event, weight)
        if self._ends and actor_id in self._ends:
            self._say_end(actor_id, events)

    def progress(self, run_id: str, item: NodeProgress) -> None:
        """Show what a node of a run does to those who asked for that."""
        if getattr(item.item, "status", "running") == "running":
            if getattr(item.item, "output", ""):
                kept = replace(item, item=frozen.replace(item.item, output=""))  # that may be much
            else:
                kept = item
            self._doing.setdefault(run_id, {})[item.execution_id] = kept
            if len(self._doing) > MAX_DOING:
                del self._doing[next(iter(self._doing))]
        elif run_id in self._doing:
            self._doing[run_id].pop(item.execution_id, None)
            if not self._doing[run_id]:
                del self._doing[run_id]
        for subscription in self._subscriptions.get(run_id, ()):
            if subscription.wants_progress:
                subscription.push(item)

    def begin(self, actor_id: str, turn_id: str, message_id: str, attempt: int) -> None:
        """A model starts to speak under ``message_id``; from attempt 2 on, what it said before is void.

        Where it is known that nothing was said before, there is nothing to announce.
        """
        speaking = self._speaking.setdefault(actor_id, {})
        before = speaking.get(message_id)
        silent = before is not None and not before.length and not before.attempt
        again = attempt if attempt > 1 and not silent else 0
        speaking[message_id] = _Spoken(turn_id, again)
        if again:
            delta = Delta(turn_id, message_id, 0, "", again)
            for subscription in tuple(self._subscriptions.get(actor_id, ())):
                subscription.push(delta)

    def say(self, actor_id: str, message_id: str, text: str) -> None:
        """The next piece of a message that has begun."""
        spoken = self._speaking.get(actor_id, {}).get(message_id)
        if spoken is None or not text:
            return
        listeners = self._subscriptions.get(actor_id)
        if listeners:
            delta = Delta(spoken.turn_id, message_id, spoken.length, text)
            for subscription in listeners:
                subscription.push(delta)
        spoken.pieces.append(text)
        spoken.length += len(text)

    def spoken(self, actor_id: str, turn_id: str) -> str:
        """What a turn's message has said so far, if one is being spoken."""
        for spoken in self._speaking.get(actor_id, {}).values():
            if spoken.turn_id == turn_id:
                return spoken.text()
        return ""

    def _quiet(self, actor_id: str, speaking: dict[str, _Spoken], event: Event) -> None:
        ended = ended_by(event)
        for message_id in [m for m, s in speaking.items() if m in ended or s.turn_id in ended]:
            del speaking[message_id]
        if not speaking:
            self._speaking.pop(actor_id, None)

    # --- ends -----------------------------------------------------------------------------------

    def end_of(self, run_id: str) -> asyncio.Future[Event | None]:
        """The event that ends a run, once it is on disk; None if the server goes away before.

        Ask before you look whether it has ended already, and `forget_end` when you no longer wait.
        """
        end: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()
        if self._draining:
            end.set_result(None)
        else:
            self._ends.setdefault(run_id, []).append(end)
        return end

    def forget_end(self, run_id: str, end: asyncio.Future[Event | None]) -> None:
        """Nobody waits for this one any more."""
        waiting = self._ends.get(run_id)
        if waiting is not None and end in waiting:
            waiting.remove(end)
            if not waiting:
                del self._ends[run_id]

    def _say_end(self, run_id: str, events: list[Event]) -> None:
        for event in events:
            if event.emit.kind in RUN_ENDED:
                for end in self._ends.pop(run_id, ()):
                    if not end.done():
                        end.set_result(event)

    def close(self, actor_id: str, why: str) -> None:
        """End every subscription to one actor."""
        for subscription in self._subscriptions.get(actor_id, ()):
            subscription.close(why)

    def drain(self) -> None:
        """Tell every reader that the server is going away; new ones are told at once."""
        self._draining = True
        for listeners in self._subscriptions.values():
            for subscription in listeners:
                subscription.close("draining")
        for waiting in self._ends.values():
            for end in waiting:
                if not end.done():
                    end.set_result(None)
        self._ends.clear()
