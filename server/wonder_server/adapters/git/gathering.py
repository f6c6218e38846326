"""Requests of one moment, carried out together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

MOST: Final = 64
MOST_BYTES: Final = 16 << 20


class Gathered(Generic[Q, A]):
    """Takes requests; while one group is carried out, the next one gathers.

    ``act`` carries out a group and returns for each request its answer or the error that it ends with. An
    error that ``act`` raises ends all of the group. A group has at most 64 requests, and 16 MiB of ``size``.
    """

    def __init__(
        self,
        act: Callable[[Sequence[Q]], Awaitable[Sequence[A | Exception]]],
        size: Callable[[Q], int] = lambda _: 0,
    ) -> None:
        self._act = act
        self._size = size
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._working: asyncio.Task[None] | None = None

    async def ask(self, request: Q) -> A:
        """Return the answer to one request. It is carried out even if the caller goes away."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        try:
            while self._waiting:
                group = self._next()
                try:
                    answers = await self._act([request for request, _ in group])
                except Exception as problem:
                    answers = [problem] * len(group)
                for (_, answer), said in zip(group, answers, strict=True):
                    if answer.done():
                        continue
                    if isinstance(said, Exception):
                        answer.set_exception(said)
                    else:
                        answer.set_result(said)
        finally:
            self._working = None
            for _, answer in self._waiting:
                answer.cancel()

    def _next(self) -> list[tuple[Q, asyncio.Future[A]]]:
        count, left = 0, MOST_BYTES
        while count < min(len(self._waiting), MOST):
            left -= self._size(self._waiting[count][0])
            if count and left < 0:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group
