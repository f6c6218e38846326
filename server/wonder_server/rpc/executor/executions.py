"""One run of a task, however many callers wait for it and whoever of them leaves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from wonder.v1 import task_pb2
from wonder_server.rpc.shared.idempotency import RequestSlot
from wonder_server.services.tasks.executor import Progress, StepProgress, StepTrace

TaskRunner = Callable[[Progress], Awaitable[task_pb2.TaskResult]]
ProgressItem = StepTrace | StepProgress

MAX_BACKLOG: Final = 1_000
"""What a caller that does not read may have before it; beyond that, progress passes it by. Steps never do."""


class Execution:
    """Begins at once. Whoever asked for it takes `result` or `steps`, and says `leave` in the end."""

    def __init__(self, run: TaskRunner, *, outlives_callers: bool) -> None:
        """``outlives_callers``: goes on when they leave, since it can be asked for again."""
        self._outlives_callers = outlives_callers
        self._traces: list[StepTrace] = []
        self._backlogs: list[deque[ProgressItem]] = []
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(run))
        self._task.add_done_callback(lambda _: self._notify())

    async def result(self) -> task_pb2.TaskResult:
        """How it ended; waits for the end."""
        return await asyncio.shield(self._task)

    async def steps(self) -> AsyncIterator[ProgressItem]:
        """Every step as it begins and as it ends, from the first one, until the task is over; and progress,
        from now on."""
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
            # By identity: two callers may have the same before them.
            self._backlogs = [each for each in self._backlogs if each is not backlog]

    def release(self) -> None:
        """The caller goes. An execution that belongs to its caller ends with that."""
        if not self._outlives_callers:
            self._task.cancel()

    async def cancel(self) -> None:
        """Stop it, and wait until it has stopped."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def complete_slot_when_done(self, slot: RequestSlot[Execution]) -> None:
        """Settle its place among the recent requests when it is over."""

        def settle(task: asyncio.Task[task_pb2.TaskResult]) -> None:
            if task.cancelled() or task.exception() is not None:
                slot.discard()
            else:
                slot.complete(task.result().ByteSize())

        self._task.add_done_callback(settle)

    def on_done(self, callback: Callable[[Execution], None]) -> None:
        """Call ``then`` when it is over, however it ended."""
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
        """Wake those who watch; who comes later waits for the next news."""
        self._changed.set()
        self._changed = asyncio.Event()
