"""Live streams: subscriptions to actors, and the text of messages in progress.

Durable events arrive after their commit. Pieces of text (deltas) arrive straight from the model's handler
and are not recorded. A subscription is a bounded queue that its reader empties. The hub merges the deltas
of a slow reader. It closes the subscription above the item or byte limit, or if more than `MAX_LAG_BYTES`
wait for longer than `MAX_LAG_S`. Other readers are not affected.

A reader of a run may also subscribe to the progress of its tasks. Progress is not recorded, and the hub
drops it first for a slow reader. The hub keeps the latest progress of each running node for new readers: a
node that waits for a worker reports that only once.

A new subscription starts with the text so far of every message in progress. An actor without readers and
without messages in progress has no entry here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from wonder_server.actors.streaming.sizes import text_bytes
from wonder_server.core import frozen
from wonder_server.core.coordinator.record import RUN_ENDED
from wonder_server.ports.journal import Event

MAX_LAG_BYTES = 256 * 1024
"""Bytes that may wait for a reader without a time limit, and maximum size of one `take`."""
MAX_LAG_S = 2.0
"""Time that more than `MAX_LAG_BYTES` may wait, so that a burst does not close the subscription."""


class Delta(msgspec.Struct, gc=False):
    """A piece of a message's text at ``offset`` (in code points).

    ``attempt`` above 0: the message starts over, and earlier pieces are void. ``wire`` caches the encoded
    piece for the rpc layer.
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
    """An encoded reply to this reader alone, in order with its other items."""

    wire: bytes


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """Progress of a node's task. ``item`` is the executor's report: a step that starts or ends, or its
    progress."""

    node_id: str
    execution_id: str
    item: Any


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """A sign of life after a period without items."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The last item of a subscription. ``reason`` is ``slow``, ``draining``, ``detached``, ``deleted`` or
    ``ended``."""

    reason: str


Item = Event | Delta | Reply | NodeProgress | KeepAlive | Closed


