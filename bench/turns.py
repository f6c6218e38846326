"""Whole turns with a model that answers immediately: 50 tokens, everything recorded.

Turns per second, server CPU per turn, time to first token and commits per turn, at 1 and at 64 concurrent
conversations. The floor is a bare grpc.aio server that streams the 50 messages and records nothing; beside
it, one that puts what is ready into one message, as Wonder does for readers that take groups. The floor of
the time to first token with one conversation is two commits of a small row through the writer plus 3 ms.
Commits up to the first token are counted with a model that pauses after it, so that the commit at the end of
the turn does not count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from client import Bare, Client, ask
from commits import grouped
from measure import Effort, Load, Number, load
from servers import bare, wonder

TOKENS = 50
TEXT = f"say {TOKENS} words"
SIZE = 90
"""Approximate size of the message of a streamed token, in bytes."""
PAUSE_MS = 400
MOST_COMMITS_TO_FIRST_TOKEN = 2
MOST_CPU = 2.0
LEAST_PER_SECOND = 400
FIRST_TOKEN_MS = 3.0
"""Allowance on top of the commits, in milliseconds."""
MOST_GROUPED = 3.0
"""Maximum ratio to the floor that groups messages too."""

Turn = Callable[[int], Awaitable[float]]
"""Runs one turn of a conversation and returns the seconds until the first text."""


async def measure(effort: Effort) -> list[Number]:
    numbers: list[Number] = []
    for at_once in (1, 64):
        ours, commits = await turns(at_once, effort.rounds)
        plain = await _floor(at_once, effort.rounds, _bare_turn)
        numbers += _numbers(f"{at_once} at once", ours, commits, plain)
        numbers += _grouped(f"{at_once} at once", ours, await _floor(at_once, effort.rounds, _grouped_turn))
        if at_once == 1:
            numbers.append(await _to_first_token(ours, effort.rounds))
    first = await _commits_to_first_token()
    numbers.append(
        Number(name="commits from message to first token", value=first, unit="",
               aim=MOST_COMMITS_TO_FIRST_TOKEN)
    )  # fmt: skip
    return numbers


async def turns(at_once: int, each: int, shards: int | None = None) -> tuple[Load, float]:
    """Return the load of ``at_once`` conversations with ``each`` turns, and the commits per turn."""
    with wonder(shards) as server:
        async with Client(server.address) as client, AsyncExitStack() as open_chats:
            agent = await client.agent("speaker")
            chats = [
                await open_chats.enter_async_context(client.chat(await client.conversation(agent), index))
                for index in range(at_once)
            ]
            for chat in chats[:8]:
                await chat.turn(TEXT)
            before = server.commits()
            done = await load(server.pid, at_once, each, lambda index: chats[index].turn(TEXT))
            return done, (server.commits() - before) / done.count


async def _floor(at_once: int, each: int, turn_of: Callable[[Bare], Turn]) -> Load:
    with bare() as server:
        async with Bare(server.address) as client:
            await turn_of(client)(0)
            return await load(server.pid, at_once, each, turn_of(client))


def _bare_turn(client: Bare) -> Turn:
    async def turn(index: int) -> float:
        began = time.perf_counter()
        call = client.stream(index)
        await call.write(ask(size=SIZE, count=TOKENS))
        await call.read()
        first = time.perf_counter() - began
        for _ in range(TOKENS - 1):
            await call.read()
        await call.done_writing()
        await call.read()
        return first

    return turn


def _grouped_turn(client: Bare) -> Turn:
    async def turn(index: int) -> float:
        began = time.perf_counter()
        call = client.grouped(index)
        await call.write(ask(size=SIZE, count=TOKENS))
        received = await call.read()
        first = time.perf_counter() - began
        while received:  # The last message is empty.
            received = await call.read()
        await call.done_writing()
        await call.read()
        return first

    return turn


async def _to_first_token(ours: Load, rounds: int) -> Number:
    rate, _ = await grouped(1, rounds * 5)
    commits = MOST_COMMITS_TO_FIRST_TOKEN
    return Number(
        name="time to first token p50, beside its commits", value=ours.p50_ms, unit="ms",
        floor=commits / rate * 1000 + FIRST_TOKEN_MS,
        floor_is=f"{commits} commits and {FIRST_TOKEN_MS:.0f} ms", aim=1.0,
    )  # fmt: skip


async def _commits_to_first_token() -> int:
    with wonder() as server:
        async with Client(server.address) as client:
            agent = await client.agent("slow-speaker", token_delay_ms=PAUSE_MS)
            async with client.chat(await client.conversation(agent)) as chat:
                await chat.turn("say 1 word")
                await asyncio.sleep(PAUSE_MS / 1000)  # Memory extraction commits after the end of the turn.
                before = server.commits()
                await chat.first_token("say 3 words")
                return server.commits() - before


def _numbers(at: str, ours: Load, commits: float, floor: Load) -> list[Number]:
    bare_is = "bare grpc.aio, nothing recorded"
    return [
        Number(name=f"turns per second, {at}", value=ours.per_second, unit="/s",
               floor=floor.per_second, floor_is=bare_is, better="more",
               aim=LEAST_PER_SECOND if "64" in at else None, aim_is="value"),
        Number(name=f"server CPU per turn, {at}", value=ours.cpu_ms, unit="ms",
               floor=floor.cpu_ms, floor_is=bare_is,
               aim=MOST_CPU if "64" in at else None, aim_is="value"),
        Number(name=f"time to first token p50, {at}", value=ours.p50_ms, unit="ms",
               floor=floor.p50_ms, floor_is=bare_is),
        Number(name=f"time to first token p99, {at}", value=ours.p99_ms, unit="ms",
               floor=floor.p99_ms, floor_is=bare_is),
        Number(name=f"commits per turn, {at}", value=commits, unit=""),
    ]  # fmt: skip


def _grouped(at: str, ours: Load, floor: Load) -> list[Number]:
    grouped_is = "bare grpc.aio that groups messages"
    return [
        Number(name=f"turns per second beside groups, {at}", value=ours.per_second, unit="/s",
               floor=floor.per_second, floor_is=grouped_is, better="more"),
        Number(name=f"server CPU per turn beside groups, {at}", value=ours.cpu_ms, unit="ms",
               floor=floor.cpu_ms, floor_is=grouped_is, aim=MOST_GROUPED if "64" in at else None),
    ]  # fmt: skip
