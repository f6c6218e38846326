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

Beside its text, a message has parts: the model's reasoning and the arguments of its tool calls. The hub keeps
them like the text, and only readers that ask for their kinds get them. "Text" below includes them.

The end of a turn that is planned and not committed is announced with `hold_text`. Until the commit the hub
shows no more text of that turn, since the text so far is what the record will hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from wonder_server.actors.streaming.items import Delta, NodeProgress, Part, PartKind, ended_ids, size_bytes
from wonder_server.actors.streaming.partial_messages import PartialMessage
from wonder_server.actors.streaming.subscription import Subscription
from wonder_server.core import frozen
from wonder_server.core.coordinator.output.record import RUN_ENDED
from wonder_server.core.ids import shard_of
from wonder_server.ports.journal import Event

KEEP_ALIVE_AFTER_S = 15.0
MAX_PROGRESS_RUNS = 10_000
"""Maximum number of runs whose latest node progress is kept."""

_NODE_ENDS = frozenset({"node_completed", "node_failed", "node_cancelled"})


class StreamHub:
    """All subscriptions and all messages in progress, by actor."""

    def __init__(
        self, limit_items: int, limit_bytes: int, *, keep_alive_after_s: float = KEEP_ALIVE_AFTER_S
    ) -> None:
        """Build a hub. The limits are those of a reader's backlog."""
        self.keep_alive_after_s = keep_alive_after_s
        """Seconds without items after which an attached reader gets a `KeepAlive`."""
        self._limits = (limit_items, limit_bytes)
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._open_messages: dict[str, dict[str, PartialMessage]] = {}
        self._held: dict[str, dict[str, list[Callable[[], None]]]] = {}
        """Calls that wait, by actor and by turn with a planned end."""
        self._end_waiters: dict[str, list[asyncio.Future[Event | None]]] = {}
        self._node_progress: dict[str, dict[str, NodeProgress]] = {}
        self._draining = False

    def subscribe(
        self, actor_id: str, *, wants_progress: bool = False, kinds: Collection[PartKind] = ()
    ) -> tuple[Subscription, list[Delta]]:
        """Return a new subscription and the text so far of the messages in progress.

        ``kinds`` are the kinds of parts that the reader gets beside the text.
        """
        subscription = Subscription(*self._limits, wants_progress=wants_progress, kinds=kinds)
        if self._draining:
            subscription.close("draining")
        if wants_progress:
            for item in self._node_progress.get(actor_id, {}).values():
                subscription.push(item)
        self._subscriptions.setdefault(actor_id, []).append(subscription)
        partial_texts = [
            delta
            for message_id, message in self._open_messages.get(actor_id, {}).items()
            for delta in message.deltas(message_id, kinds)
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
        has_text = actor_id in self._open_messages or actor_id in self._held
        listeners = self._subscriptions.get(actor_id, ())
        node_progress = self._node_progress.get(actor_id)
        for event in events if listeners or has_text or node_progress is not None else ():
            if has_text:
                self._finish_text(actor_id, event)
            if node_progress and event.emit.kind in _NODE_ENDS:
                node_progress.pop(event.emit.value.id, None)
            if node_progress is not None and event.emit.kind in RUN_ENDED:
                self._node_progress.pop(actor_id, None)
            event_bytes = size_bytes(event) if listeners else 0
            for subscription in tuple(listeners):
                subscription.push(event, event_bytes)
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
        held = self._held_calls(actor_id, turn_id)
        if held is not None:
            held.append(partial(self.begin_message, actor_id, turn_id, message_id, attempt))
            return
        open_messages = self._open_messages.setdefault(actor_id, {})
        before = open_messages.get(message_id)
        if attempt <= 1:
            open_messages[message_id] = PartialMessage(turn_id)
            return
        # Without an entry, an earlier process may have streamed the message.
        message = PartialMessage(turn_id, attempt, attempt) if before is None else before.restarted(attempt)
        open_messages[message_id] = message
        for subscription in tuple(self._subscriptions.get(actor_id, ())):
            if message.attempt_of_parts if subscription.kinds else message.attempt:
                subscription.push(Delta(turn_id, message_id, 0, "", attempt))

    def append_text(self, actor_id: str, turn_id: str, message_id: str, text: str) -> None:
        """Add the next piece of the text of a message in progress."""
        held = self._held_calls(actor_id, turn_id)
        if held is not None:
            held.append(partial(self.append_text, actor_id, turn_id, message_id, text))
            return
        message = self._open_messages.get(actor_id, {}).get(message_id)
        if message is None or not text:
            return
        listeners = self._subscriptions.get(actor_id)
        if listeners:
            delta = Delta(turn_id, message_id, message.length, text)
            for subscription in listeners:
                subscription.push(delta)
        message.pieces.append(text)
        message.length += len(text)

    def append_part(self, actor_id: str, turn_id: str, message_id: str, part: Part, text: str) -> None:
        """Add the next piece of a part of a message in progress. The first piece of a part may be empty."""
        held = self._held_calls(actor_id, turn_id)
        if held is not None:
            held.append(partial(self.append_part, actor_id, turn_id, message_id, part, text))
            return
        message = self._open_messages.get(actor_id, {}).get(message_id)
        added = message.add_part(part, text) if message is not None else None
        if added is None:
            return
        known, offset = added
        delta: Delta | None = None
        for subscription in self._subscriptions.get(actor_id, ()):
            if part.kind in subscription.kinds:
                delta = delta or Delta(turn_id, message_id, offset, text, part=known)
                subscription.push(delta)

    def partial_texts(self, actor_id: str) -> dict[str, str]:
        """Return the texts so far of the messages in progress, by turn id."""
        messages = self._open_messages.get(actor_id, {}).values()
        return {message.turn_id: message.text() for message in messages if message.length}

    def hold_text(self, actor_id: str, turn_id: str) -> None:
        """Show no more text of a turn whose end is planned. Its published end drops the text that waits."""
        self._held.setdefault(actor_id, {}).setdefault(turn_id, [])

    def release_text(self, actor_id: str) -> None:
        """Show the text that waits: the planned ends of the actor's turns were not committed."""
        for calls in self._held.pop(actor_id, {}).values():
            for call in calls:
                call()

    def _held_calls(self, actor_id: str, turn_id: str) -> list[Callable[[], None]] | None:
        """Return the calls that wait for the end of a turn; None if its text is shown."""
        return self._held.get(actor_id, {}).get(turn_id) if self._held else None

    def _finish_text(self, actor_id: str, event: Event) -> None:
        finished = ended_ids(event)
        messages, held = self._open_messages.get(actor_id, {}), self._held.get(actor_id, {})
        for message_id in [m for m, s in messages.items() if m in finished or s.turn_id in finished]:
            del messages[message_id]
        for turn_id in finished & held.keys():
            del held[turn_id]
        if not messages:
            self._open_messages.pop(actor_id, None)
        if not held:
            self._held.pop(actor_id, None)

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

    def leave(self, shard: int) -> None:
        """Close all subscriptions and waits of a shard's actors, since another node owns it. Readers attach
        there again with their cursors."""
        for actor_id in [actor_id for actor_id in self._subscriptions if shard_of(actor_id) == shard]:
            self.close(actor_id, "moved")
        for actor_id in [actor_id for actor_id in self._end_waiters if shard_of(actor_id) == shard]:
            for end in self._end_waiters.pop(actor_id):
                if not end.done():
                    end.set_result(None)
        for table in (self._open_messages, self._held, self._node_progress):
            for actor_id in [actor_id for actor_id in table if shard_of(actor_id) == shard]:
                del table[actor_id]

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
