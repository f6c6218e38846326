"""A reader that stops: little waits for it, the others notice nothing, and it goes on by its cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import grpc
import pytest
from google.rpc import status_pb2
from google.rpc.error_details_pb2 import ErrorInfo
from grpc import aio

from tests.e2e.client import Client, Listener, View, all_of
from tests.e2e.process import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

OTHERS, TURNS = 20, 20
WINDOW = 64 * 1024
"""Bytes that a client lets the server send ahead of it."""
WAITING = 1_000_000
"""Maximum backlog of a reader that has stopped, in bytes, on both sides of the connection."""

QUIET = """
name: quiet_model
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 1}}
---
name: quiet
persona:
  system_prompt: You say little.
  model_profile_id: quiet_model
  memory_extraction_workflow_id: none
  recent_turns_limit: 1
"""


@asynccontextmanager
async def reader(server: Server, conv: str, view: View) -> AsyncIterator[Listener]:
    """Open a stream over its own connection, with a window of a fixed size."""
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", WINDOW),
    ]
    async with (
        aio.insecure_channel(server.address, options) as channel,
        Client(channel).listening(conv, view) as listener,
    ):
        await listener.until(lambda v: v.words and v.words[-1].HasField("caught_up"))
        yield listener


async def quiet(client: Client) -> str:
    await client.apply("e2e/slow", QUIET)
    try:
        await client.agent("quiet", "e2e/slow/quiet")
    except aio.AioRpcError as problem:
        assert problem.code() is grpc.StatusCode.ALREADY_EXISTS
    return "quiet"


async def test_a_reader_that_stops_gets_its_cursor_and_other_readers_are_not_affected(
    server: Server, client: Client
) -> None:
    conv = await client.open(await quiet(client))
    slow = View()
    async with AsyncExitStack() as streams:
        stopped = await streams.enter_async_context(reader(server, conv, slow))
        others = [await streams.enter_async_context(client.listening(conv)) for _ in range(OTHERS)]
        word_count, head = len(slow.words), slow.cursor
        # One of them reads nothing of this, which is more than may wait for it.
        turns = list[str]()
        reading = [asyncio.create_task(each.until(partial(all_settled, turns))) for each in others]
        for _ in range(TURNS):
            turns.append((await client.say(conv, f"say 3 words {'x' * 200_000}")).turn.id)
        await all_of(reading)
        with pytest.raises(aio.AioRpcError) as ended:
            await stopped.rest()
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        reason, resume_after_sequence = reason_and_cursor(ended.value)
        assert (reason, resume_after_sequence) == ("SLOW_READER", str(slow.cursor))
        assert head <= slow.cursor < others[0].view.cursor
        waited = sum(word.ByteSize() for word in slow.words[word_count:])
        assert 0 < waited < WAITING

    # It goes on where it was: every event once, as everybody else has seen them.
    view = await client.settled(conv, turns[-1], slow)
    assert view.events == await client.events(conv)
    for each in others:
        assert each.view.events == view.events
    assert len(view.messages) == 2 * len(turns)


async def test_deltas_for_a_stopped_reader_are_merged_into_one(server: Server, client: Client) -> None:
    conv = await client.open(await quiet(client))
    slow = View()
    async with reader(server, conv, slow) as stopped, client.listening(conv) as other:
        turn_id = (await client.say(conv, "say 2000 words")).turn.id
        await other.until(lambda v: v.settled(turn_id))
        word_count = len(slow.words)
        await stopped.until(lambda v: v.settled(turn_id))
    assert slow.events == other.view.events and slow.text() == other.view.text()
    pieces, all_pieces = (deltas(view) for view in (slow, other.view))
    assert len(pieces) < len(all_pieces) and max(map(len, pieces)) > 1000
    assert sum(word.ByteSize() for word in slow.words[word_count:]) < WAITING


async def test_a_reader_that_stops_and_leaves_causes_no_error(server: Server, client: Client) -> None:
    conv = await client.open(await quiet(client))
    async with reader(server, conv, View()):
        for _ in range(4):
            turn_id = (await client.say(conv, f"say 3 words {'x' * 200_000}")).turn.id
            await client.settled(conv, turn_id)
    # Left while the server was writing to it.
    await client.settled(conv, (await client.say(conv, "say 3 words")).turn.id)
    assert not [line for line in server.log if line.get("level") == "error"]


def all_settled(turns: list[str], view: View) -> bool:
    return len(turns) == TURNS and all(map(view.settled, turns))


def deltas(view: View) -> list[str]:
    return [word.delta.text for word in view.words if word.HasField("delta")]


def reason_and_cursor(problem: aio.AioRpcError) -> tuple[str, str]:
    """Return the reason of the error, and the cursor to resume from."""
    trailers = dict(problem.trailing_metadata() or ())
    status, info = status_pb2.Status.FromString(trailers["grpc-status-details-bin"]), ErrorInfo()
    assert status.details[0].Unpack(info)
    return info.reason, info.metadata["resume_after_sequence"]
