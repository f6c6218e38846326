"""One execution of a task for any number of waiting callers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from wonder.v1 import task_pb2
from wonder_server.services.idempotency import RequestSlot
from wonder_server.services.tasks.executor import Progress, StepProgress, StepTrace

TaskRunner = Callable[[Progress], Awaitable[task_pb2.TaskResult]]
ProgressItem = StepTrace | StepProgress

MAX_BACKLOG: Final = 1_000
"""Maximum items that wait for one caller. Above it the caller misses progress, but never a step."""


class Execution:
    """An execution that starts at once. Its callers read `result` or `steps` and then call `release`."""

    def __init__(self, run: TaskRunner, *, outlives_callers: bool) -> None:
        """Start the execution. With ``outlives_callers`` it continues when its callers leave."""
        self._outlives_callers = outlives_callers
        self._traces: list[StepTrace] = []
        self._backlogs: list[deque[ProgressItem]] = []
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(run))
        self._task.add_done_callback(lambda _: self._notify())

    async def result(self) -> task_pb2.TaskResult:
        """Wait for the end and return the result."""
        return await asyncio.shield(self._task)

    async def steps(self) -> AsyncIterator[ProgressItem]:
        """Yield every step as it starts and ends, from the first step to the end, and new progress."""
        backlog = deque[ProgressItem](self._traces)
        self._backlogs.append(backlog)
        try:
            while True:
                while backlog:
                    yield backlog.popleft()
                if self._task.done():
                    return
                await self._changed.wait()
        finally:
            # Compare by identity: two callers can have equal backlogs.
            self._backlogs = [each for each in self._backlogs if each is not backlog]

    def release(self) -> None:
        """Detach a caller. An execution that belongs to its caller is cancelled."""
        if not self._outlives_callers:
            self._task.cancel()

    async def cancel(self) -> None:
        """Cancel the execution, and wait until it has stopped."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def complete_slot_when_done(self, slot: RequestSlot[Execution]) -> None:
        """Complete the execution's slot in the recent requests when it ends."""

        def settle(task: asyncio.Task[task_pb2.TaskResult]) -> None:
            if task.cancelled() or task.exception() is not None:
                slot.discard()
            else:
                slot.complete(task.result().ByteSize())

        self._task.add_done_callback(settle)

    def on_done(self, callback: Callable[[Execution], None]) -> None:
        """Call ``callback`` when the execution ends, with any outcome."""
        self._task.add_done_callback(lambda _: callback(self))

    async def _run(self, run: TaskRunner) -> task_pb2.TaskResult:
        return await run(self._on_progress)

    def _on_progress(self, item: ProgressItem) -> None:
        if isinstance(item, StepTrace):
            self._traces.append(item)
        for backlog in self._backlogs:
            if isinstance(item, StepTrace) or len(backlog) < MAX_BACKLOG:
                backlog.append(item)
        self._notify()

    def _notify(self) -> None:
        """Wake the current readers; later ones wait for the next item."""
        self._changed.set()
        self._changed = asyncio.Event()
