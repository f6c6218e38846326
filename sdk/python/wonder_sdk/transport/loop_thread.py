"""An event loop in its own thread, for programs without asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from wonder_sdk.errors import WonderError

T = TypeVar("T")

_POLL_SECONDS = 0.5
# Maximum wait of `close` for the thread. The thread also ends later by itself or with the process.
_CLOSE_SECONDS = 1.0


class LoopThread:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="wonder sdk", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        # The thread cleans up itself, because an interrupt can end the wait of `close`.
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_others())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def run(self, start: Callable[[], Awaitable[T]]) -> T:
        """Call ``start`` on the loop and wait for its result. An interrupt cancels it."""

        async def work() -> T:
            return await start()

        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            self.wait(future)
            return future.result()
        except WonderError as problem:
            # The traceback of the other thread does not help the caller.
            raise problem.with_traceback(None) from None
        except BaseException:
            future.cancel()
            raise

    def submit(self, callback: Callable[[], None]) -> None:
        """Schedule ``callback`` on the loop without waiting."""
        self._loop.call_soon_threadsafe(callback)

    def wait(self, future: Future[T]) -> None:
        """Wait until ``future`` is done."""
        # Python handles a signal that arrives just before the wait only after it, so each wait is short.
        while not future.done():
            self.wait_briefly(future, _POLL_SECONDS)

    def wait_briefly(self, future: Future[T], seconds: float) -> bool:
        """Wait at most ``seconds`` for ``future``. Return True if it is done."""
        if not future.done():
            wait([future], timeout=seconds)
        return future.done()

    def call(self, make: Callable[[], T]) -> T:
        """Call the synchronous ``make`` on the loop and return its result."""

        async def work() -> T:
            return make()

        return self.run(work)

    def close(self) -> None:
        """Cancel the remaining tasks and end the thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Step(Generic[T]):
    """One step of an asynchronous iterator. Repeated calls of `begin` take it once."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self.future: Future[T] = Future()
        self._items = items
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        self.future.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self.future.set_result(await anext(self._items))
        except asyncio.CancelledError:
            self.future.cancel()
            raise
        except BaseException as problem:
            self.future.set_exception(problem)


class SyncIterator(Generic[T]):
    """A blocking iterator over an asynchronous one.

    A KeyboardInterrupt loses no item: the next step continues the interrupted one.
    """

    def __init__(self, loop_thread: LoopThread, items: AsyncIterator[T]) -> None:
        self._loop_thread, self._items = loop_thread, items
        self._step: _Step[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def ready(self, *, within: float) -> bool:
        """Wait at most ``within`` seconds for the next item. Return True if `next` would not block."""
        return self._loop_thread.wait_briefly(self._begin().future, within)

    def close(self) -> None:
        """Cancel the wait for the next item, which may be lost. The asynchronous iterator stays open."""
        if self._step is not None:
            self._loop_thread.submit(self._step.cancel)
            self._step = None

    def _begin(self) -> _Step[T]:
        step = self._step = self._step or _Step(self._items)
        self._loop_thread.submit(step.begin)
        return step

    def __next__(self) -> T:
        step = self._begin()
        self._loop_thread.wait(step.future)
        self._step = None
        try:
            return step.future.result()
        except StopAsyncIteration:
            raise StopIteration from None
        except WonderError as problem:
            raise problem.with_traceback(None) from None
