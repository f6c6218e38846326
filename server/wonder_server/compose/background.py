"""Background work: tasks that nothing awaits, and whose failures are logged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from wonder_server.logs import logger

_log = logger("server")


class Background:
    """A group of tasks that end with their context. The failure of one leaves the others running."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run ``work`` until it ends or the context is closed. ``name`` identifies it in the log."""
        task = asyncio.create_task(log_failure(name, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel(self) -> None:
        """Cancel every task and wait until each has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def open_background() -> AsyncIterator[Background]:
    """Yield a group of tasks. Cancel them on exit."""
    background = Background()
    try:
        yield background
    finally:
        await background.cancel()


async def log_failure(name: str, work: Coroutine[object, object, None]) -> None:
    """Await ``work`` and log its failure as ``background_task_failed``."""
    try:
        await work
    except Exception:
        _log.exception("background_task_failed", work=name)
