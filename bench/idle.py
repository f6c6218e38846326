"""Cost of an idle server.

Seconds until the server is ready, and its memory at idle; tasks and threads that 1,000 idle conversations
add; memory for each open stream without messages, beside the same on a bare grpc.aio server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from client import Bare, Client
from measure import Effort, Number
from servers import Server, bare, wonder

CONVERSATIONS = 1000
AT_ONCE = 50
STREAMS = 500
MOST_RSS_MB = 120
MOST_READY_S = 2.0
MOST_STREAM_KB = 40
SETTLE_S = 0.5
MB, KB = 1 << 20, 1 << 10

Open = Callable[[int], AbstractAsyncContextManager[object]]
"""Opens the stream of this number and leaves it without messages."""


async def measure(_effort: Effort) -> list[Number]:
    with wonder() as server:
        ready, idle = server.ready_seconds, server.rss
        async with Client(server.address) as client:
            agent = await client.agent("sleeper")
            conversations = [await client.conversation(agent) for _ in range(AT_ONCE)]
            await asyncio.sleep(SETTLE_S)
            before, few = server.probe(), server.rss
            while len(conversations) < AT_ONCE + CONVERSATIONS:
                conversations += await asyncio.gather(*(client.conversation(agent) for _ in range(AT_ONCE)))
            await asyncio.sleep(SETTLE_S)
            after, many = server.probe(), server.rss
            per_stream = await _per_stream(server, lambda index: client.chat(conversations[index], index))
    with bare() as server:
        async with Bare(server.address) as bare_client:
            floor = await _per_stream(server, bare_client.held)
    return [
        Number(name="seconds until it serves", value=ready, unit="s", aim=MOST_READY_S),
        Number(name="memory at idle, before LiteLLM", value=idle / MB, unit="MB", aim=MOST_RSS_MB),
        Number(name="tasks added by 1,000 idle conversations",
               value=after["tasks"] - before["tasks"], unit="", aim=0),
        Number(name="threads added by 1,000 idle conversations",
               value=after["threads"] - before["threads"], unit="", aim=0),
        Number(name="memory per idle conversation in memory",
               value=(many - few) / CONVERSATIONS / KB, unit="KB"),
        Number(name="memory per open idle stream", value=per_stream / KB, unit="KB",
               floor=floor / KB, floor_is="bare grpc.aio", aim=MOST_STREAM_KB / 25),
    ]  # fmt: skip


async def _per_stream(server: Server, open_stream: Open) -> float:
    """Return the bytes for each of `STREAMS` streams, after 20 streams to warm up."""
    async with AsyncExitStack() as streams:
        for index in range(20):
            await streams.enter_async_context(open_stream(index))
        await asyncio.sleep(SETTLE_S)
        before = server.rss
        for index in range(STREAMS):
            await streams.enter_async_context(open_stream(index))
        await asyncio.sleep(SETTLE_S)
        return (server.rss - before) / STREAMS
