"""Requests of one moment, carried out together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

MAX_BATCH_REQUESTS: Final = 64
MAX_BATCH_BYTES: Final = 16 << 20


class RequestBatcher(Generic[Q, A]):
    """Takes requests; while one group is carried out, the next one gathers.

    ``act`` carries out a group and returns for each request its answer or the error that it ends with. An
    error that ``act`` raises ends all of the group. A group has at most 64 requests, and 16 MiB of ``size``.
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
        """Return the answer to one request. It is carried out even if the caller goes away."""
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
        count, left = 0, MAX_BATCH_BYTES
        while count < min(len(self._waiting), MAX_BATCH_REQUESTS):
            left -= self._size(self._waiting[count][0])
            if count and left < 0:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group
