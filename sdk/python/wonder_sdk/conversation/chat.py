"""One conversation, live: `Chat` sends messages and shows what happens, over connections that may break.

One task reads the stream (`Chat._run`); it attaches again after the last event it has seen, says again
what was not answered (by the same ``request_id``, so that nothing starts twice), and hands on what is
new to its iterators: each `Reply` gets the items of its turn, each `Events` gets all.
"""

from __future__ import annotations

import asyncio
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

import betterproto2

from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.event_cursor import EventCursor, GapError, Item, ended_turn
from wonder_sdk.conversation.handled_cursor import HandledCursor
from wonder_sdk.conversation.reply import Events, Reply, quiet_future
from wonder_sdk.errors import CallCancelledError, NotFoundError, UnavailableError, WonderError, from_fault
from wonder_sdk.transport.encoding import checked
from wonder_sdk.transport.reconnect import Backoff, ReconnectPolicy
from wonder_sdk.transport.stream_queue import StreamQueue
from wonder_sdk.values import to_struct

OpenStream: TypeAlias = Callable[[AsyncIterator[v1.ConverseRequest]], Any]
WatchEvents: TypeAlias = Callable[[int], AsyncIterator[Item | v1.CaughtUp]]

# How far `Events` may lag before reading pauses, and the server is left to slow down.
_BACKLOG = 10_000
# How long leaving waits for the server to take what was sent last …
_FLUSH_SECONDS = 5.0
# … and how long where there is nothing to take, or no server: only for the goodbye.
_DETACH_SECONDS = 1.0


