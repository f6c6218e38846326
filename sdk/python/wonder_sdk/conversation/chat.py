"""`Chat`: a bidirectional stream of one conversation that survives lost connections.

One task (`Chat._run`) reads the stream. After a lost connection it attaches after the last received event. It
also repeats the unanswered requests with their ``request_id``, so that none starts twice. It passes new items
to the iterators: each `Reply` gets the items of its turn, each `Events` gets all items.
"""

from __future__ import annotations

import asyncio
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeAlias

import betterproto2
import grpc.aio

from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.event_cursor import EventCursor, GapError, Item, ended_turn
from wonder_sdk.conversation.handled_cursor import HandledCursor
from wonder_sdk.conversation.reply import Events, Reply, quiet_future
from wonder_sdk.conversation.subscriptions import raise_if_deleted
from wonder_sdk.errors import (
    CallCancelledError,
    FailedPreconditionError,
    RequestError,
    UnavailableError,
    WonderError,
    from_fault,
)
from wonder_sdk.json_types import JsonObject
from wonder_sdk.transport.encoding import checked
from wonder_sdk.transport.reconnect import Backoff, ReconnectPolicy
from wonder_sdk.transport.stream_queue import StreamQueue
from wonder_sdk.values import PartLike, content_parts, to_struct

OpenStream: TypeAlias = Callable[
    [AsyncIterator[v1.ConverseRequest]],
    grpc.aio.StreamStreamCall[v1.ConverseRequest, v1.ConverseResponse],
]
WatchEvents: TypeAlias = Callable[[int], AsyncIterator[Item | v1.CaughtUp]]

# Maximum of unread items of an `Events` iterator. Above it the chat stops reading, and flow control stops the
# server.
_BACKLOG = 10_000
# Maximum wait on exit with unanswered requests.
_FLUSH_SECONDS = 5.0
# Maximum wait on exit without unanswered requests or without a connection.
_DETACH_SECONDS = 1.0


