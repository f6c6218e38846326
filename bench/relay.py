"""Turns through a provider on loopback that streams 50 tokens: everything recorded, beside a bare relay.

The floor is a grpc.aio server that posts to the same provider with aiohttp, forwards its text, and stores
nothing (`bare.py`). Wonder reaches the provider with its native adapter, and again through LiteLLM, including
the CPU of the helper process. First 64 concurrent turns, with tokens as fast as the provider can send; then
200 streams with one token each 20 ms, for the longest gaps between tokens.

The agent of these turns extracts nothing, so that a turn calls the model once, as the relay does. The default
assistant follows with the native adapter: the standard library's workflows recall memories for each turn, and
ask the model a second time which facts to remember.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from client import Bare, Call, Chat, Client
from google.protobuf.wrappers_pb2 import StringValue
from measure import Effort, Load, Number, cpu_seconds, load, percentile
from servers import Server, bare, provider, wonder

from wonder_server.core.json_types import JsonDict

TOKENS = 50
AT_ONCE = 64
STREAMS = 200
INTERVAL_MS = 20
MOST_CPU = 2.0
"""Maximum ratio to the relay."""
LEAST_PER_SECOND = 250
MOST_GAP = 2.0
"""Maximum ratio to the interval."""
NATIVE, LITELLM = "openai", "anthropic"
"""Providers of the two routes. Requests have OpenAI's format; LiteLLM translates them for the second."""
RELAY = "bare grpc.aio that relays with aiohttp"
LEAST_ASSISTANT_PER_SECOND = 350
ONE_CALL: JsonDict = {"memory_extraction_workflow_id": "none"}
"""No extraction: it would call the model a second time, which the relay does not."""
DEFAULT_ASSISTANT: JsonDict = {"tool_ids": ["wonder/std/remember", "wonder/std/recall"]}
"""Persona with the tools of `wonder/std/assistant`. The fields that both leave out have defaults."""

