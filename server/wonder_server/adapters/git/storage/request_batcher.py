"""Batching of concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

MAX_BATCH_REQUESTS: Final = 64
MAX_BATCH_BYTES: Final = 16 << 20


class RequestBatcher(Generic[Q, A]):
    """Collect requests while one batch runs, and execute them together in the next.

    ``execute`` returns for each request of a batch its answer or its error. If ``execute`` raises, all
    requests of the batch fail. A batch has at most `MAX_BATCH_REQUESTS` requests and `MAX_BATCH_BYTES` of
    ``size``.
    """

    def __init__(
        self,
        execute: Callable[[Sequence[Q]], Awaitable[Sequence[A | Exception]]],
        size: Callable[[Q], int] = lambda _: 0,
    ) -> None:
        self._execute = execute
        self._size = size
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, request: Q) -> A:
        """Return the answer to one request. The request runs even if the caller is cancelled."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                group = self._take_batch()
                try:
                    answers = await self._execute([request for request, _ in group])
                except Exception as problem:
                    answers = [problem] * len(group)
                for (_, answer), result in zip(group, answers, strict=True):
                    if answer.done():
                        continue
                    if isinstance(result, Exception):
                        answer.set_exception(result)
                    else:
                        answer.set_result(result)
        finally:
            self._worker = None
            for _, answer in self._waiting:
                answer.cancel()

    def _take_batch(self) -> list[tuple[Q, asyncio.Future[A]]]:
        count, remaining = 0, MAX_BATCH_BYTES
        while count < min(len(self._waiting), MAX_BATCH_REQUESTS):
            remaining -= self._size(self._waiting[count][0])
            if count and remaining < 0:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group
