"""Clients of turns: the last one that leaves decides, and a client that comes back in time keeps the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from wonder_server.actors.conversation.turn_readers import TurnReaders
from wonder_server.core.errors import Reason, error

pytestmark = pytest.mark.asyncio


async def leave(readers: TurnReaders, cancel: Callable[[], None] | None) -> None:
    """Read a turn, and lose the connection."""
    with pytest.raises(asyncio.CancelledError), readers.reading("turn_1", cancel):
        raise asyncio.CancelledError


async def test_a_turn_is_cancelled_after_its_last_reader_has_left() -> None:
    readers, cancelled = TurnReaders(0.0), asyncio.Event()
    with readers.reading("turn_1", None):
        await leave(readers, cancelled.set)
        assert not cancelled.is_set() and readers.count == 1
    await leave(readers, cancelled.set)
    await cancelled.wait()
    assert readers.count == 0


async def test_a_client_that_resumes_in_time_keeps_its_turn() -> None:
    readers, cancelled = TurnReaders(0.0), list[str]()
    await leave(readers, lambda: cancelled.append("first"))
    assert readers.count == 1
    with readers.reading("turn_1", None):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert cancelled == [] and readers.count == 0


async def test_the_last_client_decides() -> None:
    readers, cancelled = TurnReaders(0.0), list[str]()
    await leave(readers, lambda: cancelled.append("cancels"))
    await leave(readers, None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert cancelled == [] and readers.count == 0


async def test_a_stream_that_the_server_ends_cancels_nothing() -> None:
    readers, cancelled = TurnReaders(0.0), list[str]()
    with pytest.raises(Exception, match="stops"), readers.reading("turn_1", lambda: cancelled.append("x")):
        raise error(Reason.SERVER_DRAINING, "The server stops.")
    with readers.reading("turn_1", lambda: cancelled.append("x")):
        pass
    await asyncio.sleep(0)
    assert cancelled == [] and readers.count == 0


async def test_a_client_that_left_before_it_could_read_cancels_too() -> None:
    readers, cancelled = TurnReaders(0.0), asyncio.Event()
    readers.abandon("turn_1", cancelled.set)
    readers.abandon("turn_1", lambda: pytest.fail("twice"))
    await cancelled.wait()
    with readers.reading("turn_2", None):
        readers.abandon("turn_2", lambda: pytest.fail("another client reads it"))
    assert readers.count == 0
