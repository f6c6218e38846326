"""One run of a task, however many callers wait for it and whoever of them leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from wonder.v1 import task_pb2
from wonder_server.rpc.once import Kept
from wonder_server.services.executor import Progress, StepTrace

Run = Callable[[Progress], Awaitable[task_pb2.TaskResult]]


class Execution:
    """Begins at once. Whoever asked for it takes `result` or `steps`, and says `leave` in the end."""

    def __init__(self, run: Run, *, outlives_callers: bool) -> None:
        """``outlives_callers``: goes on when they leave, since it can be asked for again."""
        self._outlives_callers = outlives_callers
        self._told: list[StepTrace] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run(run))
        self._task.add_done_callback(lambda _: self._tell())

    async def result(self) -> task_pb2.TaskResult:
        """How it ended; waits for the end."""
        return await asyncio.shield(self._task)

    async def steps(self) -> AsyncIterator[StepTrace]:
        """Every step as it begins and as it ends, from the first one, until the task is over."""
        seen = 0
        while True:
            while seen < len(self._told):
                yield self._told[seen]
                seen += 1
            if self._task.done():
                return
            await self._news.wait()

    def leave(self) -> None:
        """The caller goes. An execution that belongs to its caller ends with that."""
        if not self._outlives_callers:
            self._task.cancel()

    async def cancel(self) -> None:
        """Stop it, and wait until it has stopped."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def keep(self, kept: Kept[Execution]) -> None:
        """Settle its place among the recent requests when it is over."""

        def settle(task: asyncio.Task[task_pb2.TaskResult]) -> None:
            if task.cancelled() or task.exception() is not None:
                kept.forget()
            else:
                kept.settle(task.result().ByteSize())

        self._task.add_done_callback(settle)

    def when_over(self, then: Callable[[Execution], None]) -> None:
        """Call ``then`` when it is over, however it ended."""
        self._task.add_done_callback(lambda _: then(self))

    async def _run(self, run: Run) -> task_pb2.TaskResult:
        return await run(self._progress)

    def _progress(self, step: StepTrace) -> None:
        self._told.append(step)
        self._tell()

    def _tell(self) -> None:
        """Wake those who watch; who comes later waits for the next news."""
        self._news.set()
        self._news = asyncio.Event()