Turn = Callable[[int], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps between tokens, in ms, and the CPU of the server for each token, in µs."""

    p50: float
    p99: float
    cpu_us: float


async def measure(effort: Effort) -> list[Number]:
    with provider() as speaker:
        url = speaker.address
        floor = await _relayed(url, effort.rounds)
        numbers = _rates("", floor, await _turns(url, NATIVE, effort.rounds))
        numbers += _assistant(floor, await _turns(url, NATIVE, effort.rounds, DEFAULT_ASSISTANT))
        numbers += _rates(", LiteLLM", floor, await _turns(url, LITELLM, max(1, effort.rounds // 5)))
        paced = await _bare_gaps(url, effort.seconds)
        numbers += _paces("", paced, await _gaps(url, NATIVE, effort.seconds))
        if not effort.quick:  # LiteLLM cannot keep this pace, so this takes long.
            numbers += _paces(", LiteLLM", paced, await _gaps(url, LITELLM, effort.seconds))
    return numbers


def _rates(way: str, floor: Load, ours: Load) -> list[Number]:
    aimed = not way
    return [
        Number(name=f"turns per second, {AT_ONCE} at once{way}", value=ours.per_second, unit="/s",
               floor=floor.per_second, floor_is=RELAY, better="more",
               aim=LEAST_PER_SECOND if aimed else None, aim_is="value"),
        Number(name=f"server CPU per turn{way}", value=ours.cpu_ms, unit="ms",
               floor=floor.cpu_ms, floor_is=RELAY, aim=MOST_CPU if aimed else None),
        Number(name=f"time to first token p50{way}", value=ours.p50_ms, unit="ms",
               floor=floor.p50_ms, floor_is=RELAY),
        Number(name=f"time to first token p99{way}", value=ours.p99_ms, unit="ms",
               floor=floor.p99_ms, floor_is=RELAY),
    ]  # fmt: skip


def _assistant(floor: Load, ours: Load) -> list[Number]:
    at, floor_is = f"default assistant, {AT_ONCE} at once", f"{RELAY}, one call"
    return [
        Number(name=f"turns per second, {at}", value=ours.per_second, unit="/s",
               floor=floor.per_second, floor_is=floor_is, better="more",
               aim=LEAST_ASSISTANT_PER_SECOND, aim_is="value"),
        Number(name=f"server CPU per turn, {at}", value=ours.cpu_ms, unit="ms",
               floor=floor.cpu_ms, floor_is=floor_is),
        Number(name=f"time to first token p50, {at}", value=ours.p50_ms, unit="ms",
               floor=floor.p50_ms, floor_is=floor_is),
    ]  # fmt: skip


def _paces(way: str, floor: Gaps, ours: Gaps) -> list[Number]:
    at = f"{STREAMS} streams, {INTERVAL_MS} ms{way}"
    return [
        Number(name=f"gap between tokens p50, {at}", value=ours.p50, unit="ms", floor=floor.p50,
               floor_is=RELAY),
        Number(name=f"gap between tokens p99, {at}", value=ours.p99, unit="ms", floor=floor.p99,
               floor_is=RELAY, aim=MOST_GAP * INTERVAL_MS if not way else None, aim_is="value"),
        Number(name=f"server CPU per token, {at}", value=ours.cpu_us, unit="µs", floor=floor.cpu_us,
               floor_is=RELAY),
    ]  # fmt: skip


# --- Wonder -----------------------------------------------------------------------------------------


def _server(url: str) -> Server:
    environ = {"WONDER_OPENAI_BASE_URL": f"{url}/v1", "WONDER_ANTHROPIC_BASE_URL": url}
    return wonder(environ={**environ, "OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"})


async def _agent(client: Client, way: str, model: str, persona: JsonDict) -> str:
    profile = {"provider": way, "model": model, "format": "MODEL_FORMAT_OPENAI_CHAT"}
    return await client.agent("speaker", profile=profile, persona=persona)


async def _turns(url: str, way: str, each: int, persona: JsonDict = ONE_CALL) -> Load:
    with _server(url) as server:
        async with Client(server.address) as client, AsyncExitStack() as open_chats:
            agent = await _agent(client, way, str(TOKENS), persona)
            chats = await _chats(client, open_chats, agent, AT_ONCE)
            await asyncio.gather(*(chat.turn("Speak.") for chat in chats))
            return await _loaded(server, each, lambda index: chats[index].turn("Speak."))


async def _gaps(url: str, way: str, seconds: float) -> Gaps:
    with _server(url) as server:
        async with Client(server.address) as client, AsyncExitStack() as open_chats:
            agent = await _agent(client, way, _paced(seconds), ONE_CALL)
            chats = await _chats(client, open_chats, agent, STREAMS)
            await asyncio.gather(*(chat.first_token("Speak.") for chat in chats))
            return await _watched(server, [chat.read_bytes for chat in chats], seconds)


async def _chats(client: Client, open_chats: AsyncExitStack, agent: str, count: int) -> list[Chat]:
    return [
        await open_chats.enter_async_context(client.chat(await client.conversation(agent), index))
        for index in range(count)
    ]


# --- the floor --------------------------------------------------------------------------------------


async def _relayed(url: str, each: int) -> Load:
    with bare() as server:
        async with Bare(server.address) as client:
            calls = [client.relay(index) for index in range(AT_ONCE)]
            turn = partial(_bare_turn, calls, _asked(url, str(TOKENS)))
            await asyncio.gather(*map(turn, range(AT_ONCE)))
            return await _loaded(server, each, turn)


async def _bare_turn(calls: list[Call], asked: bytes, index: int) -> float:
    began = time.perf_counter()
    await calls[index].write(asked)
    received = await calls[index].read()
    first = time.perf_counter() - began
    while StringValue.FromString(received).value:
        received = await calls[index].read()
    return first


async def _bare_gaps(url: str, seconds: float) -> Gaps:
    with bare() as server:
        async with Bare(server.address) as client:
            calls = [client.relay(index) for index in range(STREAMS)]
            for call in calls:
                await call.write(_asked(url, _paced(seconds)))
            await asyncio.gather(*(call.read() for call in calls))
            return await _watched(server, [call.read for call in calls], seconds)


def _asked(url: str, model: str) -> bytes:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Speak."}]}
    return json.dumps({"url": f"{url}/v1/chat/completions", "body": body}).encode()


# --- both -------------------------------------------------------------------------------------------


def _paced(seconds: float) -> str:
    """Return the model whose answer outlasts the measurement."""
    return f"{int((seconds + 30) * 1000 / INTERVAL_MS)}@{INTERVAL_MS}"


def _cpu(server: Server) -> float:
    """Return the CPU of the server and its helper processes, in seconds."""
    return server.cpu + sum(map(cpu_seconds, server.children))


async def _loaded(server: Server, each: int, turn: Turn) -> Load:
    helpers = sum(map(cpu_seconds, server.children))
    done = await load(server.pid, AT_ONCE, each, turn)
    helped = sum(map(cpu_seconds, server.children)) - helpers
    return Load(count=done.count, seconds=done.seconds, cpu=done.cpu + helped, latencies=done.latencies)


async def _watched(server: Server, streams: list[Callable[[], Awaitable[bytes]]], seconds: float) -> Gaps:
    """Read all streams for a second, then measure for ``seconds``. Silent streams count as gaps."""
    gaps: list[float] = []
    clock = time.perf_counter
    last = [0.0] * len(streams)

    async def listen(index: int, read: Callable[[], Awaitable[bytes]]) -> None:
        while True:
            await read()
            last[index], before = clock(), last[index]
            gaps.append(last[index] - before)

    tasks = [asyncio.create_task(listen(index, read)) for index, read in enumerate(streams)]
    await asyncio.sleep(1)
    gaps.clear()
    cpu, began = _cpu(server), clock()
    last = [began] * len(streams)
    await asyncio.sleep(seconds)
    cpu, ended = _cpu(server) - cpu, clock()
    received = gaps + [ended - time for time in last]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    expected = len(streams) * (ended - began) * 1000 / INTERVAL_MS
    return Gaps(percentile(received, 0.5) * 1000, percentile(received, 0.99) * 1000, cpu / expected * 1e6)
