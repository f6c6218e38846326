"""Text of streams while many turns begin together.

100 conversations stream a long answer, one token each 20 ms. Then 200 others send a message at once and get
an answer of 50 tokens without pauses. For each of the 100 streams the longest gap between two messages, less
the interval, is how late its text was. The floor is a bare grpc.aio server that sends as much, and puts the
50 tokens into one message.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise

from client import Bare, Client, ask
from measure import Effort, Number
from servers import bare, wonder

STREAMS, BURST = 100, 200
INTERVAL_MS = 20
WORDS = 20_000
TOKENS = 50
SIZE = 90
"""Approximate size of the message of a streamed token, in bytes."""
BURSTS = 5
PAUSE_S = 1.0
"""Time between two bursts."""
MOST_LATE_MS = 80

Read = Callable[[], Awaitable[bytes]]
Turn = Callable[[], Awaitable[object]]


async def measure(effort: Effort) -> list[Number]:
    bursts = 2 if effort.quick else BURSTS
    ours, floor = await _wonder(bursts), await _bare(bursts)
    return [
        Number(name=f"text late while {BURST} turns begin, p50", value=ours, unit="ms", floor=floor,
               floor_is="bare grpc.aio", aim=MOST_LATE_MS, aim_is="value")
    ]  # fmt: skip


async def _wonder(bursts: int) -> float:
    with wonder() as server:
        async with Client(server.address) as client, AsyncExitStack() as open_chats:
            slow = await client.agent("slow", token_delay_ms=INTERVAL_MS)
            quick = await client.agent("quick")
            agents = [slow] * STREAMS + [quick] * BURST
            chats = [
                await open_chats.enter_async_context(client.chat(await client.conversation(agent), index))
                for index, agent in enumerate(agents)
            ]
            streams, others = chats[:STREAMS], chats[STREAMS:]
            await asyncio.gather(*(chat.turn("say 1 word") for chat in others))
            await asyncio.gather(*(chat.first_token(f"say {WORDS} words") for chat in streams))
            turns = [lambda chat=chat: chat.turn(f"say {TOKENS} words") for chat in others]
            return await _late([chat.read_bytes for chat in streams], turns, bursts)


async def _bare(bursts: int) -> float:
    with bare() as server:
        async with Bare(server.address) as client:
            streams = [client.stream(index) for index in range(STREAMS)]
            for stream in streams:
                await stream.write(ask(size=SIZE, count=WORDS, delay_ms=INTERVAL_MS))
                await stream.read()

            async def turn(index: int) -> None:
                call = client.grouped(index)
                await call.write(ask(size=SIZE, count=TOKENS))
                while await call.read():
                    pass
                await call.done_writing()
                await call.read()

            turns = [lambda index=index: turn(index) for index in range(BURST)]
            return await _late([stream.read for stream in streams], turns, bursts)


async def _late(streams: Sequence[Read], turns: Sequence[Turn], bursts: int) -> float:
    """Return the median over all streams and bursts of the time by which text was late, in milliseconds."""
    arrivals: list[list[float]] = [[] for _ in streams]

    async def listen(read: Read, times: list[float]) -> None:
        while True:
            await read()
            times.append(time.perf_counter())

    tasks = [asyncio.create_task(listen(*each)) for each in zip(streams, arrivals, strict=True)]
    late: list[float] = []
    for _ in range(bursts):
        await asyncio.sleep(PAUSE_S)
        for times in arrivals:
            del times[:-1]
        await asyncio.gather(*(turn() for turn in turns))
        await asyncio.sleep(2 * INTERVAL_MS / 1000)
        late += [_longest_gap(times) * 1000 - INTERVAL_MS for times in arrivals]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return statistics.median(late)


def _longest_gap(times: Sequence[float]) -> float:
    return max(after - before for before, after in pairwise(times))