class Chat:
    """A conversation that this client is attached to; made by `Client.converse`, used with ``async with``.

    Leaving detaches; turns go on. Nothing but the answer to ``attach`` is read before the first call of
    `events`, `send` or `cancel`, so that an `events` called first sees everything after the cursor.
    """

    conversation: v1.Conversation
    """The conversation as it was when the client last attached."""

    def __init__(
        self,
        conversation_id: str,
        open_: OpenStream,
        watch: WatchEvents,
        event_cursor: EventCursor,
        reconnect: ReconnectPolicy,
    ):
        self.conversation_id = conversation_id
        self.conversation = v1.Conversation(id=conversation_id)
        self._open, self._watch, self._event_cursor = open_, watch, event_cursor
        self._handled_cursor = HandledCursor(event_cursor.cursor)
        self._backoff = Backoff(reconnect)
        self._attached: asyncio.Future[None] = quiet_future()
        self._read_requested = asyncio.Event()
        self._caught_up = False
        # Where to put what is said; None while not attached.
        self._outgoing: StreamQueue[v1.ConverseRequest] | None = None
        self._disconnected_at: float | None = None
        self._pending: dict[str, _PendingRequest] = {}
        self._all_acknowledged = asyncio.Event()
        self._all_acknowledged.set()
        # Weak references: a program can drop a reply, as by `break`, without closing it.
        self._replies: weakref.WeakValueDictionary[str, Reply] = weakref.WeakValueDictionary()
        self._by_turn: weakref.WeakValueDictionary[str, Reply] = weakref.WeakValueDictionary()
        self._watchers: weakref.WeakSet[Events] = weakref.WeakSet()
        # Items of turns that may turn out to answer a message whose `sent` has not come yet.
        self._unclaimed: dict[str, list[Item]] = {}
        self._replay_tasks: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._problem: WonderError | None = None
        self._closing = False

    @property
    def cursor(self) -> int:
        """Sequence of the last event that the program has handled: attach after it to go on from here.

        An event is handled when the next item of the iterator that gave it is asked for. So while a loop's
        body runs, its event is not: who stores the cursor and crashes gets that event again, and loses none.
        Events that no iterator of this chat gets count as handled; those of a reply that was dropped do with
        the next `send` or `events`. Where `events` is iterated, replies that are not do not count.
        """
        return self._handled_cursor.cursor(each for items in self._unclaimed.values() for each in items)

    @property
    def disconnected_seconds(self) -> float:
        """For how long a lost connection has been sought again; 0.0 while there is one."""
        lost_at = self._disconnected_at
        return 0.0 if lost_at is None else time.monotonic() - lost_at

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._run(), name=f"wonder chat {self.conversation_id}")
        try:
            await asyncio.shield(self._attached)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._reader is not None and not self._reader.done():
                async with asyncio.timeout(self._close_timeout()):
                    await self._detach(self._reader)
        except TimeoutError:
            pass
        finally:
            await self._stop()

    def send(
        self,
        content: str,
        *,
        agent: str = "",
        user: str = "",
        reply_to: str = "",
        metadata: dict[str, Any] | None = None,
        request_id: str = "",
        check: bool = True,
    ) -> Reply:
        """Say something. It is on its way at once; the `Reply` may be iterated, or dropped.

        ``agent`` (id or name) is who is to answer, ``user`` who speaks, ``reply_to`` the id of a
        message. A ``request_id`` of your own makes the message idempotent beyond this chat: sent again
        with it, it starts nothing, and the reply shows the turn that it started at first.

        A turn that fails raises TurnFailedError at the end of the loop over the reply, one that somebody else
        cancels TurnCancelledError; with ``check=False`` the loop just ends, and ``reply.turn`` says how.
        Raises RequestError for a value that cannot be sent.
        """
        self._check_usable()
        self._handled_cursor.on_program_continued()
        send = v1.ConverseSend(
            content=content,
            agent_id=agent,
            user_id=user,
            reply_to_message_id=reply_to,
            metadata=to_struct(metadata or None, "metadata"),
            request_id=request_id or _new_request_id(),
        )
        started = self._submit(send.request_id, v1.ConverseRequest(send=send))
        reply = Reply(
            send.request_id, started, self.cancel, self._cancel_or_discard, self._handled_cursor, check=check
        )
        self._replies[send.request_id] = reply
        return reply

    async def cancel(self, turn_id: str, *, request_id: str = "") -> None:
        """Cancel a turn, and wait until that is on the server's disk.

        Raises FailedPreconditionError (TURN_NOT_ACTIVE) when it has ended, NotFoundError.
        """
        self._check_usable()
        if (reply := self._by_turn.get(turn_id)) is not None:
            reply.is_cancelled_here = True
        cancel = v1.ConverseCancel(turn_id=turn_id, request_id=request_id or _new_request_id())
        await asyncio.shield(self._submit(cancel.request_id, v1.ConverseRequest(cancel=cancel)))

    def _cancel_or_discard(self, reply: Reply) -> None:
        """See `Reply.give_up`."""
        if self._problem is not None or self._closing:
            return
        pending = self._pending.get(reply.request_id)
        if pending is None:
            if reply.turn_id and reply.turn is None:
                self._cancel_soon(reply.turn_id)
        elif self._outgoing is not None:  # on its way: the turn that it starts is not wanted
            pending.is_awaited = False
            pending.answer.add_done_callback(self._cancel_when_started)
        else:
            self._on_refused(reply.request_id, CallCancelledError("The message was given up unsent."))

    def _cancel_when_started(self, started: asyncio.Future[str]) -> None:
        if not started.cancelled() and started.exception() is None:
            self._cancel_soon(started.result())

    def _cancel_soon(self, turn_id: str) -> None:
        if not self._closing:
            cancel = v1.ConverseCancel(turn_id=turn_id, request_id=_new_request_id())
            self._submit(cancel.request_id, v1.ConverseRequest(cancel=cancel))
            self._pending[cancel.request_id].is_awaited = False

    def events(self) -> Events:
        """Everything on the conversation from here on, of all turns and people, and a `v1.CaughtUp` once
        what was before has come. Called before the first `send`: everything after the cursor.
        """
        self._check_usable()
        self._handled_cursor.on_program_continued()
        events = Events(self._handled_cursor)
        self._watchers.add(events)
        self._read_requested.set()
        return events

    def _submit(self, request_id: str, request: v1.ConverseRequest) -> asyncio.Future[str]:
        if request_id in self._pending:
            raise ValueError(f"request_id {request_id!r} is still waiting for its answer")
        checked(request, v1.ConverseRequest)
        pending = self._pending[request_id] = _PendingRequest(request)
        self._all_acknowledged.clear()
        self._read_requested.set()
        if self._outgoing is not None:
            self._outgoing.put(request)
        return pending.answer

    def _check_usable(self) -> None:
        if self._problem is not None:
            raise self._problem
        if self._reader is None or self._closing:
            raise RuntimeError("use a chat inside `async with client.converse(...)`")

    async def _run(self) -> None:
        """Attach, read, and attach again, until it is over."""
        try:
            while True:
                try:
                    wait_ms = await self._connection()
                    problem: WonderError = UnavailableError("The server ended the stream.")
                except GapError as gap:
                    wait_ms, problem = 0, UnavailableError(f"The stream has a gap: {gap}.")
                except WonderError as refusal:
                    wait_ms, problem = 0, refusal
                if self._closing:
                    return
                if not self._attached.done():
                    raise problem
                await self._backoff.wait_after(problem, wait_ms=wait_ms)
        except WonderError as problem:
            self._fail(problem)
        except Exception as bug:
            self._fail(WonderError(f"The SDK has a fault: {bug!r}."))
            raise

    async def _connection(self) -> int:
        """One stream, from ``attach`` to its end. Returns after how many ms to connect again."""
        outgoing: StreamQueue[v1.ConverseRequest] = StreamQueue()
        call = self._open(self._send_requests(outgoing))
        wait_ms = 0
        try:
            async for response in call:
                match betterproto2.which_one_of(response, "item"):
                    case "attached", v1.ConverseAttached() as attached:
                        self._on_attached(response, attached, outgoing)
                        await self._read_requested.wait()
                    case "sent", v1.ConverseSent() as sent:
                        self._on_sent(sent)
                    case "cancelled", v1.ConverseCancelled(request_id=request_id, turn_id=turn_id):
                        self._on_acknowledged(request_id, turn_id)
                    case "refused", v1.ConverseRefused(request_id=request_id, error=v1.Fault() as fault):
                        self._on_refused(request_id, from_fault(fault))
                    case "draining", v1.StreamDraining(reconnect_after_ms=wait_ms):
                        pass
                    case "end", v1.StreamEnd(reason=v1.StreamEndReason.DELETED):
                        raise NotFoundError(
                            "The conversation was deleted.", reason=v1.ErrorReason.CONVERSATION_NOT_FOUND
                        )
                    case "end", _:
                        return wait_ms
                    case "caught_up", v1.CaughtUp() as caught_up:
                        self._backoff.reset()
                        self._on_caught_up(caught_up)
                    case _:
                        for item in self._event_cursor.accept(response):
                            self._backoff.reset()
                            self._route(item)
                            if isinstance(item, v1.Event):
                                self._handled_cursor.record_arrival(item.sequence)
                await self._wait_for_readers()
            return wait_ms
        finally:
            self._outgoing = None
            self._disconnected_at = self._disconnected_at or time.monotonic()
            outgoing.end()
            call.cancel()

    async def _send_requests(
        self, outgoing: StreamQueue[v1.ConverseRequest]
    ) -> AsyncIterator[v1.ConverseRequest]:
        """This side of one stream: ``attach``, and once `_on_attached` filled it, the mailbox."""
        yield v1.ConverseRequest(attach=self._event_cursor.attach(self.conversation_id))
        while True:
            try:
                request = await outgoing.get()
            except StopAsyncIteration:
                return
            yield request

    def _on_attached(
        self,
        response: v1.ConverseResponse,
        attached: v1.ConverseAttached,
        outgoing: StreamQueue[v1.ConverseRequest],
    ) -> None:
        for _ in self._event_cursor.accept(response):
            pass
        self._handled_cursor.record_arrival(self._event_cursor.cursor)
        if attached.conversation:
            self.conversation = attached.conversation
        for pending in self._pending.values():
            outgoing.put(pending.request)
        self._outgoing, self._disconnected_at = outgoing, None
        if not self._attached.done():
            self._attached.set_result(None)

    def _on_caught_up(self, caught_up: v1.CaughtUp) -> None:
        if not self._caught_up:
            self._caught_up = True
            for events in list(self._watchers):
                events.put(caught_up)

    def _on_sent(self, sent: v1.ConverseSent) -> None:
        reply = self._replies.pop(sent.request_id, None)
        if reply is not None and not reply.turn_id:
            reply.turn_id = sent.turn_id
            missed = self._unclaimed.pop(sent.turn_id, None)
            if missed is not None or sent.sequence > self._event_cursor.cursor:
                self._by_turn[sent.turn_id] = reply
                for item in missed or ():
                    self._deliver(reply, item)
            else:  # an old turn: this request_id was used before
                task = asyncio.create_task(self._replay_turn(weakref.ref(reply), sent))
                self._replay_tasks.add(task)
                task.add_done_callback(self._replay_tasks.discard)
        self._on_acknowledged(sent.request_id, sent.turn_id)

    async def _replay_turn(self, reply: weakref.ref[Reply], sent: v1.ConverseSent) -> None:
        """Show a turn that began before this chat's cursor, from the record."""
        try:
            async for item in self._watch(sent.sequence - 1):
                target = reply()
                if target is None:
                    return
                if not isinstance(item, v1.CaughtUp) and item.turn_id == sent.turn_id:
                    self._deliver(target, item)
                    if ended_turn(item):
                        return
        except WonderError as problem:
            if (target := reply()) is not None:
                target.queue.end(problem)

    def _on_refused(self, request_id: str, problem: WonderError) -> None:
        if not request_id:  # not known whose it is, so everybody's
            raise problem
        if (reply := self._replies.pop(request_id, None)) is not None:
            reply.queue.end(problem)
        self._on_acknowledged(request_id, problem)

    def _on_acknowledged(self, request_id: str, answer: str | WonderError) -> None:
        ask = self._pending.pop(request_id, None)
        if ask is not None and not ask.answer.done():
            if isinstance(answer, WonderError):
                ask.answer.set_exception(answer)
            else:
                ask.answer.set_result(answer)
        if not self._pending:
            self._unclaimed.clear()
            self._all_acknowledged.set()

    def _route(self, item: Item) -> None:
        for events in list(self._watchers):
            events.put(item)
        turn_id = item.turn_id
        if not turn_id:
            return
        if (reply := self._by_turn.get(turn_id)) is not None:
            self._deliver(reply, item)
        elif self._replies:
            self._unclaimed.setdefault(turn_id, []).append(item)

    def _deliver(self, reply: Reply, item: Item) -> None:
        reply.put(item)
        if ended_turn(item):
            self._by_turn.pop(reply.turn_id, None)

    async def _wait_for_readers(self) -> None:
        """Wait while an `Events` iterator has more than `_BACKLOG` unread items."""
        for events in list(self._watchers):
            while len(events.queue) > _BACKLOG and not self._closing:
                events.has_capacity.clear()
                await events.has_capacity.wait()

    def _close_timeout(self) -> float:
        is_awaited = any(ask.is_awaited for ask in self._pending.values())
        return _FLUSH_SECONDS if is_awaited and self._outgoing is not None else _DETACH_SECONDS

    async def _detach(self, reader: asyncio.Task[None]) -> None:
        acknowledged = asyncio.create_task(self._all_acknowledged.wait())
        try:
            await asyncio.wait({acknowledged, reader}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            acknowledged.cancel()
        self._closing = True
        self._read_requested.set()
        for events in list(self._watchers):
            events.has_capacity.set()
        if self._outgoing is not None:
            self._outgoing.put(v1.ConverseRequest(detach=v1.ConverseDetach()))
            await asyncio.wait({reader})

    async def _stop(self) -> None:
        self._closing = True
        tasks = [task for task in (self._reader, *self._replay_tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail(CallCancelledError("The chat was left."), left=True)

    def _fail(self, problem: WonderError, *, left: bool = False) -> None:
        """End all iterators and pending requests with ``problem``."""
        if self._problem is None and not left:
            self._problem = problem
        if not self._attached.done():
            self._attached.set_exception(problem)
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(problem)
        self._pending.clear()
        self._all_acknowledged.set()
        for reply in {*self._replies.values(), *self._by_turn.values()}:
            reply.queue.end(problem)
        for events in list(self._watchers):
            events.queue.end(None if left else problem)


class _PendingRequest:
    """A sent request without an answer."""

    def __init__(self, request: v1.ConverseRequest) -> None:
        self.request = request
        self.answer: asyncio.Future[str] = quiet_future()
        self.is_awaited = True
        """True if leaving the chat waits for the answer."""


def _new_request_id() -> str:
    return f"req-{uuid.uuid4().hex}"
