"""One of 100 clients stops reading: the gaps of the others, and the memory of the server for it.

Every client gets a word from its agent each 20 ms. One client's conversation also gets 20 KB ten times a
second. First that client reads, then it stops; the gaps between words of the others are measured in both
cases. The memory for a stopped client is that of many stopped clients in one conversation, less that of as
many that read, after far more text than the backlog limit.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from client import Chat, Client
from measure import Effort, Number, percentile
from servers import wonder

CLIENTS = 100
DELAY_MS = 20
LOUD_BYTES, LOUD_PAUSE_S = 20_000, 0.1
MOST_GAP = 2.0
"""Maximum ratio to the gap while all clients read."""

STOPPED = 40
TURNS, TURN_BYTES = 30, 100_000
MOST_MB = 1.0
SETTLE_S = 3.0
MB = 1 << 20
PERSONA = {"memory_extraction_workflow_id": "none", "recent_turns_limit": 1}


async def measure(effort: Effort) -> list[Number]:
    reading, stopped = await _gaps(effort.seconds)
    held = (await _grown(reads=False) - await _grown(reads=True)) / STOPPED
    beside = "all 100 read"
    return [
        Number(name="gap between words p50, 99 of 100 read", value=percentile(stopped, 0.5) * 1000, unit="ms",
               floor=percentile(reading, 0.5) * 1000, floor_is=beside),
        Number(name="gap between words p99, 99 of 100 read", value=percentile(stopped, 0.99) * 1000,
               unit="ms", floor=percentile(reading, 0.99) * 1000, floor_is=beside, aim=MOST_GAP),
        Number(name="memory for a client that has stopped reading", value=held / MB, unit="MB", aim=MOST_MB),
    ]  # fmt: skip


async def _gaps(seconds: float) -> tuple[list[float], list[float]]:
    """Return the gaps of the others in seconds: while the loud client reads, and after it stops."""
    gaps: list[float] = []
    with wonder() as server:
        async with Client(server.address) as client, AsyncExitStack() as open_chats:
            agent = await client.agent("speaker", token_delay_ms=DELAY_MS, persona=PERSONA)
            brief = await client.agent("brief", persona=PERSONA)
            conversations = [
                await client.conversation(brief if index == 0 else agent) for index in range(CLIENTS)
            ]
            chats = [
                await open_chats.enter_async_context(client.chat(conversation, index))
                for index, conversation in enumerate(conversations)
            ]
            await asyncio.gather(*(chat.first_token("say 20000 words") for chat in chats[1:]))
            others = [asyncio.create_task(_listen(chat, gaps)) for chat in chats[1:]]
            loud = asyncio.create_task(_be_loud(chats[0]))
            first = asyncio.create_task(_listen(chats[0], []))
            await asyncio.sleep(1)
            gaps.clear()
            await asyncio.sleep(seconds)
            reading = list(gaps)
            first.cancel()
            await asyncio.sleep(1)
            gaps.clear()
            await asyncio.sleep(seconds)
            stopped = list(gaps)
            for task in (loud, *others):
                task.cancel()
            await asyncio.gather(first, loud, *others, return_exceptions=True)
    return reading, stopped


async def _listen(chat: Chat, gaps: list[float]) -> None:
    last = time.perf_counter()
    while True:
        await chat.read_bytes()
        now = time.perf_counter()
        gaps.append(now - last)
        last = now


async def _be_loud(chat: Chat) -> None:
    while True:
        await chat.send(f"say 1 words {'x' * LOUD_BYTES}")
        await asyncio.sleep(LOUD_PAUSE_S)


async def _grown(*, reads: bool) -> float:
    """Return the growth of the server in bytes, while `STOPPED` clients read much text, or do not."""
    with wonder() as server:
        async with Client(server.address) as client, AsyncExitStack() as open_chats:
            conversation = await client.conversation(await client.agent("brief", persona=PERSONA))
            speaker = await open_chats.enter_async_context(client.chat(conversation))
            await speaker.turn("say 1 words")
            others = [
                await open_chats.enter_async_context(client.chat(conversation, index))
                for index in range(STOPPED)
            ]
            tasks = [asyncio.create_task(_listen(chat, [])) for chat in others if reads]
            before = server.rss
            for _ in range(TURNS):
                await speaker.turn(f"say 1 words {'x' * TURN_BYTES}")
            await asyncio.sleep(SETTLE_S)
            grown = server.rss - before
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return grown
