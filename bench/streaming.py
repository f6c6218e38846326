"""Streamed tokens: server CPU per token and tokens per second, at 1 and at 200 streams.

Every conversation streams a long answer of the offline model, one token each 20 ms, to one Converse
client. The floor is a bare grpc.aio server that sends messages of the same size at the same pace. Both are
measured in the steady state, when every stream has tokens, so the start of the turns does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from client import Bare, Client, ask
from measure import Effort, Number
from servers import Server, bare, wonder

DELAY_MS = 20
WORDS = 20_000
TOKEN = b"word"
"""Each token of the offline model's long answer contains this once."""
AIM = 1.5
PAIRS = 3


@dataclass(slots=True)
class Received:
    """Data received over all streams."""

    tokens: int = 0
    messages: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    tokens_per_second: float
    cpu_us: float
    size: int
    tokens_per_message: float


async def measure(effort: Effort) -> list[Number]:
    numbers: list[Number] = []
    for streams in (1, 200):
        # Alternately, so that other load on the machine affects both.
        ours, floor = [], []
        for _ in range(1 if effort.quick else PAIRS):
            ours.append(await _wonder(streams, effort.seconds))
            floor.append(await _bare(streams, effort.seconds, ours[-1].size))
        numbers += _numbers(streams, _median(ours), _median(floor))
    return numbers


def _median(paces: list[Pace]) -> Pace:
    return sorted(paces, key=lambda pace: pace.cpu_us)[len(paces) // 2]


def _numbers(streams: int, ours: Pace, floor: Pace) -> Sequence[Number]:
    at = f"{streams} stream{'s' if streams > 1 else ''}"
    aim = AIM if streams > 1 else None
    return [
        Number(name=f"server CPU per token, {at}", value=ours.cpu_us, unit="µs",
               floor=floor.cpu_us, floor_is="bare grpc.aio", aim=aim),
        Number(name=f"tokens per second, {at}", value=ours.tokens_per_second, unit="/s",
               floor=floor.tokens_per_second, floor_is="bare grpc.aio", better="more"),
        Number(name=f"tokens per message, {at}", value=ours.tokens_per_message, unit=""),
    ]  # fmt: skip


async def _wonder(streams: int, seconds: float) -> Pace:
    with wonder() as server:
        async with Client(server.address) as client, AsyncExitStack() as open_chats:
            agent = await client.agent("speaker", token_delay_ms=DELAY_MS)
            chats = [
                await open_chats.enter_async_context(client.chat(await client.conversation(agent), index))
                for index in range(streams)
            ]
            for chat in chats:
                await chat.first_token(f"say {WORDS} words")
            return await _watch(server, [chat.read_bytes for chat in chats], seconds)


async def _bare(streams: int, seconds: float, size: int) -> Pace:
    with bare() as server:
        async with Bare(server.address) as client:
            calls = [client.stream(index) for index in range(streams)]
            for call in calls:
                await call.write(ask(size=size, count=WORDS, delay_ms=DELAY_MS))
                await call.read()
            return await _watch(server, [call.read for call in calls], seconds)


async def _listen(read: Callable[[], Awaitable[bytes]], received: Received) -> None:
    while True:
        said = await read()
        received.messages += 1
        received.tokens += said.count(TOKEN) or 1
        received.size = len(said)


async def _watch(server: Server, streams: list[Callable[[], Awaitable[bytes]]], seconds: float) -> Pace:
    received = Received()
    tasks = [asyncio.create_task(_listen(read, received)) for read in streams]
    await asyncio.sleep(0.5)
    clock = asyncio.get_running_loop().time
    tokens, messages, cpu, began = received.tokens, received.messages, server.cpu, clock()
    await asyncio.sleep(seconds)
    tokens, messages = received.tokens - tokens, received.messages - messages
    cpu, passed = server.cpu - cpu, clock() - began
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return Pace(tokens / passed, cpu / tokens * 1e6, received.size, tokens / messages)