@dataclass(slots=True)
class _PartialMessage:
    """The text so far of a message in progress."""

    turn_id: str
    attempt: int
    length: int = 0
    pieces: list[str] = field(default_factory=list)

    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class Subscription:
    """The queue of one reader. `take` empties it; `wait` waits until it has items."""

    __slots__ = (
        "_bytes",
        "_items",
        "_lag_timer",
        "_limit_bytes",
        "_limit_items",
        "_loop",
        "_max_lag_bytes",
        "_waiter",
        "closed",
        "wants_progress",
    )

    def __init__(self, limit_items: int, limit_bytes: int, *, wants_progress: bool = False) -> None:
        self.wants_progress = wants_progress
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._lag_timer: asyncio.TimerHandle | None = None
        self._max_lag_bytes = min(MAX_LAG_BYTES, limit_bytes)
        self._limit_items = limit_items
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False

    @property
    def has_items(self) -> bool:
        """True if the queue has items."""
        return bool(self._items)

    def take(self) -> deque[Item]:
        """Remove and return the queued items, up to about `MAX_LAG_BYTES`."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()
            self._lag_timer = None
        if self._bytes > self._max_lag_bytes:
            return self._take_some()
        items, self._items, self._bytes = self._items, deque(), 0
        return items

    def wait(self) -> asyncio.Future[None]:
        """Return a future that completes when the queue has items. Only one reader may wait."""
        self._waiter = self._loop.create_future()
        if self._items:
            self._waiter.set_result(None)
        return self._waiter

    def push(self, item: Item, size_bytes: int | None = None) -> None:
        """Add an item. Merge deltas, or close the subscription, if the reader is too slow.

        ``size_bytes`` is the item's size, if known.
        """
        if self.closed:
            return
        if self._items and isinstance(item, Delta) and self._merge(item):
            return
        self._items.append(item)
        self._bytes += _size_bytes(item) if size_bytes is None else size_bytes
        if len(self._items) > self._limit_items or self._bytes > self._max_lag_bytes:
            self._check_lag()
        self._notify()

    def close(self, reason: str) -> None:
        """Close the subscription with a reason. The backlog of a slow reader is dropped: it resumes by
        cursor."""
        if self.closed:
            return
        self.closed = True
        if reason == "slow":
            self._items.clear()
            self._bytes = 0
        self._items.append(Closed(reason))
        self._notify()

    def _take_some(self) -> deque[Item]:
        items: deque[Item] = deque()
        size = 0
        while self._items and size <= self._max_lag_bytes:
            items.append(self._items.popleft())
            size += _size_bytes(items[-1])
        self._bytes = sum(map(_size_bytes, self._items))
        if self._bytes > self._max_lag_bytes:
            self._check_lag()
        return items

    def _check_lag(self) -> None:
        """Close the subscription above a hard limit, or start the lag timer above `MAX_LAG_BYTES`."""
        if len(self._items) > self._limit_items or self._bytes > self._limit_bytes:
            self._shed_backlog(self._limit_bytes)
        elif self._lag_timer is None:
            self._lag_timer = self._loop.call_later(MAX_LAG_S, self._shed_backlog, self._max_lag_bytes)

    def _shed_backlog(self, limit_bytes: int) -> None:
        """Drop progress items. Close the subscription if the backlog still exceeds the limit."""
        self._lag_timer = None
        remaining: deque[Item] = deque(item for item in self._items if not isinstance(item, NodeProgress))
        if len(remaining) == len(self._items):
            self.close("slow")
            return
        self._items, self._bytes = remaining, sum(map(_size_bytes, remaining))
        if len(remaining) > self._limit_items or self._bytes > limit_bytes:
            self.close("slow")

    def _merge(self, delta: Delta) -> bool:
        """Append the delta to the last queued one, if both belong to the same message."""
        last = self._items[-1] if self._items else None
        if not isinstance(last, Delta) or last.message_id != delta.message_id or delta.restarted:
            return False
        self._items[-1] = Delta(
            last.turn_id, last.message_id, last.offset, last.text + delta.text, last.attempt
        )
        self._bytes += len(delta.text)
        if self._bytes > self._max_lag_bytes:
            self._check_lag()
        return True

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def ended_ids(event: Event) -> set[str]:
    """Return the ids of the message and the turn that ``event`` ends."""
    emit = event.emit
    ids = {emit.message_id} if emit.message_id else set()
    if emit.kind in ("turn_completed", "turn_failed", "turn_cancelled"):
        ids.add(emit.turn_id)
    return ids


_TEXT_FIELDS = {
    "message_appended": "content",
    "conversation_turn": "input",
    "turn_completed": "input",
    "turn_failed": "input",
    "turn_cancelled": "input",
}
"""The field with nearly all text of an event, by kind. For other kinds, all fields are measured."""


def _size_bytes(item: Item) -> int:
    """Return the approximate size of an item, in bytes."""
    if isinstance(item, Delta):
        return len(item.text) + 64
    if isinstance(item, Event):
        if item.wire is not None:
            return 2 * len(item.wire) + 512  # It is held as a value too.
        value, text = item.emit.value, _TEXT_FIELDS.get(item.emit.kind)
        return (len(getattr(value, text, "")) if text else text_bytes(value)) + 512
    if isinstance(item, NodeProgress):
        return len(getattr(item.item, "output", "")) + 512
    return len(item.wire) + 64 if isinstance(item, Reply) else 0


MAX_PROGRESS_RUNS = 10_000
"""Maximum number of runs whose latest node progress is kept."""

_NODE_ENDS = frozenset({"node_completed", "node_failed", "node_cancelled"})


class StreamHub:
    """All subscriptions and all messages in progress, by actor."""

    def __init__(self, limit_items: int, limit_bytes: int) -> None:
        self._limits = (limit_items, limit_bytes)
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._open_messages: dict[str, dict[str, _PartialMessage]] = {}
        self._end_waiters: dict[str, list[asyncio.Future[Event | None]]] = {}
        self._node_progress: dict[str, dict[str, NodeProgress]] = {}
        self._draining = False

    def subscribe(self, actor_id: str, *, wants_progress: bool = False) -> tuple[Subscription, list[Delta]]:
        """Return a new subscription and the text so far of the messages in progress."""
        subscription = Subscription(*self._limits, wants_progress=wants_progress)
        if self._draining:
            subscription.close("draining")
        if wants_progress:
            for item in self._node_progress.get(actor_id, {}).values():
                subscription.push(item)
        self._subscriptions.setdefault(actor_id, []).append(subscription)
        partial_texts = [
            Delta(message.turn_id, message_id, 0, message.text(), message.attempt)
            for message_id, message in self._open_messages.get(actor_id, {}).items()
            if message.length or message.attempt
        ]
        return subscription, partial_texts

    def unsubscribe(self, actor_id: str, subscription: Subscription) -> None:
        listeners = self._subscriptions.get(actor_id, [])
        if subscription in listeners:
            listeners.remove(subscription)
        if not listeners:
            self._subscriptions.pop(actor_id, None)

    @property
    def count(self) -> int:
        """Number of open subscriptions."""
        return sum(len(listeners) for listeners in self._subscriptions.values())

    # --- events and text ------------------------------------------------------------------------

    def publish(self, actor_id: str, events: list[Event]) -> None:
        """Send durable events to the readers, in order. An event that completes a message ends its text."""
        open_messages = self._open_messages.get(actor_id)
        listeners = self._subscriptions.get(actor_id, ())
        node_progress = self._node_progress.get(actor_id)
        for event in events if listeners or open_messages or node_progress is not None else ():
            if open_messages:
                self._finish_message(actor_id, open_messages, event)
            if node_progress and event.emit.kind in _NODE_ENDS:
                node_progress.pop(event.emit.value.id, None)
            if node_progress is not None and event.emit.kind in RUN_ENDED:
                self._node_progress.pop(actor_id, None)
            size_bytes = _size_bytes(event) if listeners else 0
            for subscription in tuple(listeners):
                subscription.push(event, size_bytes)
        if self._end_waiters and actor_id in self._end_waiters:
            self._resolve_end(actor_id, events)

    def publish_progress(self, run_id: str, item: NodeProgress) -> None:
        """Send a node's progress to the readers that asked for it."""
        if getattr(item.item, "status", "running") == "running":
            if getattr(item.item, "output", ""):
                latest = replace(item, item=frozen.replace(item.item, output=""))  # The output may be large.
            else:
                latest = item
            self._node_progress.setdefault(run_id, {})[item.execution_id] = latest
            if len(self._node_progress) > MAX_PROGRESS_RUNS:
                del self._node_progress[next(iter(self._node_progress))]
        elif run_id in self._node_progress:
            self._node_progress[run_id].pop(item.execution_id, None)
            if not self._node_progress[run_id]:
                del self._node_progress[run_id]
        for subscription in self._subscriptions.get(run_id, ()):
            if subscription.wants_progress:
                subscription.push(item)

    def begin_message(self, actor_id: str, turn_id: str, message_id: str, attempt: int) -> None:
        """Start a message. From attempt 2 on, earlier text is void.

        Readers receive a restart only if there was earlier text.
        """
        open_messages = self._open_messages.setdefault(actor_id, {})
        before = open_messages.get(message_id)
        was_empty = before is not None and not before.length and not before.attempt
        restarted_attempt = attempt if attempt > 1 and not was_empty else 0
        open_messages[message_id] = _PartialMessage(turn_id, restarted_attempt)
        if restarted_attempt:
            delta = Delta(turn_id, message_id, 0, "", restarted_attempt)
            for subscription in tuple(self._subscriptions.get(actor_id, ())):
                subscription.push(delta)

    def append_text(self, actor_id: str, message_id: str, text: str) -> None:
        """Add the next piece of a message in progress."""
        message = self._open_messages.get(actor_id, {}).get(message_id)
        if message is None or not text:
            return
        listeners = self._subscriptions.get(actor_id)
        if listeners:
            delta = Delta(message.turn_id, message_id, message.length, text)
            for subscription in listeners:
                subscription.push(delta)
        message.pieces.append(text)
        message.length += len(text)

    def partial_text(self, actor_id: str, turn_id: str) -> str:
        """Return the text so far of a turn's message in progress, or ""."""
        for message in self._open_messages.get(actor_id, {}).values():
            if message.turn_id == turn_id:
                return message.text()
        return ""

    def _finish_message(self, actor_id: str, open_messages: dict[str, _PartialMessage], event: Event) -> None:
        finished = ended_ids(event)
        for message_id in [m for m, s in open_messages.items() if m in finished or s.turn_id in finished]:
            del open_messages[message_id]
        if not open_messages:
            self._open_messages.pop(actor_id, None)

    # --- ends -----------------------------------------------------------------------------------

    def wait_for_end(self, run_id: str) -> asyncio.Future[Event | None]:
        """Return a future for the event that ends a run, after its commit; None if the server drains
        before.

        Call this before checking if the run has ended, and `cancel_end_wait` when no longer waiting.
        """
        end: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()
        if self._draining:
            end.set_result(None)
        else:
            self._end_waiters.setdefault(run_id, []).append(end)
        return end

    def cancel_end_wait(self, run_id: str, end: asyncio.Future[Event | None]) -> None:
        """Cancel a future of `wait_for_end`."""
        waiting = self._end_waiters.get(run_id)
        if waiting is not None and end in waiting:
            waiting.remove(end)
            if not waiting:
                del self._end_waiters[run_id]

    def _resolve_end(self, run_id: str, events: list[Event]) -> None:
        for event in events:
            if event.emit.kind in RUN_ENDED:
                for end in self._end_waiters.pop(run_id, ()):
                    if not end.done():
                        end.set_result(event)

    def close(self, actor_id: str, reason: str) -> None:
        """Close all subscriptions to an actor."""
        for subscription in self._subscriptions.get(actor_id, ()):
            subscription.close(reason)

    def drain(self) -> None:
        """Close all subscriptions and waits because the server stops. New ones close at once."""
        self._draining = True
        for listeners in self._subscriptions.values():
            for subscription in listeners:
                subscription.close("draining")
        for waiting in self._end_waiters.values():
            for end in waiting:
                if not end.done():
                    end.set_result(None)
        self._end_waiters.clear()
