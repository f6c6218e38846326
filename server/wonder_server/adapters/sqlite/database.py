"""One SQLite file, one connection, one writer thread, many writes to a commit.

``synchronous=FULL`` makes an fsync of every commit, and the fsync is what a write costs. So writes
that arrive while one commit runs wait in a queue and go together into the next (*group commit*)::

    submit(fn) ──▶ queue ──▶ writer thread:  BEGIN IMMEDIATE
    submit(fn) ──▶                             SAVEPOINT, fn, RELEASE     for each
                                             COMMIT                       one fsync for all
                   event loop ◀── all results, in one call

Writes of one kind that lie next to each other in the queue can be carried out by one call (`submit_with`):
what they bring goes to SQLite in few statements. A write that raises is undone to its savepoint and only its
caller hears of it; if many were carried out together, each is tried again alone. No result is delivered
before the commit that makes it durable has returned.

The file is held exclusively: SQLite up to 3.51.2 can damage a WAL when two connections write or
checkpoint at once, so a second one, in this process or another, is refused.

Why not aiosqlite: docs/adr/0002-own-sqlite-writer.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

from wonder_server.adapters.sqlite.connection import connect, storage_fault, unavailable

T = TypeVar("T")

_MAX_BATCH: Final = 1024
"""Jobs taken at once: bounds how long the first of a batch waits for the last."""


@dataclass(slots=True, eq=False)
class _Job:
    """One queued function, its future, and after it ran what to answer."""

    fn: Callable[..., Any]
    future: asyncio.Future[Any]
    writes: bool
    items: list[Any] | None = None
    """What ``fn`` is given beside the connection, with what others give it."""
    value: Any = None
    error: BaseException | None = None


class Database:
    """A SQLite file behind one writer thread.

    Functions given to `write` and `read` run in that thread, alone, with the connection. They
    return plain values (never a cursor), stay short, do not touch the event loop, and leave
    ``BEGIN``, ``COMMIT``, ``ROLLBACK`` and ``executescript`` alone. What they raise reaches their
    caller; errors of the storage itself (full, unreadable) arrive as STORAGE_UNAVAILABLE.
    """

    def __init__(self, path: Path) -> None:
        """Internal; use `open`."""
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._closed = False
        self._commits = 0

    @classmethod
    async def open(cls, path: Path | str, migrations: Sequence[tuple[str, str]]) -> Database:
        """Open or create the file and apply the migrations it has not seen.

        ``migrations`` are (name, SQL script) in order; each is applied once, in a transaction of its
        own with the record that it was. The folder must exist.

        Errors: STORAGE_UNAVAILABLE where the file cannot be opened, is in use by another connection,
        is damaged, or was written by a newer version (it holds migrations unknown to this one).
        """
        database = cls(Path(path))
        opened: asyncio.Future[None] = database._loop.create_future()
        database._thread = threading.Thread(
            target=database._run,
            args=(tuple(migrations), opened),
            name=f"sqlite {database.path.name}",
            daemon=True,
        )
        database._thread.start()
        await opened
        return database

    @property
    def commits(self) -> int:
        """How many commits (each one fsync) this connection has made, migrations not counted."""
        return self._commits

    async def write(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``fn`` in the next commit; its result, once that commit is on disk.

        Errors: whatever ``fn`` raises, its own changes undone; STORAGE_UNAVAILABLE (transient) when
        the commit failed, nothing of it kept. Cancelling the wait does not undo the write.
        """
        return await self.submit(fn)

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``fn`` outside any transaction: it sees what is committed, and all writes submitted
        before it. Its statements see one state: no write runs between them."""
        return await self._enqueue(fn, writes=False)

    def submit(self, fn: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """`write` without waiting: queued when this returns, in the order of the calls."""
        return self._enqueue(fn, writes=True)

    def submit_with(
        self, fn: Callable[[sqlite3.Connection, list[Any]], T], items: list[Any]
    ) -> asyncio.Future[T]:
        """`submit` of ``fn(connection, items)``. Where writes with the same ``fn`` follow each other it is
        called once, with the items of all, and each gets its result: it must not matter how they are put
        together.
        """
        return self._enqueue(fn, writes=True, items=items)

    async def close(self) -> None:
        """Finish what is queued, fold the WAL into the file and let go of it. Idempotent."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.shield(self._stopped)
        if self._thread is not None:
            self._thread.join()

    def _enqueue(
        self, fn: Callable[..., T], *, writes: bool, items: list[Any] | None = None
    ) -> asyncio.Future[T]:
        if self._closed:
            raise unavailable(f"The store {self.path.name} is closed.", transient=True)
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Job(fn, future, writes, items))
        return future

    # --- the writer thread --------------------------------------------------------------------

    def _run(self, migrations: tuple[tuple[str, str], ...], opened: asyncio.Future[None]) -> None:
        try:
            connection = connect(self.path, migrations)
        except BaseException as failure:
            self._closed = True
            self._call(_settle, opened, None, failure)
            return
        self._call(_settle, opened, None, None)
        try:
            while self._serve(connection):
                pass
        finally:
            # Should this fail, the WAL stays beside the file and is read at the next start.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.close()
            self._call(_settle, self._stopped, None, None)

    def _serve(self, connection: sqlite3.Connection) -> bool:
        """One batch; False once the database is to close."""
        batch: list[_Job] = []
        job = self._queue.get()
        while job is not None:
            batch.append(job)
            if len(batch) == _MAX_BATCH or self._queue.empty():
                break
            job = self._queue.get()
        # Reads queued before the first write need not wait for its commit; those behind it may
        # rely on it.
        leading = next((i for i, job in enumerate(batch) if job.writes), len(batch))
        self._answer(connection, batch[:leading])
        self._answer(connection, batch[leading:])
        return job is not None

    def _answer(self, connection: sqlite3.Connection, batch: list[_Job]) -> None:
        """Run the writes in one commit, then the reads, and deliver all their results."""
        if not batch:
            return
        writes = [job for job in batch if job.writes]
        if writes:
            self._commit(connection, writes)
        for job in batch:
            if not job.writes:
                self._look(connection, job)
        self._call(_deliver, batch)

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        """All jobs in one transaction, each in its own savepoint, or with its like in one."""
        execute = connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            for alike in _alike(jobs):
                if not self._carry_out(connection, alike) and len(alike) > 1:
                    for job in alike:
                        job.error = None
                        self._carry_out(connection, [job])
            execute("COMMIT")
            self._commits += 1
        except BaseException as failure:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    execute("ROLLBACK")
            for job in jobs:
                job.error = job.error or storage_fault(failure, always=True)

    def _carry_out(self, connection: sqlite3.Connection, jobs: list[_Job]) -> bool:
        """One savepoint, one call; False if it raised, and nothing of it was kept."""
        execute, first = connection.execute, jobs[0]
        execute("SAVEPOINT job")
        try:
            if first.items is None:
                value = first.fn(connection)
            else:
                value = first.fn(connection, [item for job in jobs for item in job.items or ()])
        except BaseException as failure:
            for job in jobs:
                job.error = storage_fault(failure)
            # A full disk may have ended the whole transaction; then this raises as well.
            execute("ROLLBACK TO job")
            execute("RELEASE job")
            return False
        execute("RELEASE job")
        for job in jobs:
            job.value = value
        return True

    def _look(self, connection: sqlite3.Connection, job: _Job) -> None:
        before = connection.total_changes
        try:
            job.value = job.fn(connection)
            if connection.total_changes != before:
                raise AssertionError("A read changed the database: it must be given to write().")
        except BaseException as failure:
            job.error = storage_fault(failure)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            self._loop.call_soon_threadsafe(function, *arguments)


def _alike(jobs: list[_Job]) -> Iterator[list[_Job]]:
    """Jobs in their order, those that can be carried out together as one list."""
    for (_, together), found in groupby(jobs, key=lambda job: (job.fn, job.items is not None)):
        if together:
            yield list(found)
        else:
            yield from ([job] for job in found)


def _deliver(batch: list[_Job]) -> None:
    for job in batch:
        _settle(job.future, job.value, job.error)


def _settle(future: asyncio.Future[Any], value: Any, failure: BaseException | None) -> None:
    if future.done():  # The caller was cancelled.
        return
    if failure is None:
        future.set_result(value)
    else:
        future.set_exception(failure)
