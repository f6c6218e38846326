"""The native model adapter alone: the CPU of a streamed answer of 50 tokens, beside that of a plain relay.

The floor is a minimal reader with aiohttp: POST, read each line, parse it, take the text. It collects
nothing, has no timeouts, and supports one format. Both run in this process, the scripted provider in another
one on loopback. The tokens come once with a pause before each (paced), and once as fast as the provider can
send.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
from measure import Effort, Number

from wonder_server.adapters.models.common.endpoints import Endpoint
from wonder_server.adapters.models.native.model import NativeModel
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.model import TextDelta

TOKENS = 50
AT_ONCE = 64
PACE_MS = 10
TEXT = " ".join(f"word{number}" for number in range(TOKENS))
MOST_CPU = 1.5
"""Maximum ratio to the plain relay."""

ASKED: dict[str, JsonDict] = {
    "openai_chat": {"messages": [{"role": "user", "content": "Say it."}]},
    "openai_responses": {"input": [{"role": "user", "content": "Say it."}]},
    "anthropic_messages": {"messages": [{"role": "user", "content": "Say it."}], "max_tokens": 100},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Say it."}]}]},
}
PROVIDERS = {"anthropic_messages": "anthropic", "gemini": "gemini"}


async def measure(effort: Effort) -> list[Number]:
    numbers = []
    async with _provider() as url, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        here = {"openai": Endpoint(api_base=f"{url}/v1"), "anthropic": Endpoint(api_base=url)}
        model = NativeModel({**here, "gemini": Endpoint(api_base=url)}, allow_remote=False)
        for name, pace_ms in (("paced", PACE_MS), ("at once", 0)):
            script = {"model": name, "scripts": [{"text": TEXT, "delay_ms": pace_ms}]}
            await session.post(f"{url}/control/script", json=script)
            floor = await _cpu_ms(partial(_relay, session, url, name), effort.rounds)
            for format_name in ASKED:
                cost = await _cpu_ms(partial(_turn, model, format_name, name), effort.rounds)
                numbers.append(
                    Number(
                        name=f"CPU per turn, {format_name}, tokens {name}", value=cost, unit="ms",
                        floor=floor, floor_is="aiohttp, lines parsed, nothing kept",
                        aim=MOST_CPU if format_name == "openai_chat" else None,
                    )
                )  # fmt: skip
        await model.close()
    return numbers


async def _cpu_ms(turn: Callable[[], Awaitable[None]], rounds: int) -> float:
    """Return the CPU of this process per turn in milliseconds, with `AT_ONCE` concurrent turns."""

    async def several(count: int) -> None:
        for _ in range(count):
            await turn()

    await asyncio.gather(*(several(1) for _ in range(AT_ONCE)))
    before = time.process_time()
    await asyncio.gather(*(several(rounds) for _ in range(AT_ONCE)))
    return (time.process_time() - before) * 1000 / (AT_ONCE * rounds)


async def _turn(model: NativeModel, format_name: str, name: str) -> None:
    profile = ModelProfile(provider=PROVIDERS.get(format_name, "openai"), model=name, format=format_name)
    size = 0
    async for chunk in model.stream(profile, ASKED[format_name]):
        if isinstance(chunk, TextDelta):
            size += len(chunk.text)
    assert size == len(TEXT)


async def _relay(session: aiohttp.ClientSession, url: str, name: str) -> None:
    body = {**ASKED["openai_chat"], "model": name, "stream": True}
    size = 0
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    size += len(choice["delta"].get("content") or "")
    assert size == len(TEXT)


@asynccontextmanager
async def _provider() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.provider", "--port", "0",
        stdout=subprocess.PIPE, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.wait()
