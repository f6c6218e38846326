"""Helpers of worker tests: a pool whose clock moves by hand, jobs, and messages to workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from wonder_server.core.actor.commands import Scope
from wonder_server.core.errors import Fault, WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.services.workers import (
    AssignmentMessage,
    Job,
    Registration,
    WorkerKind,
    WorkerMessage,
    WorkerPool,
    WorkerSession,
)

LEASE_S = 30.0


class Time:
    """The event loop's clock and timers, advanced by hand. Implements the port ``Clock`` too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = 1_000.0
        self._timers: list[asyncio.TimerHandle] = []
        monkeypatch.setattr(self._loop, "time", lambda: self._now)
        monkeypatch.setattr(self._loop, "call_later", self._call_later)

    def now_ms(self) -> int:
        return round(self._now * 1_000)

    def _call_later(self, delay: float, callback: Callable[..., None], *given: Any) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self._now + delay, callback, given, self._loop)
        self._timers.append(handle)
        return handle

    @property
    def pending(self) -> int:
        """Number of active timers."""
        return sum(not each.cancelled() for each in self._timers)

    async def advance(self, seconds: float) -> None:
        """Advance the clock; every timer fires at its time."""
        end = self._now + seconds
        while due := [each for each in self._timers if not each.cancelled() and each.when() <= end]:
            first = min(due, key=lambda each: each.when())
            self._timers.remove(first)
            self._now = max(self._now, first.when())
            first._run()
            await run_pending()
        self._now = end
        await run_pending()


async def run_pending() -> None:
    """Run all callbacks that are ready."""
    for _ in range(10):
        await asyncio.sleep(0)


def kind(name: str = "ocr", **more: Any) -> WorkerKind:
    return WorkerKind(name=name, **more)


def join(pool: WorkerPool, *kinds: WorkerKind | str, name: str = "w", **more: Any) -> WorkerSession:
    declared = tuple(kind(each) if isinstance(each, str) else each for each in kinds)
    return pool.join(Registration(name=name, kinds=declared or (kind(),), **more))


def job(operation_id: str = "op_1", kind: str = "ocr", **more: Any) -> Job:
    project = more.pop("project", "proj_1")
    fields = {"input": {}, "timeout_ms": 600_000, "context": Scope(project_id=project), **more}
    return Job(kind=kind, operation_id=operation_id, **fields)


class PendingJob:
    """A job whose caller waits for the result."""

    def __init__(self, pool: WorkerPool, job: Job) -> None:
        self.task = asyncio.create_task(pool.perform(job))

    async def result(self) -> JsonDict:
        await run_pending()
        assert self.task.done()
        return await self.task

    async def fault(self) -> Fault:
        await run_pending()
        assert self.task.done()
        with pytest.raises(WonderError) as problem:
            await self.task
        return problem.value.fault

    async def waits(self) -> bool:
        await run_pending()
        return not self.task.done()

    async def cancel(self) -> None:
        self.task.cancel()
        await run_pending()
        assert self.task.cancelled()


async def submit(pool: WorkerPool, operation_id: str = "op_1", kind: str = "ocr", **more: Any) -> PendingJob:
    pending = PendingJob(pool, job(operation_id, kind, **more))
    await run_pending()
    return pending


async def messages_of(session: WorkerSession) -> list[WorkerMessage]:
    """Return the messages to a worker that are ready to send."""
    messages: list[WorkerMessage] = []
    while True:
        taking = asyncio.ensure_future(session.next_message())
        await run_pending()
        if not taking.done():
            taking.cancel()
            await run_pending()
            return messages
        message = taking.result()
        if message is None:
            return messages
        messages.append(message)


async def assignments_of(session: WorkerSession) -> list[AssignmentMessage]:
    """Return the assignments to a worker that are ready to send; it has no other messages."""
    messages = await messages_of(session)
    assert all(isinstance(message, AssignmentMessage) for message in messages), messages
    return [message for message in messages if isinstance(message, AssignmentMessage)]


async def only_assignment(session: WorkerSession) -> AssignmentMessage:
    (assignment,) = await assignments_of(session)
    return assignment


def operations(assignments: list[AssignmentMessage]) -> list[str]:
    return [message.job.operation_id for message in assignments]
