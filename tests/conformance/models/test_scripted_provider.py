"""The scripted provider as a process, as end-to-end tests use it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import aiohttp

from tests.paths import ROOT


async def test_it_prints_its_port_plays_added_scripts_and_returns_the_requests() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.provider", "--port", "0", stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(await process.stdout.readline())}"
        async with aiohttp.ClientSession() as session:
            script = {"model": "mine", "scripts": [{"text": "one two", "calls": [{"name": "clock"}]}]}
            await session.post(f"{url}/control/script", json=script)
            answer = await session.post(
                f"{url}/v1/messages",
                json={"model": "mine", "messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 9},
            )
            assert "tool_use" in await answer.text()
            unknown = await session.post(f"{url}/v1/chat/completions", json={"model": "unknown"})
            assert unknown.status == 404
            seen = await (await session.get(f"{url}/control/seen")).json()
        assert [(one["model"], one["finished"], one["closed_early"]) for one in seen] == [
            ("mine", True, False),
            ("unknown", False, False),
        ]
    finally:
        process.terminate()
        await process.wait()
