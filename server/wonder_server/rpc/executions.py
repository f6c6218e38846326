"""One run of a task, however many callers wait for it and whoever of them leaves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from wonder.v1 import task_pb2
from wonder_server.rpc.once import Kept
from wonder_server.services.executor import Progress, StepProgress, StepTrace

Run = Callable[[Progress], Awaitable[task_pb2.TaskResult]]
Told = StepTrace | StepProgress

MAX_BACKLOG: Final = 1_000
"""What a caller that does not read may have before it; beyond that, progress passes it by. Steps never do."""


class Execution:
    """Begins at once. Whoever asked for it takes `result` or `steps`, and says `leave` in the end."""

    def __init__(self, run: Run, *, outlives_callers: bool) -> None:
        """``outlives_callers``: goes on when they leave, since it can be asked for again."""
        self._outlives_callers = outlives_callers
        self._traces: list[StepTrace] = []
        self._backlogs: list[deque[Told]] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run(run))
        self._task.add_done_callback(lambda _: self._tell())

    async def result(self) -> task_pb2.TaskResult:
        """How it ended; waits for the end."""
        return await asyncio.shield(self._task)

    async def steps(self) -> AsyncIterator[Told]:
        """Every step as it begins and as it ends, from the first one, until the task is over; and progress,
        from now on."""
        backlog = deque[Told](self._traces)
        self._backlogs.append(backlog)
        try:
            while True:
                while backlog:
                    yield backlog.popleft()
                if self._task.done():
                    return
                await self._news.wait()
        finally:
            # By identity: two callers may have the same before them.
            self._backlogs = [each for each in self._backlogs if each is not backlog]

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

    def _progress(self, told: Told) -> None:
        if isinstance(told, StepTrace):
            self._traces.append(told)
        for backlog in self._backlogs:
            if isinstance(told, StepTrace) or len(backlog) < MAX_BACKLOG:
                backlog.append(told)
        self._tell()

    def _tell(self) -> None:
        """Wake those who watch; who comes later waits for the next news."""
        self._news.set()
        self._news = asyncio.Event()
