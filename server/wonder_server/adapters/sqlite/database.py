"""One SQLite file, one connection, one writer thread, many writes to a commit.

``synchronous=FULL`` makes an fsync of every commit, and the fsync is what a write costs. So writes
that arrive while one commit runs wait in a queue and go together into the next (*group commit*)::

    submit(fn) ──▶ queue ──▶ writer thread:  BEGIN IMMEDIATE, fn          the first
    submit(fn) ──▶                             SAVEPOINT, fn, RELEASE     for each of the others
                                             COMMIT                       one fsync for all
                   event loop ◀── all results, in one call

Writes of one kind that lie next to each other in the queue can be carried out by one call (`submit_with`):
what they bring goes to SQLite in few statements. A write that raises is undone and only its caller hears of
it; if many were carried out together, each is tried again alone. The first, before which there is nothing to
keep, is undone with its transaction, since inside a savepoint SQLite copies every page that it changes;
mostly there is no other. No result is delivered before the commit that makes it durable has returned.

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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from time import monotonic, thread_time
from typing import Any, Final, TypeVar

from wonder_server.adapters.sqlite.connection import connect, storage_fault, unavailable

T = TypeVar("T")

_MAX_BATCH: Final = 1024
"""Jobs taken at once: bounds how long the first of a batch waits for the last."""
_MAX_CALL_S: Final = 0.02
"""How long one call should take that carries out writes together, as far as can be known before."""
_SHRINK_MIN_BYTES: Final = 256 * 1024
"""Bytes of unused pages from which a file is made smaller."""
_SHRINK_MAX_BYTES: Final = 256 << 20
"""Bytes of used pages up to which it is, since they are held in memory."""
_PAGE_BYTES: Final = 4096
_LOG_PAGES: Final = 4_000
"""Pages of the WAL from which a commit folds it, unless there is hardly any room; as in connection.py."""
_MAX_TRANSACTION_S: Final = 0.05
"""A transaction that takes longer begins no more writes: the others are for the next, after the reads."""


@dataclass(slots=True, eq=False)
class _Job:
    """One queued function, its future, and after it ran what to answer."""

    fn: Callable[..., Any]
    future: asyncio.Future[Any]
    writes: bool
    between_commits: bool = False
    """Whether a read need not see writes that are not on disk yet, and so not wait for them."""
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
        self._pending: deque[_Job] = deque()
        """What the writer thread has taken off the queue, and not done yet."""
        self._is_closing = False
        """Whether nothing comes after what was taken."""
        self._thread: threading.Thread | None = None
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._closed = False
        self.write_rejection: Callable[[], BaseException | None] = _no_rejection
        """An error for writes that need room, while there is none; those that free some are carried out."""
        self._commits = 0
        self._log_pages = _LOG_PAGES
        self._overwrites = True
        self._seconds_per_item = 0.001
        """What an item of writes that are carried out together costs this thread, of late; not how long it
        takes, which is mostly waiting for the event loop to give back the interpreter's lock."""

    @classmethod
    async def open(
        cls, path: Path | str, migrations: Sequence[tuple[str, str]], *, must_exist: bool = False
    ) -> Database:
        """Open or create the file and apply the migrations it has not seen.

        ``migrations`` are (name, SQL script) in order; each is applied once, in a transaction of its
        own with the record that it was. The folder must exist. ``must_exist``: so must the file, unless there
        is one with ``.new`` after its name, which is then removed.

        Errors: STORAGE_UNAVAILABLE where the file cannot be opened, is in use by another connection,
        is damaged, or was written by a newer version (it holds migrations unknown to this one).
        """
        database = cls(Path(path))
        opened: asyncio.Future[None] = database._loop.create_future()
        database._thread = threading.Thread(
            target=database._run,
            args=(tuple(migrations), opened, must_exist),
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

    async def write(self, fn: Callable[[sqlite3.Connection], T], *, frees: bool = False) -> T:
        """Run ``fn`` in the next commit; its result, once that commit is on disk. ``frees``: it makes room.

        Errors: whatever ``fn`` raises, its own changes undone; STORAGE_UNAVAILABLE (transient) when
        the commit failed, nothing of it kept. Cancelling the wait does not undo the write.
        """
        return await self.submit(fn, frees=frees)

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``fn`` outside any transaction: it sees what is committed, and all writes submitted
        before it. Its statements see one state: no write runs between them."""
        return await self._enqueue(fn, writes=False)

    async def read_between_commits(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """`read` of what is on disk by now: it need not wait for writes whose callers wait themselves."""
        return await self._enqueue(fn, writes=False, between_commits=True)

    def submit(self, fn: Callable[[sqlite3.Connection], T], *, frees: bool = False) -> asyncio.Future[T]:
        """`write` without waiting: queued when this returns, in the order of the calls."""
        self._check_writable(frees)
        return self._enqueue(fn, writes=True)

    def submit_with(
        self, fn: Callable[[sqlite3.Connection, list[Any]], T], items: list[Any], *, frees: bool = False
    ) -> asyncio.Future[T]:
        """`submit` of ``fn(connection, items)``. Where writes with the same ``fn`` follow each other it is
        called once, with the items of all, and each gets its result: it must not matter how they are put
        together.
        """
        self._check_writable(frees)
        return self._enqueue(fn, writes=True, items=items)

    async def shrink(self, room: int) -> int:
        """Give back to the disk what deleted rows took, if much of the file is that and the rest fits into
        ``room`` bytes. Returns how many bytes. Others wait meanwhile: it is for a disk that is full."""
        return await self._enqueue(partial(_shrink, room=room), writes=False)

    async def limit_log(self, most: int) -> None:
        """Fold the WAL into the file from ``most`` bytes on: folding lets the file grow, and on a full disk
        there is no more room for that than the reserve."""
        pages = max(1, min(_LOG_PAGES, most // _PAGE_BYTES))

        def bound(connection: sqlite3.Connection) -> None:
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}").fetchall()
            connection.execute(f"PRAGMA journal_size_limit = {(pages + 96) * _PAGE_BYTES}").fetchall()

        await self._enqueue(bound, writes=False)
        self._log_pages = pages

    async def overwrite_within(self, room: int) -> None:
        """Let deletes overwrite what they free, where SQLite was built to, only while all of the file fits in
        ``room`` bytes: each page that is overwritten goes through the log."""
        overwrites = self.path.stat().st_size + self.log_bytes() <= room
        if overwrites != self._overwrites:
            await self._enqueue(partial(_overwrite, overwrites=overwrites), writes=False)
            self._overwrites = overwrites

    def log_bytes(self) -> int:
        """The size of the WAL's file."""
        try:
            return self.path.with_name(f"{self.path.name}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    async def checkpoint(self, room: int) -> bool:
        """Fold the WAL into the file and give back what it took, if what the file grows by fits into ``room``
        bytes. Until it does, no commit tries: it would take the room, and fail."""
        return await self._enqueue(partial(_checkpoint, room=room, pages=self._log_pages), writes=False)

    def _check_writable(self, frees: bool) -> None:
        refused = None if frees else self.write_rejection()
        if refused is not None:
            raise refused

    async def close(self) -> None:
        """Finish what is queued, fold the WAL into the file and let go of it. Idempotent."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.shield(self._stopped)
        if self._thread is not None:
            self._thread.join()

    def _enqueue(
        self,
        fn: Callable[..., T],
        *,
        writes: bool,
        between_commits: bool = False,
        items: list[Any] | None = None,
    ) -> asyncio.Future[T]:
        if self._closed:
            raise unavailable(f"The store {self.path.name} is closed.", transient=True)
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Job(fn, future, writes, between_commits, items))
        return future

    # --- the writer thread --------------------------------------------------------------------

    def _run(
        self, migrations: tuple[tuple[str, str], ...], opened: asyncio.Future[None], must_exist: bool
    ) -> None:
        try:
            accepted = self.path.with_name(f"{self.path.name}.new")
            connection = connect(self.path, migrations, must_exist=must_exist and not accepted.exists())
            accepted.unlink(missing_ok=True)
        except BaseException as failure:
            self._closed = True
            self._call_on_loop(_resolve, opened, None, failure)
            return
        self._call_on_loop(_resolve, opened, None, None)
        try:
            while self._run_batch(connection):
                pass
        finally:
            # Should this fail, the WAL stays beside the file and is read at the next start.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.close()
            self._call_on_loop(_resolve, self._stopped, None, None)

    def _run_batch(self, connection: sqlite3.Connection) -> bool:
        """One batch; False once the database is to close and all is done."""
        taken = self._pending
        while not self._is_closing and not (taken and self._queue.empty()):
            job = self._queue.get()
            if job is None:
                self._is_closing = True
            else:
                taken.append(job)
        self._run_reads(connection, [job for job in taken if job.between_commits])
        batch = [job for job in islice(taken, _MAX_BATCH) if not job.between_commits]
        rest = [job for job in islice(taken, _MAX_BATCH, None) if not job.between_commits]
        # Reads before the first write need not wait for its commit; those behind it may rely on it.
        leading = next((i for i, job in enumerate(batch) if job.writes), len(batch))
        looked = self._run_reads(connection, batch[:leading])
        batch = batch[looked:]
        if looked < leading:
            self._pending = deque([*batch, *rest])
            return True
        done = self._commit(connection, batch)
        for job in batch[:done]:
            if not job.writes:
                self._run_read(connection, job)
        self._call_on_loop(_deliver, batch[:done])
        self._pending = deque([*batch[done:], *rest])
        return not self._is_closing or bool(self._pending)

    def _run_reads(self, connection: sqlite3.Connection, reads: list[_Job]) -> int:
        """Answer reads from the first on, for a while, glances all; how many."""
        count, until = 0, monotonic() + _MAX_TRANSACTION_S
        for job in reads:
            self._run_read(connection, job)
            count += 1
            if monotonic() > until and not job.between_commits:
                break
        if count:
            self._call_on_loop(_deliver, reads[:count])
        return count

    def _commit(self, connection: sqlite3.Connection, batch: list[_Job]) -> int:
        """Writes of ``batch``, from its beginning, in one transaction, each to be undone alone, or with its
        like. Returns how many jobs that covers, with the reads that follow the last of them."""
        jobs = [job for job in batch if job.writes]
        if not jobs:
            return len(batch)
        execute, done, until = connection.execute, 0, monotonic() + _MAX_TRANSACTION_S
        try:
            execute("BEGIN IMMEDIATE")
            holds = False
            for alike in self._groupable(jobs):
                done += len(alike)
                if self._run_writes(connection, alike, holds):
                    holds = True
                elif len(alike) > 1:
                    for job in alike:
                        job.error = None
                        holds |= self._run_writes(connection, [job], holds)
                if monotonic() > until:
                    break
            execute("COMMIT")
            self._commits += 1
        except BaseException as failure:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    execute("ROLLBACK")
            done = done or len(jobs)
            for job in jobs[:done]:
                job.error = job.error or storage_fault(failure, self.path.name, always=True)
        return len(batch) if done == len(jobs) else batch.index(jobs[done])

    def _groupable(self, jobs: list[_Job]) -> Iterator[list[_Job]]:
        """Jobs in their order, those that can be carried out together, and not for too long, as one list."""
        for (_, together), found in groupby(jobs, key=lambda job: (job.fn, job.items is not None)):
            some: list[_Job] = []
            size = 0
            for job in found:
                some.append(job)
                size += len(job.items or ())
                if not together or size * self._seconds_per_item >= _MAX_CALL_S:
                    yield some
                    some, size = [], 0
            if some:
                yield some

    def _run_writes(self, connection: sqlite3.Connection, jobs: list[_Job], holds: bool) -> bool:
        """One call; False if it raised, and nothing of it was kept. ``holds``: the transaction has brought
        something before, which must not be undone with it."""
        execute, first, began = connection.execute, jobs[0], thread_time()
        if holds:
            execute("SAVEPOINT job")
        try:
            if first.items is None:
                value = first.fn(connection)
            else:
                items = [item for job in jobs for item in job.items or ()]
                value = first.fn(connection, items)
                self._seconds_per_item += 0.2 * (
                    (thread_time() - began) / max(1, len(items)) - self._seconds_per_item
                )
        except BaseException as failure:
            for job in jobs:
                job.error = storage_fault(failure, self.path.name)
            _undo(connection, holds)
            return False
        if holds:
            execute("RELEASE job")
        for job in jobs:
            job.value = value
        return True

    def _run_read(self, connection: sqlite3.Connection, job: _Job) -> None:
        before = connection.total_changes
        try:
            job.value = job.fn(connection)
            if connection.total_changes != before:
                raise AssertionError("A read changed the database: it must be given to write().")
        except BaseException as failure:
            job.error = storage_fault(failure, self.path.name)

    def _call_on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            self._loop.call_soon_threadsafe(function, *arguments)


def _no_rejection() -> None:
    return None


def _overwrite(connection: sqlite3.Connection, *, overwrites: bool) -> None:
    built = connection.execute("SELECT sqlite_compileoption_used('SECURE_DELETE')").fetchone()[0]
    connection.execute(f"PRAGMA secure_delete = {'ON' if overwrites and built else 'OFF'}").fetchall()


def _checkpoint(connection: sqlite3.Connection, *, room: int, pages: int) -> bool:
    size = "SELECT page_count * page_size, file FROM pragma_page_count(), pragma_page_size(), "
    size += "pragma_database_list() WHERE name = 'main'"
    whole, file = connection.execute(size).fetchone()
    fits = bool(whole - Path(file).stat().st_size <= room)
    connection.execute(f"PRAGMA wal_autocheckpoint = {pages if fits else 0}").fetchall()
    if fits:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return fits


def _shrink(connection: sqlite3.Connection, *, room: int) -> int:
    """What is left of the file is built in memory, and goes through the log."""
    size = "SELECT page_count * page_size, freelist_count * page_size FROM pragma_page_count(), "
    size += "pragma_page_size(), pragma_freelist_count()"
    whole, unused = connection.execute(size).fetchone()
    left = whole - unused
    if unused < max(_SHRINK_MIN_BYTES, left // 4) or left > min(_SHRINK_MAX_BYTES, room):
        return 0
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return int(unused)


def _undo(connection: sqlite3.Connection, holds: bool) -> None:
    """Undo what was done last, and with it the transaction if that ``holds`` nothing else."""
    if holds:
        # A full disk may have ended the whole transaction; then this raises.
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
    else:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")


def _deliver(batch: list[_Job]) -> None:
    for job in batch:
        _resolve(job.future, job.value, job.error)


def _resolve(future: asyncio.Future[Any], value: Any, failure: BaseException | None) -> None:
    if future.done():  # The caller was cancelled.
        return
    if failure is None:
        future.set_result(value)
    else:
        future.set_exception(failure)
