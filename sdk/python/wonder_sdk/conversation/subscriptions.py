"""Streams for those who only watch, taken up again where they broke off."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
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
    """Everything that happens on a conversation after ``seen``, without end; see `Client.subscribe`."""
    backoff = Backoff(reconnect)
    attached = caught_up = False
    while True:
        call = stub.subscribe(v1.SubscribeRequest(attach=event_cursor.attach(conversation_id)))
        problem: WonderError = UnavailableError("The server ended the stream.")
        wait_ms = 0
        try:
            async for response in call:
                attached = True
                match betterproto2.which_one_of(response, "item"):
                    case "caught_up", v1.CaughtUp() as marker:
                        backoff.reset()
                        if not caught_up:
                            caught_up = True
                            yield marker
                    case "draining", v1.StreamDraining(reconnect_after_ms=wait_ms):
                        pass
                    case "end", v1.StreamEnd(reason=v1.StreamEndReason.DELETED):
                        raise NotFoundError(
                            "The conversation was deleted.", reason=v1.ErrorReason.CONVERSATION_NOT_FOUND
                        )
                    case "end", _:
                        break
                    case _:
                        for item in event_cursor.accept(response):
                            backoff.reset()
                            yield item
        except GapError as gap:
            problem = UnavailableError(f"The stream has a gap: {gap}.")
        except WonderError as refusal:
            problem = refusal
        finally:
            call.cancel()
        if not attached:
            raise problem
        await backoff.wait_after(problem, wait_ms=wait_ms)


async def watch_run(
    stub: stubs.CoordinatorServiceStub,
    request: v1.WatchRunRequest,
    reconnect: ReconnectPolicy,
    on_connection: Callable[[WonderError | None], object] = lambda problem: None,
) -> AsyncGenerator[RunItem, None]:
    """Yield the items of a run until it has ended; see `Client.watch_run`."""
    backoff = Backoff(reconnect)
    cursor, attached, is_lost = request.after_sequence, False, False
    while True:
        call = stub.watch_run(
            v1.WatchRunRequest(
                run_id=request.run_id,
                after_sequence=cursor,
                include_progress=request.include_progress,
                group_events=True,
            )
        )
        problem: WonderError = UnavailableError("The server ended the stream.")
        wait_ms = 0
        try:
            async for response in call:
                attached = True
                if is_lost:
                    is_lost = False
                    on_connection(None)
                match betterproto2.which_one_of(response, "item"):
                    case ("event", v1.RunEvent()) | ("events", v1.RunEventGroup()):
                        for event in _events(response):
                            if event.sequence > cursor:
                                cursor = event.sequence
                                backoff.reset()
                                yield event
                    case "progress", v1.NodeProgress() as progress:
                        yield progress
                    case "draining", v1.StreamDraining(reconnect_after_ms=wait_ms):
                        pass
                    case "end", v1.StreamEnd(reason=v1.StreamEndReason.COMPLETED):
                        return
                    case "end", _:
                        break
                    case _:  # a heartbeat, or newer than this SDK
                        pass
        except WonderError as refusal:
            problem = refusal
        finally:
            call.cancel()
        if not attached:
            raise problem
        is_lost = True
        on_connection(problem)
        await backoff.wait_after(problem, wait_ms=wait_ms)


def _events(response: v1.WatchRunResponse) -> list[v1.RunEvent]:
    """Return the items of ``response``: one, or several that came together."""
    if response.events is not None:
        return response.events.events
    return [response.event] if response.event is not None else []
