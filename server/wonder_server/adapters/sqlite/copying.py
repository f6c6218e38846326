"""Copies of databases that serve meanwhile, all of one instant.

A copy runs in the writer thread of its database, through the same connection, in steps of `STEP_PAGES`.
Between two steps the thread executes its jobs for several times as long as the step took, and SQLite repeats
each change of a copied page in the copy. Before its last step a copy waits for the others (`Cut`), still
executing jobs. When the last one has come, all threads stop executing jobs, finish their copies, and go on.
So no job runs in any database between the first and the last end of a copy: together the copies are what a
kill of the server at that instant would leave.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Final

STEP_PAGES: Final = 64
"""Pages of one step: 256 KiB, about half a millisecond."""
REST_FACTOR: Final = 10
"""Time for jobs after a step, in times of the step."""
MIN_REST_S: Final = 0.002
MAX_REST_S: Final = 0.25
CUT_TIMEOUT_S: Final = 10.0
"""Time in which all threads stop executing jobs once all copies wait for each other."""

Serve = Callable[[float], None]
"""Executes jobs for a number of seconds. Raises `CopyStoppedError`."""


class CopyStoppedError(Exception):
    """The copy was given up: its caller left, another copy failed, or the database closes."""


class Cut:
    """The common end of several copies."""

    def __init__(self, copies: int) -> None:
        self._lock = threading.Lock()
        self._missing = copies
        self._all_wait = threading.Event()
        self._barrier = threading.Barrier(copies)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Give all copies up that have not passed the cut."""
        self._stopped.set()
        self._barrier.abort()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def arrive(self) -> None:
        """Report that a copy has its last step before it."""
        with self._lock:
            self._missing -= 1
            if not self._missing:
                self._all_wait.set()

    @property
    def is_due(self) -> bool:
        """True once every copy has arrived."""
        return self._all_wait.is_set()

    def wait_for_all(self) -> None:
        """Wait until every thread has stopped executing jobs. Raises `CopyStoppedError`."""
        try:
            self._barrier.wait(CUT_TIMEOUT_S)
        except threading.BrokenBarrierError:
            raise CopyStoppedError from None


class DatabaseCopy:
    """One copy to the new file ``target``. `run` executes it in the writer thread.

    ``on_arrival`` is called in that thread once the last step is all that is left.
    """

    def __init__(self, target: Path, cut: Cut, on_arrival: Callable[[], None]) -> None:
        self._target = target
        self._cut = cut
        self._on_arrival = on_arrival
        self._pages = STEP_PAGES
        self._has_arrived = False
        self._is_cut = False
        self._step_began = 0.0

    def run(self, connection: sqlite3.Connection, serve: Serve) -> None:
        """Copy the database. Raises `CopyStoppedError`, and the errors of SQLite."""
        if self._cut.is_stopped:
            raise CopyStoppedError
        target = sqlite3.connect(self._target, isolation_level=None)
        try:
            # A copy that does not end is worth nothing, so it needs neither a journal nor a flush.
            target.execute("PRAGMA synchronous = OFF").fetchall()
            target.execute("PRAGMA journal_mode = OFF").fetchall()
            # The first step is not the last one, so that every copy waits for the others.
            self._pages = max(1, min(STEP_PAGES, _page_count(connection) // 2))
            self._step_began = monotonic()

            def after_step(_status: int, remaining: int, total: int) -> None:
                self._after_step(connection, serve, total - remaining)

            connection.backup(target, pages=self._pages, progress=after_step, sleep=0)
        except BaseException:
            self._cut.stop()
            raise
        finally:
            target.close()

    def _after_step(self, connection: sqlite3.Connection, serve: Serve, copied: int) -> None:
        if self._is_cut:
            return  # The jobs of all databases wait for the end of the copies.
        self._rest(serve, REST_FACTOR * (monotonic() - self._step_began))
        while not self._cut.is_due and _page_count(connection) - copied <= self._pages:
            if not self._has_arrived:
                self._has_arrived = True
                self._on_arrival()
                self._cut.arrive()
            self._rest(serve, MIN_REST_S)
        if self._cut.is_due:
            self._cut.wait_for_all()
            self._is_cut = True
        self._step_began = monotonic()

    def _rest(self, serve: Serve, seconds: float) -> None:
        if not self._cut.is_due and not self._cut.is_stopped:
            serve(max(MIN_REST_S, min(MAX_REST_S, seconds)))
        if self._cut.is_stopped:
            raise CopyStoppedError


CopyQueue = queue.SimpleQueue[tuple[DatabaseCopy, Callable[[BaseException | None], None]]]
"""Copies that were asked for, each with the function that gets its error or None."""


def run_copies(
    copies: CopyQueue, connection: sqlite3.Connection | None = None, serve: Serve | None = None
) -> None:
    """Run all copies of a queue; without a connection refuse them. For the writer thread."""
    while not copies.empty():
        copy, done = copies.get()
        try:
            if connection is None or serve is None:
                raise CopyStoppedError
            copy.run(connection, serve)
        except BaseException as failure:
            done(failure)
        else:
            done(None)


def _page_count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA page_count").fetchone()[0])


def applied_migrations(copy: Path) -> tuple[str, ...]:
    """Return the names of the migrations that a copy has, in order."""
    with closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as connection:
        rows = connection.execute("SELECT name FROM migrations ORDER BY position").fetchall()
    return tuple(str(row[0]) for row in rows)
