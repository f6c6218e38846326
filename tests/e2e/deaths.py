"""Stories for servers that die. Each story starts again at the next server, with the same request ids, until
it has run to its end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from tests.depth import choice
from tests.e2e.client import Client, View
from tests.e2e.journals import assert_replays
from tests.e2e.process import Server

Story = Callable[[Client, View], Awaitable[Any]]
AT_ONCE = 3
"""Stories that run concurrently, each with its own servers."""
MOST = 40
"""Passages that no story makes of any point."""
CHOSEN = 4
"""Passages of a point at which a server is killed by default."""

_passages: dict[Path, int] = {}
"""Passages of a point that a story made in a folder, if its server counted them."""


async def through_deaths(
    data: Path, story: Story, view: View, *dooms: str, environment: Mapping[str, str] | None = None
) -> int:
    """Tell ``story`` to server after server until it comes to its end; how many died on the way.

    Each doom is the next server's, the last one every further server's.
    """
    deaths = 0
    while True:
        server = Server(data, doom=dooms[min(deaths, len(dooms) - 1)], environment=environment)
        await server.begin()
        try:
            if not await server.is_ready():
                # It died of what it took up.
                assert await server.ended() == -9, server.log
            else:
                async with server.client() as client:
                    await story(client, view)
                assert await server.stop() == 0
                if server.count("passages"):
                    _passages[data] = (await server.logged("passages"))["count"]
                return deaths
        except aio.AioRpcError as problem:
            assert problem.code() is grpc.StatusCode.UNAVAILABLE, problem
            assert await server.ended() == -9, server.log
        finally:
            await server.stop()
        deaths += 1
        assert deaths < MOST, "no progress"


async def at_every(
    point: str,
    tell: Callable[[Path, str], Awaitable[int]],
    *,
    fresh: Path | None,
    folder: Path,
    chosen: int = CHOSEN,
) -> int:
    """Play a story whose server dies at the first passage of ``point``, one for the second, and so on.

    Return the number of passages of a story without a death. By default the server dies at ``chosen`` of
    them, at others for each point; in a deep run at each.

    The number of commits depends on the machine: a quick one writes more in each. A test may ask for one
    commit for each step that must be on disk before the next begins, and for no more.

    ``tell`` is given a folder of its own, a copy of ``fresh``, and the failpoint; it plays a story through
    that death, checks what is left, and returns the number of deaths. All journals replay afterwards.
    """

    async def one(number: int) -> int:
        data = folder / f"{number}"
        if fresh is not None:
            await asyncio.to_thread(shutil.copytree, fresh, data)
        try:
            died = await tell(data, f"{point}:{number}")
            await assert_replays(data)
        except Exception as problem:
            problem.add_note(f"It was killed at {point}:{number}.")
            raise
        await asyncio.to_thread(shutil.rmtree, data)
        return died

    assert await one(0) == 0
    passages = _passages.pop(folder / "0")
    assert passages < MOST
    numbers = choice(passages, chosen, point)
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(number: int) -> int:
        async with limit:
            return await one(number)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(limited(number)) for number in numbers]
    died = [task.result() for task in tasks]
    # A passage of the counted story may not come this time: its commit went into an earlier one.
    assert set(died) <= {0, 1} and (not died or any(died))
    return passages
