"""A seeded event loop: virtual time, random order of callbacks, no threads, no I/O.

Time moves only when nothing is ready, and then to the next timer. ``callback_s`` lets each callback take some
virtual time, so that timers also become due while work is ready.

**Order.** asyncio runs ready callbacks in the order of their registration. Code may rely on that within one
source, and must not between two: there, the order depends on the time that I/O takes. The loop therefore
keeps the order of the callbacks of one source and chooses the next source at random. The source of a
callback is

- the task, for the steps and wake-ups of a task;
- the object, for a bound method, also inside a `functools.partial`;
- the callback itself, for any other function.

**Processes.** A callback belongs to the `Process` in whose context it was registered. A process can die:
none of its callbacks runs afterwards, as after SIGKILL. Several processes can live on one loop, beside
callbacks of no process, which are those of the clients.

The same seed gives the same order. Nothing here depends on addresses, hashes or real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar
from functools import partial
from heapq import heappop, heappush
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

MAX_CALLBACKS = 300_000
"""Callbacks after which the loop gives up: the simulated program makes no progress."""


RESOLUTION_S = 1e-6
"""Shortest delay. A shorter one may be lost in rounding, and time would not move."""


MAX_THREAD_S = 0.005
"""Longest time that the work of a thread takes."""


MAX_CANCELS = 20
"""Times that `SeededLoop.close` cancels what has not ended."""


class DeadlockError(AssertionError):
    """Nothing is ready, no timer is set, and the main task has not ended."""


class LivelockError(AssertionError):
    """`MAX_CALLBACKS` ran, and the main task has not ended."""


class KilledError(BaseException):
    """Raised inside a callback in which its process dies, so that nothing of the callback follows."""


class Process:
    """A group of callbacks that end together. ``dies_after`` callbacks the process dies; None is never."""

    def __init__(self, name: str, on_death: Callable[[], None], dies_after: int | None = None) -> None:
        self.name = name
        self.is_dead = False
        self.callbacks = 0
        """Callbacks that have run."""
        self._dies_after = dies_after
        self._on_death = on_death

    def die(self) -> None:
        """End the process: none of its callbacks runs from now on."""
        if not self.is_dead:
            self.is_dead = True
            self._on_death()

    def kill_here(self) -> NoReturn:
        """End the process in the middle of a callback."""
        self.die()
        raise KilledError(self.name)

    def count_callback(self) -> bool:
        """Count a callback that is about to run. Return False if the process dies before it."""
        self.callbacks += 1
        if self.callbacks == self._dies_after:
            self.die()
        return not self.is_dead


current_process: ContextVar[Process | None] = ContextVar("current_process", default=None)
"""The process of the running callback, None for the clients."""

_Ready = tuple[asyncio.Handle, Process | None]


class SeededLoop(asyncio.AbstractEventLoop):
    """The loop. `run` runs a main task to its end."""

    def __init__(self, dice: random.Random, *, callback_s: float = 0.0) -> None:
        self.failures: list[str] = []
        """Exceptions that no one handled."""
        self.callbacks = 0
        """Callbacks that have run."""
        self._dice = dice
        self._callback_s = callback_s
        self._now_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Process | None]] = []
        self._timer_count = 0
        self._sources: list[tuple[object, deque[_Ready]]] = []
        """Sources with their ready callbacks, in no particular order."""
        self._queues: dict[int, deque[_Ready]] = {}
        """The same queues by the identity of their source."""
        self._parked: list[asyncio.Handle] = []
        """Callbacks of dead processes. `close` needs them to end their tasks."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._is_closing = False

    # --- run ------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run ``main`` to its end and return its result. Raises `DeadlockError` and `LivelockError`."""
        with self._running():
            task = self.create_task(main)
            while not task.done():
                self._run_once()
            return task.result()

    def close(self) -> None:
        """End all tasks, also those of dead processes, so that no coroutine is left over."""
        self._is_closing = True
        self._timers.clear()
        with self._running():
            for handle in self._parked:
                self._enqueue(handle, None)
            self._parked.clear()
            # A task that is cancelled may start another one, or wait once more.
            for _ in range(MAX_CANCELS):
                if all(task.done() for task in self._tasks):
                    break
                for task in self._tasks:
                    task.cancel()
                while self._sources:
                    self._run_once()
            for task in self._tasks:
                if task.done() and not task.cancelled():
                    task.exception()
        self._tasks.clear()

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    def _run_once(self) -> None:
        self._move_due_timers()
        if not self._sources:
            self._advance()
            return
        handle, process = self._next_ready()
        if handle.cancelled():
            return
        if process is not None and not self._is_closing:
            if process.is_dead or not process.count_callback():
                self._parked.append(handle)
                return
        self.callbacks += 1
        if self.callbacks > MAX_CALLBACKS and not self._is_closing:
            raise LivelockError(f"{MAX_CALLBACKS} callbacks ran without an end at {self._now_s:.3f} s")
        if self._callback_s:
            self._now_s += self._dice.random() * self._callback_s
        handle._run()

    def _next_ready(self) -> _Ready:
        """Remove and return the first callback of a random source."""
        sources = self._sources
        index = int(self._dice.random() * len(sources)) if len(sources) > 1 else 0
        source, queue = sources[index]
        ready = queue.popleft()
        if not queue:
            sources[index] = sources[-1]
            sources.pop()
            del self._queues[id(source)]
        return ready

    def _advance(self) -> None:
        """Move time to the next timer. Raises `DeadlockError` if there is none."""
        while self._timers:
            when, _, handle, process = self._timers[0]
            if handle.cancelled() or (process is not None and process.is_dead):
                heappop(self._timers)
                continue
            self._now_s = max(self._now_s, when)
            return
        waiting = [task.get_name() for task in self._tasks if not task.done()]
        raise DeadlockError(
            f"nothing is ready and no timer is set at {self._now_s:.3f} s; waiting: {waiting}"
        )

    def _move_due_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self._now_s:
            _, _, handle, process = heappop(self._timers)
            if not handle.cancelled():
                self._enqueue(handle, process)

    def _enqueue(self, handle: asyncio.Handle, process: Process | None) -> None:
        source = _source(handle)
        queue = self._queues.get(id(source))
        if queue is None:
            queue = self._queues[id(source)] = deque()
            self._sources.append((source, queue))
        queue.append((handle, process))

    # --- the part of asyncio's interface that needs no I/O --------------------------------------

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle, _process_of(context))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + max(delay, RESOLUTION_S), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        if not self._is_closing:
            heappush(self._timers, (when, self._timer_count, handle, _process_of(context)))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by a timer that is cancelled. It leaves the heap when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name or f"task {len(self._tasks)}", context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        """Run the work of a thread, after a random time. A process that dies before loses it."""
        done: asyncio.Future[T] = self.create_future()
        self.call_later(self._dice.random() * MAX_THREAD_S, _complete, done, func, args)
        return done

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an exception that no one handled, except a `KilledError`."""
        problem = context.get("exception")
        if not self._is_closing and not isinstance(problem, KilledError):
            self.failures.append(f"{context.get('message')}: {problem!r}")


def _complete(done: asyncio.Future[T], func: Callable[..., T], args: tuple[object, ...]) -> None:
    if done.cancelled():
        return
    try:
        done.set_result(func(*args))
    except Exception as problem:
        done.set_exception(problem)


def _process_of(context: Context | None) -> Process | None:
    return current_process.get() if context is None else context.get(current_process, None)


def _source(handle: asyncio.Handle) -> object:
    """Return the source of a callback; see the head of the module."""
    callback = handle._callback  # type: ignore[attr-defined]
    while isinstance(callback, partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    return callback if owner is None else owner
