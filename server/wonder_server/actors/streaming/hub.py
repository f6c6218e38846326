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

from wonder_server.actors.streaming.sizes import text_bytes
from wonder_server.core import frozen
from wonder_server.core.coordinator.record import RUN_ENDED
from wonder_server.ports.journal import Event

MAX_LAG_BYTES = 256 * 1024
"""As much may wait for a reader for as long as it likes, and as much is handed to it at once."""
MAX_LAG_S = 2.0
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
class KeepAlive:
    """Nothing has happened for a while."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The last item of a subscription: why it ended: ``slow``, ``draining``, ``detached`` or ``ended``."""

    reason: str


Item = Event | Delta | Reply | NodeProgress | KeepAlive | Closed


@dataclass(slots=True)
class _PartialMessage:
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
        """Whether there is something to take."""
        return bool(self._items)

    def take(self) -> deque[Item]:
        """What has come since the last time, no more than about `LAG_BYTES` of it."""
        if self._lag_timer is not None:
            self._lag_timer.cancel()
            self._lag_timer = None
        if self._bytes > self._max_lag_bytes:
            return self._take_some()
        items, self._items, self._bytes = self._items, deque(), 0
        return items

    def wait(self) -> asyncio.Future[None]:
        """Done when there is something to take. One reader at a time."""
        self._waiter = self._loop.create_future()
        if self._items:
            self._waiter.set_result(None)
        return self._waiter

    def push(self, item: Item, size_bytes: int | None = None) -> None:
        """Queue an item; merge or close if the reader is too slow. ``weight``: its bytes, if known."""
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
        """Say why and take nothing more. A slow reader's backlog is dropped: it resumes by cursor."""
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
        """Past a bound: the reader has a moment if it is the lower one."""
        if len(self._items) > self._limit_items or self._bytes > self._limit_bytes:
            self._shed_backlog(self._limit_bytes)
        elif self._lag_timer is None:
            self._lag_timer = self._loop.call_later(MAX_LAG_S, self._shed_backlog, self._max_lag_bytes)

    def _shed_backlog(self, limit_bytes: int) -> None:
        """Leave the progress out, and close if that does not help."""
        self._lag_timer = None
        remaining: deque[Item] = deque(item for item in self._items if not isinstance(item, NodeProgress))
        if len(remaining) == len(self._items):
            self.close("slow")
            return
        self._items, self._bytes = remaining, sum(map(_size_bytes, remaining))
        if len(remaining) > self._limit_items or self._bytes > limit_bytes:
            self.close("slow")

    def _merge(self, delta: Delta) -> bool:
        """Append to the last queued piece of the same message, once the reader lags."""
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
    """The message, and the turn, that ``event`` ends: nothing more is said of them."""
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
"""Where nearly all of an event's text stands, by its kind; of the others all is looked through."""


def _size_bytes(item: Item) -> int:
    """About how many bytes an item holds."""
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
"""Of so many runs it is kept what their nodes do."""

_NODE_ENDS = frozenset({"node_completed", "node_failed", "node_cancelled"})


class StreamHub:
    """All subscriptions and all messages being spoken, by actor."""

    def __init__(self, limit_items: int, limit_bytes: int) -> None:
        self._limits = (limit_items, limit_bytes)
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._open_messages: dict[str, dict[str, _PartialMessage]] = {}
        self._end_waiters: dict[str, list[asyncio.Future[Event | None]]] = {}
        self._node_progress: dict[str, dict[str, NodeProgress]] = {}
        self._draining = False

    def subscribe(self, actor_id: str, *, wants_progress: bool = False) -> tuple[Subscription, list[Delta]]:
        """A new subscription, and the text so far of what is being spoken now."""
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
        """Open subscriptions."""
        return sum(len(listeners) for listeners in self._subscriptions.values())

    # --- what is said ---------------------------------------------------------------------------

    def publish(self, actor_id: str, events: list[Event]) -> None:
        """Show durable events, in order; those that close a message end its text."""
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
        """Show what a node of a run does to those who asked for that."""
        if getattr(item.item, "status", "running") == "running":
            if getattr(item.item, "output", ""):
                latest = replace(item, item=frozen.replace(item.item, output=""))  # that may be much
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
        """A model starts to speak under ``message_id``; from attempt 2 on, what it said before is void.

        Where it is known that nothing was said before, there is nothing to announce.
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
        """The next piece of a message that has begun."""
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
        """What a turn's message has said so far, if one is being spoken."""
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
        """The event that ends a run, once it is on disk; None if the server goes away before.

        Ask before you look whether it has ended already, and `forget_end` when you no longer wait.
        """
        end: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()
        if self._draining:
            end.set_result(None)
        else:
            self._end_waiters.setdefault(run_id, []).append(end)
        return end

    def cancel_end_wait(self, run_id: str, end: asyncio.Future[Event | None]) -> None:
        """Nobody waits for this one any more."""
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
        """End every subscription to one actor."""
        for subscription in self._subscriptions.get(actor_id, ()):
            subscription.close(reason)

    def drain(self) -> None:
        """Tell every reader that the server is going away; new ones are told at once."""
        self._draining = True
        for listeners in self._subscriptions.values():
            for subscription in listeners:
                subscription.close("draining")
        for waiting in self._end_waiters.values():
            for end in waiting:
                if not end.done():
                    end.set_result(None)
        self._end_waiters.clear()
