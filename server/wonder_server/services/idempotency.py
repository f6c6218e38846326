"""Execution of idempotent requests: concurrent ones are coalesced, completed ones are remembered and expire.

A store keeps the answer of a request in the transaction of its effect, under the key of
`wonder_server.core.idempotency`: the catalog its result, the memory store the memory, git the commit. The
parts here do the rest:

- `RequestLocks` executes requests with one key one after another, so that the second finds the stored answer.
- `RecentRequests` remembers the latest requests of this process, for answers that no store keeps.
- `RecentExecutions` does both for requests whose effect a store recognizes after a restart.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from wonder_server.core.errors import Reason, error
from wonder_server.core.idempotency import IdempotencyKey, check_fingerprint

A = TypeVar("A")
T = TypeVar("T")


class RequestLocks:
    """Requests that are executing. A completed request is recognized by its stored answer."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    async def execute(
        self,
        key: IdempotencyKey | None,
        find: Callable[[], Awaitable[tuple[A, str] | None]],
        execute: Callable[[], Awaitable[T]],
    ) -> T | A:
        """Return the result of ``execute``, or the stored answer of an earlier request with this key.

        ``find`` returns the stored answer and its fingerprint. Execution continues if the caller is
        cancelled. Raises REQUEST_ID_REUSED if the earlier request had another fingerprint.
        """
        if key is None:
            return await execute()
        lock = self._locks.setdefault(key.id, asyncio.Lock())

        async def execute_locked() -> T | A:
            async with lock:
                if (earlier := await find()) is None:
                    return await execute()
                answer, fingerprint = earlier
                check_fingerprint(fingerprint, key)
                return answer

        try:
            return await asyncio.shield(asyncio.ensure_future(execute_locked()))
        finally:
            if not lock.locked():
                self._locks.pop(key.id, None)


@dataclass(slots=True)
class _Entry(Generic[T]):
    fingerprint: str
    value: T
    size: int = 0
    is_complete: bool = False


class RecentRequests(Generic[T]):
    """Results of the latest requests with a ``request_id``, separate for each caller.

    The number and the total size are limited. Above a limit the oldest completed requests are discarded
    first; running requests are never discarded.
    """

    def __init__(self, *, limit: int = 1_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()

    def find(self, key: IdempotencyKey) -> T | None:
        """Return the value of an earlier request with this key, or None.

        Raises REQUEST_ID_REUSED if another request used the id.
        """
        entry = self._entries.get(key.id)
        if entry is None:
            return None
        check_fingerprint(entry.fingerprint, key)
        return entry.value

    def check_capacity(self) -> None:
        """Make space for one more request. Raises LIMIT_EXCEEDED if every stored request is still running."""
        if len(self._entries) >= self._limit and not self._discard_oldest():
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"{self._limit} requests with a request_id are being served; try again later.",
                retry_after_ms=1_000,
                limit=str(self._limit),
            )

    def reserve(self, key: IdempotencyKey, value: T) -> RequestSlot[T]:
        """Store ``value`` for a request that starts. Raises LIMIT_EXCEEDED as `check_capacity`."""
        self.check_capacity()
        self._entries[key.id] = _Entry(key.fingerprint, value)
        return RequestSlot(self, key.id)

    def complete(self, key: str, size: int) -> None:
        """Mark the request as completed, with a result of ``size`` bytes."""
        entry = self._entries[key]
        entry.size, entry.is_complete = size, True
        self._bytes += size
        while self._bytes > self._max_bytes and self._discard_oldest():
            pass

    def discard(self, key: str) -> None:
        """Remove a request, so that it can be sent again."""
        self._bytes -= self._entries.pop(key).size

    def _discard_oldest(self) -> bool:
        oldest = next((key for key, entry in self._entries.items() if entry.is_complete), None)
        if oldest is not None:
            self.discard(oldest)
        return oldest is not None


@dataclass(frozen=True, slots=True)
class RequestSlot(Generic[T]):
    """The entry of one request in `RecentRequests`. Call `complete` or `discard`, once."""

    requests: RecentRequests[T]
    key: str

    def complete(self, size: int = 0) -> None:
        """Mark the request as completed, with a result of ``size`` bytes."""
        self.requests.complete(self.key, size)

    def discard(self) -> None:
        """Remove the failed request, so that it can be sent again."""
        self.requests.discard(self.key)


class RecentExecutions:
    """Executions of the latest requests. A repeated request waits for the first, then reads its effect."""

    def __init__(self) -> None:
        self._recent = RecentRequests[asyncio.Event]()
        self._running: set[asyncio.Task[object]] = set()

    async def execute(
        self,
        key: IdempotencyKey | None,
        execute: Callable[[], Awaitable[T]],
        repeat: Callable[[], Awaitable[T]],
    ) -> T:
        """Call ``execute`` for a new request, or ``repeat`` for one that was executed before.

        A request with a key is executed to its end even if the caller leaves. Raises REQUEST_ID_REUSED and
        LIMIT_EXCEEDED.
        """
        if key is None:
            return await execute()
        while (done := self._recent.find(key)) is not None:
            if done.is_set():
                return await repeat()
            await done.wait()
        done = asyncio.Event()
        slot = self._recent.reserve(key, done)
        task = asyncio.create_task(_execute(execute, done, slot))
        self._running.add(task)
        task.add_done_callback(self._on_done)
        return await asyncio.shield(task)

    def _on_done(self, task: asyncio.Task[T]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Marks the exception as retrieved; asyncio logs it otherwise.


async def _execute(
    execute: Callable[[], Awaitable[T]], done: asyncio.Event, slot: RequestSlot[asyncio.Event]
) -> T:
    try:
        answer = await execute()
    except BaseException:
        slot.discard()
        raise
    else:
        slot.complete()
        return answer
    finally:
        done.set()
