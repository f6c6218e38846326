"""Background work ends with its context, and its failures are logged."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from wonder_server.compose.background import open_background


async def fail() -> None:
    raise ValueError("unexpected")


async def test_a_failed_task_is_logged_and_leaves_the_others_running() -> None:
    finish = asyncio.Event()

    async def finish_later() -> None:
        await asyncio.sleep(0)
        finish.set()

    with capture_logs() as lines:
        async with open_background() as background:
            background.start("first", fail())
            background.start("second", finish_later())
            await finish.wait()
    assert [(line["event"], line["work"]) for line in lines] == [("background_task_failed", "first")]


async def test_tasks_are_cancelled_when_the_context_ends() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait_forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with open_background() as background:
        background.start("endless", wait_forever())
        await started.wait()
    assert ended.is_set()