class Chat:
    """A connection to a conversation. `Client.converse` returns it, for use with ``async with``.

    The exit detaches; active turns continue. The chat reads only the response to ``attach`` before the first
    call of `events`, `send` or `cancel`. If that is `events`, it yields every item after the cursor.
    """

    conversation: v1.Conversation
    """The conversation as of the last attach."""

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
        # Requests to send; None while the chat is not attached.
        self._outgoing: StreamQueue[v1.ConverseRequest] | None = None
        self._disconnected_at: float | None = None
        self._pending: dict[str, _PendingRequest] = {}
        self._all_acknowledged = asyncio.Event()
        self._all_acknowledged.set()
        # Weak references: a program can drop a reply, as by `break`, without closing it.
        self._replies: weakref.WeakValueDictionary[str, Reply] = weakref.WeakValueDictionary()
        self._by_turn: weakref.WeakValueDictionary[str, Reply] = weakref.WeakValueDictionary()
        self._watchers: weakref.WeakSet[Events] = weakref.WeakSet()
        # Items of turns that may belong to a reply, until the `sent` response names the reply's turn.
        self._unclaimed: dict[str, list[Item]] = {}
        self._replay_tasks: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._problem: WonderError | None = None
        self._closing = False

    @property
    def cursor(self) -> int:
        """Sequence of the last event that the program has handled. Attach after it to continue.

        The program has handled an event when it requests the iterator's next item. During the body of a loop,
        the current event is therefore not handled: a program that stores the cursor and crashes receives that
        event again and loses none.

        Events that no iterator receives count as handled. The events of a dropped reply count as handled from
        the next `send` or `events`. While the program iterates `events`, the cursor does not wait for replies
        that the program does not iterate.
        """
        return self._handled_cursor.cursor(each for items in self._unclaimed.values() for each in items)

    @property
    def disconnected_seconds(self) -> float:
        """Seconds since the connection was lost; 0.0 while connected."""
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
        content: str = "",
        *,
        parts: Sequence[PartLike] = (),
        agent: str = "",
        user: str = "",
        reply_to: str = "",
        metadata: JsonObject | None = None,
        overrides: v1.TurnOverrides | None = None,
        model: str = "",
        request_id: str = "",
        check: bool = True,
    ) -> Reply:
        """Send a message without waiting. The program may iterate the `Reply` or drop it.

        With ``parts`` (texts and uploaded files) the ``content`` is a first text part.

        ``agent`` is the id or name of the agent that answers, ``user`` the id of the speaker, ``reply_to``
        the id of a message. ``overrides`` are settings for this turn alone: ``model_profile_id``,
        ``tool_choice``, ``instructions``; ``model`` is short for the
        first. An explicit ``request_id`` makes the message idempotent beyond this
        chat: a second message with it starts no turn, and its reply yields the first message's turn.

        The loop over the reply raises TurnFailedError after a failed turn, and TurnCancelledError after a
        turn that another client cancelled. With ``check=False`` it only ends; ``reply.turn`` has the outcome.
        Raises RequestError for an invalid value.
        """
        self._check_usable()
        self._handled_cursor.on_program_continued()
        if model:
            if overrides is not None and overrides.model_profile_id not in ("", None, model):
                raise RequestError("Pass model or overrides.model_profile_id, not both.", "model")
            overrides = replace(overrides or v1.TurnOverrides(), model_profile_id=model)
        send = v1.ConverseSend(
            content="" if parts else content,
            parts=content_parts([*([content] if content else []), *parts] if parts else []),
            agent_id=agent,
            user_id=user,
            reply_to_message_id=reply_to,
            metadata=to_struct(metadata or None, "metadata"),
            overrides=overrides,
            request_id=request_id or _new_request_id(),
        )
        started = self._submit(send.request_id, v1.ConverseRequest(send=send))
        reply = Reply(
            send.request_id, started, self.cancel, self._cancel_or_discard, self._handled_cursor, check=check
        )
        self._replies[send.request_id] = reply
        return reply

    async def cancel(self, turn_id: str, *, request_id: str = "") -> None:
        """Cancel a turn. Return when the server has committed the cancellation.

        A turn that has ended remains as it is, and this returns: the turn can end while the request is on its
        way. Raises NotFoundError.
        """
        self._check_usable()
        if (reply := self._by_turn.get(turn_id)) is not None:
            reply.is_cancelled_here = True
        cancel = v1.ConverseCancel(turn_id=turn_id, request_id=request_id or _new_request_id())
        try:
            await asyncio.shield(self._submit(cancel.request_id, v1.ConverseRequest(cancel=cancel)))
        except FailedPreconditionError as problem:
            if problem.reason is not v1.ErrorReason.TURN_NOT_ACTIVE:
                raise

    def _cancel_or_discard(self, reply: Reply) -> None:
        """Cancel the turn of a reply, or discard its unsent message; see `Reply.give_up`."""
        if self._problem is not None or self._closing:
            return
        pending = self._pending.get(reply.request_id)
        if pending is None:
            if reply.turn_id and reply.turn is None:
                self._cancel_soon(reply.turn_id)
        elif self._outgoing is not None:  # sent: cancel the turn that it starts
            pending.is_awaited = False
            pending.answer.add_done_callback(self._cancel_when_started)
        else:
            self._on_refused(
                reply.request_id,
                CallCancelledError("The message was discarded unsent."),
            )

    def _cancel_when_started(self, started: asyncio.Future[str]) -> None:
        if not started.cancelled() and started.exception() is None:
            self._cancel_soon(started.result())

    def _cancel_soon(self, turn_id: str) -> None:
        if not self._closing:
            cancel = v1.ConverseCancel(turn_id=turn_id, request_id=_new_request_id())
            self._submit(cancel.request_id, v1.ConverseRequest(cancel=cancel))
            self._pending[cancel.request_id].is_awaited = False

    def events(self) -> Events:
        """Return an iterator of all new items of the conversation, of every turn and user.

        It yields one `v1.CaughtUp` after the last stored event. Before the first `send` or `cancel`, the
        iterator starts after the cursor.
        """
        self._check_usable()
        self._handled_cursor.on_program_continued()
        events = Events(self._handled_cursor)
        self._watchers.add(events)
        self._read_requested.set()
        return events

    def _submit(self, request_id: str, request: v1.ConverseRequest) -> asyncio.Future[str]:
        if request_id in self._pending:
            raise ValueError(f"request_id {request_id!r} belongs to an unanswered request. Use another one.")
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
            raise RuntimeError("The chat is not open. Use it inside `async with client.converse(...)`.")

    async def _run(self) -> None:
        """Attach and read, and reconnect until the chat ends."""
        try:
            while True:
                try:
                    wait_ms = await self._connection()
                    problem: WonderError = UnavailableError("The server ended the stream.")
                except GapError as gap:
                    wait_ms, problem = 0, UnavailableError(f"The stream has a gap: {gap}.")
                except WonderError as error:
                    wait_ms, problem = 0, error
                if self._closing:
                    return
                if not self._attached.done():
                    raise problem
                await self._backoff.wait_after(problem, wait_ms=wait_ms)
        except WonderError as problem:
            self._fail(problem)
        except Exception as bug:
            self._fail(WonderError(f"The SDK has a bug: {bug!r}. Report it."))
            raise

    async def _connection(self) -> int:
        """Run one stream from ``attach`` to its end. Return the delay before the reconnect, in ms."""
        outgoing: StreamQueue[v1.ConverseRequest] = StreamQueue()
        call = self._open(self._send_requests(outgoing))
        wait_ms = 0
        try:
            async for response in call:
                match betterproto2.which_one_of(response, "item"):
                    case "attached", v1.ConverseAttached() as attached:
                        self._on_attached(response, attached, outgoing)
                        await self._read_requested.wait()
                    case "draining", v1.StreamDraining(reconnect_after_ms=wait_ms):
                        pass
                    case "end", v1.StreamEnd() as end:
                        raise_if_deleted(end)
                        return wait_ms
                    case _:
                        self._on_response(response)
                await self._wait_for_readers()
            return wait_ms
        finally:
            self._outgoing = None
            self._disconnected_at = self._disconnected_at or time.monotonic()
            outgoing.end()
            call.cancel()

    def _on_response(self, response: v1.ConverseResponse) -> None:
        """Handle an acknowledgement, or an item of the conversation. Raises `GapError`."""
        match betterproto2.which_one_of(response, "item"):
            case "sent", v1.ConverseSent() as sent:
                self._on_sent(sent)
            case "cancelled", v1.ConverseCancelled(request_id=request_id, turn_id=turn_id):
                self._on_acknowledged(request_id, turn_id)
            case "refused", v1.ConverseRefused(request_id=request_id, error=v1.Fault() as fault):
                self._on_refused(request_id, from_fault(fault))
            case "caught_up", v1.CaughtUp() as caught_up:
                self._backoff.reset()
                self._on_caught_up(caught_up)
            case _:
                for item in self._event_cursor.accept(response):
                    self._backoff.reset()
                    self._route(item)
                    if isinstance(item, v1.Event):
                        self._handled_cursor.record_arrival(item.sequence)

    async def _send_requests(
        self, outgoing: StreamQueue[v1.ConverseRequest]
    ) -> AsyncIterator[v1.ConverseRequest]:
        """Yield the requests of one stream: ``attach``, then those that arrive in ``outgoing``."""
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
            else:  # an earlier request with this request_id started the turn
                task = asyncio.create_task(self._replay_turn(weakref.ref(reply), sent))
                self._replay_tasks.add(task)
                task.add_done_callback(self._replay_tasks.discard)
        self._on_acknowledged(sent.request_id, sent.turn_id)

    async def _replay_turn(self, reply: weakref.ref[Reply], sent: v1.ConverseSent) -> None:
        """Deliver the stored events of a turn that started before this chat's cursor."""
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
        if not request_id:  # without a request_id, the error concerns the stream
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
        self._fail(CallCancelledError("The chat is closed."), left=True)

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
