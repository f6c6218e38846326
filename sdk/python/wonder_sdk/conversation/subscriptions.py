"""Streams of conversations and runs that reconnect after a lost connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TypeAlias

import betterproto2

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.event_cursor import EventCursor, GapError, Item
from wonder_sdk.errors import NotFoundError, UnavailableError, WonderError
from wonder_sdk.transport.reconnect import Backoff, ReconnectPolicy

RunItem: TypeAlias = v1.RunEvent | v1.NodeProgress
"""An item of a run's stream."""


async def subscribe(
    stub: stubs.ConversationServiceStub,
    conversation_id: str,
    event_cursor: EventCursor,
    reconnect: ReconnectPolicy,
) -> AsyncIterator[Item | v1.CaughtUp]:
    """Yield the items of a conversation after the cursor, without end; see `Client.subscribe`."""
    backoff = Backoff(reconnect)
    reader = _ConversationReader(event_cursor, backoff)
    attached = False
    while True:
        call = stub.subscribe(v1.SubscribeRequest(attach=event_cursor.attach(conversation_id)))
        problem: WonderError = UnavailableError("The server ended the stream.")
        reader.wait_ms = 0
        try:
            async for response in call:
                attached = True
                if response.end is not None:
                    raise_if_deleted(response.end)
                    break
                for item in reader.items(response):
                    yield item
        except GapError as gap:
            problem = UnavailableError(f"The stream has a gap: {gap}.")
        except WonderError as error:
            problem = error
        finally:
            call.cancel()
        if not attached:
            raise problem
        await backoff.wait_after(problem, wait_ms=reader.wait_ms)


async def watch_run(
    stub: stubs.CoordinatorServiceStub,
    request: v1.WatchRunRequest,
    reconnect: ReconnectPolicy,
    on_connection: Callable[[WonderError | None], object] = lambda problem: None,
) -> AsyncGenerator[RunItem, None]:
    """Yield the items of a run until it has ended; see `Client.watch_run`."""
    backoff = Backoff(reconnect)
    reader = _RunReader(request.after_sequence, backoff)
    attached = is_lost = False
    while True:
        call = stub.watch_run(
            v1.WatchRunRequest(
                run_id=request.run_id,
                after_sequence=reader.cursor,
                include_progress=request.include_progress,
                group_events=True,
            )
        )
        problem: WonderError = UnavailableError("The server ended the stream.")
        reader.wait_ms = 0
        try:
            async for response in call:
                attached = True
                if is_lost:
                    is_lost = False
                    on_connection(None)
                if response.end is not None:
                    if response.end.reason is v1.StreamEndReason.COMPLETED:
                        return
                    break
                for item in reader.items(response):
                    yield item
        except WonderError as error:
            problem = error
        finally:
            call.cancel()
        if not attached:
            raise problem
        is_lost = True
        on_connection(problem)
        await backoff.wait_after(problem, wait_ms=reader.wait_ms)


def raise_if_deleted(end: v1.StreamEnd) -> None:
    """Raise NotFoundError if a stream ended because its conversation was deleted."""
    if end.reason is v1.StreamEndReason.DELETED:
        raise NotFoundError("The conversation was deleted.", reason=v1.ErrorReason.CONVERSATION_NOT_FOUND)


class _ConversationReader:
    """The state of a conversation's stream over all its connections.

    ``wait_ms`` is the delay before the reconnect that the server asked for.
    """

    def __init__(self, event_cursor: EventCursor, backoff: Backoff) -> None:
        self.wait_ms = 0
        self._event_cursor, self._backoff = event_cursor, backoff
        self._caught_up = False

    def items(self, response: v1.SubscribeResponse) -> Iterator[Item | v1.CaughtUp]:
        """Yield the new items of a response. Raises `GapError`."""
        match betterproto2.which_one_of(response, "item"):
            case "caught_up", v1.CaughtUp() as marker:
                self._backoff.reset()
                if not self._caught_up:
                    self._caught_up = True
                    yield marker
            case "draining", v1.StreamDraining(reconnect_after_ms=self.wait_ms):
                pass
            case _:
                for item in self._event_cursor.accept(response):
                    self._backoff.reset()
                    yield item


class _RunReader:
    """The state of a run's stream over all its connections.

    ``cursor`` is the sequence of the last event. ``wait_ms`` is the delay before the reconnect that the
    server asked for.
    """

    def __init__(self, cursor: int, backoff: Backoff) -> None:
        self.cursor = cursor
        self.wait_ms = 0
        self._backoff = backoff

    def items(self, response: v1.WatchRunResponse) -> Iterator[RunItem]:
        """Yield the new items of a response."""
        match betterproto2.which_one_of(response, "item"):
            case ("event", v1.RunEvent()) | ("events", v1.RunEventGroup()):
                for event in _events(response):
                    if event.sequence > self.cursor:
                        self.cursor = event.sequence
                        self._backoff.reset()
                        yield event
            case "progress", v1.NodeProgress() as progress:
                yield progress
            case "draining", v1.StreamDraining(reconnect_after_ms=self.wait_ms):
                pass
            case _:  # a heartbeat, or an item of a newer server
                pass


def _events(response: v1.WatchRunResponse) -> list[v1.RunEvent]:
    """Return the events of ``response``: one event or a group."""
    if response.events is not None:
        return response.events.events
    return [response.event] if response.event is not None else []
