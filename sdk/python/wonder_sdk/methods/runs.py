"""`Run`: a handle of a workflow run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Protocol

from wonder_sdk._proto.wonder import v1
from wonder_sdk.conversation.subscriptions import RunItem
from wonder_sdk.errors import DeadlineExceededError, from_fault
from wonder_sdk.json_types import JsonDict, JsonValue
from wonder_sdk.methods.options import to_seconds
from wonder_sdk.values import from_struct

ENDED = frozenset({v1.RunStatus.COMPLETED, v1.RunStatus.FAILED, v1.RunStatus.CANCELLED})
"""Statuses of a run that has ended."""


class RunCalls(Protocol):
    """The client's methods that a `Run` uses."""

    async def get_run(self, run_id: str) -> v1.Run: ...

    async def cancel_run(self, run_id: str, reason: str = "") -> v1.Run: ...

    async def signal_run(self, run_id: str, name: str, payload: JsonValue = None) -> int: ...

    def watch_run(
        self, run_id: str, *, after_sequence: int = 0, include_progress: bool = False
    ) -> AsyncGenerator[RunItem, None]: ...

    def list_gates(self, *, run: str = "") -> AsyncIterator[v1.Gate]: ...


class Run:
    """A run, from `Client.start_run`, `Client.fork_run` or `Client.attach_run`.

    It is a handle of a run on the server: dropping it does not end the run, and lost connections are
    restored. `result` waits for the end.
    """

    def __init__(self, calls: RunCalls, run_id: str, record: v1.Run | None = None) -> None:
        self.id = run_id
        self.record = record
        """The run as of the server's last answer; None before the first."""
        self._calls = calls

    def __repr__(self) -> str:
        status = f", {self.record.status.name.lower()}" if self.record and self.record.status.name else ""
        return f"Run({self.id}{status})"

    @property
    def has_ended(self) -> bool:
        """True if the server has reported the run's end; see `wait`."""
        return self.record is not None and self.record.status in ENDED

    async def result(self, timeout: float | None = None) -> JsonDict:
        """Wait for the end and return the output.

        Raises the run's error as a `WonderError` if it failed or was cancelled. Raises DeadlineExceededError
        if it has not ended after ``timeout`` seconds; the run continues.
        """
        record = await self.wait(timeout)
        if record.status is not v1.RunStatus.COMPLETED:
            raise from_fault(record.error or v1.Fault(reason=v1.ErrorReason.RUN_FAILED))
        return from_struct(record.output)

    async def wait(self, timeout: float | None = None) -> v1.Run:
        """Wait for the end with any outcome, and return the run.

        ``timeout`` is in seconds; None waits without one. Raises DeadlineExceededError as `result`, and
        `RequestError`, which is a ValueError, for a timeout that is negative, infinite or no number.
        """
        if timeout is not None:
            to_seconds(timeout, "timeout")
        if self.record is not None and self.has_ended:
            return self.record
        try:
            async with asyncio.timeout(timeout):
                return await self._end()
        except TimeoutError:
            raise DeadlineExceededError(
                f"{self.id} has not ended after {timeout:g} s; it continues.", metadata={"run_id": self.id}
            ) from None

    async def refresh(self) -> v1.Run:
        """Read the run from the server and return it."""
        self.record = await self._calls.get_run(self.id)
        return self.record

    def watch(
        self, *, after_sequence: int = 0, include_progress: bool = False
    ) -> AsyncGenerator[RunItem, None]:
        """Yield the run's events until it has ended; see `Client.watch_run`."""
        return self._calls.watch_run(
            self.id, after_sequence=after_sequence, include_progress=include_progress
        )

    async def cancel(self, reason: str = "") -> None:
        """Cancel the run. Raises FailedPreconditionError if it has ended."""
        self.record = await self._calls.cancel_run(self.id, reason)

    async def signal(self, name: str, payload: JsonValue = None) -> None:
        """Send the run a signal. Expressions read it as ``signals.<name>``; wait nodes receive it."""
        await self._calls.signal_run(self.id, name, payload)

    def gates(self) -> AsyncIterator[v1.Gate]:
        """Yield the run's open gates. Pass them to `Client.approve` or `Client.reject`."""
        return self._calls.list_gates(run=self.id)

    async def _end(self) -> v1.Run:
        after = self.record.last_sequence if self.record else 0
        async with aclosing(self.watch(after_sequence=after)) as items:
            async for item in items:
                match item:
                    case (
                        v1.RunEvent(workflow_completed=v1.Run() as ended)
                        | v1.RunEvent(workflow_failed=v1.Run() as ended)
                        | v1.RunEvent(workflow_cancelled=v1.Run() as ended)
                    ) if _has_outcome(ended):
                        self.record = ended
                        return ended
                    case _:
                        pass
        return await self.refresh()


def _has_outcome(ended: v1.Run) -> bool:
    """Return True if the event of the run's end contains its outcome."""
    return ended.output is not None or ended.error is not None
