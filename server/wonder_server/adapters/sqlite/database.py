"""One SQLite file with one connection, one writer thread and group commit.

``synchronous=FULL`` makes every commit an fsync, and the fsync dominates the cost of a write. Writes that
arrive during a commit wait in a queue and go together into the next one (*group commit*)::

    submit(fn) ──▶ queue ──▶ writer thread:  BEGIN IMMEDIATE, fn          the first
    submit(fn) ──▶                             SAVEPOINT, fn, RELEASE     each of the others
                                             COMMIT                       one fsync for all
                   event loop ◀── all results, in one call

One call can execute adjacent writes of one kind (`submit_with`): their items reach SQLite in few statements.
If a write raises, only its own changes are undone and only its caller gets the error. If one call executed
many writes, each is tried again alone. The first write of a transaction runs without a savepoint, because
SQLite copies every page that changes inside one; a failure rolls back the transaction, which is empty
otherwise. Most transactions have only this write. A caller gets its result after the commit that makes it
durable.

The connection locks the file exclusively. SQLite up to 3.51.2 can damage a WAL when two connections write or
checkpoint at once, so a second connection, in this process or another, is refused.

docs/adr/0002-own-sqlite-writer.md explains why this is not aiosqlite.
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

from wonder_server.adapters.sqlite.connection import commit_histogram, connect, storage_fault, unavailable
from wonder_server.adapters.sqlite.copying import CopyQueue, CopyStoppedError, DatabaseCopy, run_copies
from wonder_server.ports.failpoints import NO_FAILPOINTS, Failpoints

T = TypeVar("T")
Item = TypeVar("Item")

_MAX_BATCH: Final = 1024
"""Maximum number of jobs in a batch. It limits how long the first job waits for the last."""
_MAX_CALL_S: Final = 0.02
"""Estimated maximum duration of one call that executes several writes, in seconds of processor time."""
_SHRINK_MIN_BYTES: Final = 256 * 1024
"""Minimum bytes of unused pages for `Database.shrink`."""
_SHRINK_MAX_BYTES: Final = 256 << 20
"""Maximum bytes of used pages for `Database.shrink`, which holds them in memory."""
_PAGE_BYTES: Final = 4096
_LOG_PAGES: Final = 4_000
"""Pages of the WAL that trigger a checkpoint when the disk has enough free space; as in connection.py."""
_MAX_TRANSACTION_S: Final = 0.05
"""Seconds after which a transaction starts no more writes, and reads ahead of a write let it pass. The rest
goes into the next transaction, after pending reads."""


@dataclass(slots=True, eq=False)
class _Job:
    """One queued function, its future, and after its execution the result or error."""

    fn: Callable[..., object]
    future: asyncio.Future[Any]
    writes: bool
    between_commits: bool = False
    """True for a read that does not need to see uncommitted writes, and so does not wait for them."""
    items: list[Any] | None = None
    """Arguments for ``fn`` besides the connection; adjacent jobs with the same ``fn`` share one call."""
    value: object = None
    error: BaseException | None = None


class Database:
    """A SQLite file behind one writer thread.

    Functions passed to `write` and `read` run in that thread, one at a time, with the connection. They return
    plain values (never a cursor), are short, and do not touch the event loop. They never execute ``BEGIN``,
    ``COMMIT``, ``ROLLBACK`` or ``executescript``. Their exceptions reach their caller. Errors of the storage
    itself (full, unreadable) arrive as STORAGE_UNAVAILABLE.
    """

    def __init__(self, path: Path) -> None:
        """Internal; use `open`."""
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._pending: deque[_Job] = deque()
        """Jobs that the writer thread has taken off the queue and not finished."""
        self._is_closing = False
        """True after the last job was taken off the queue."""
        self._thread: threading.Thread | None = None
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._closed = False
        self.write_rejection: Callable[[], BaseException | None] = _no_rejection
        """Returns the error for writes that need disk space, or None. Writes that free space run anyway."""
        self.failpoints: Failpoints = NO_FAILPOINTS
        self._copies: CopyQueue = queue.SimpleQueue()
        self.commit_times = commit_histogram()
        self._log_pages = _LOG_PAGES
        self._overwrites = True
        self._seconds_per_item = 0.001
        """Recent processor time per item of a shared call. Wall time would mostly measure the wait for the
        event loop to release the interpreter lock."""

    @classmethod
    async def open(
        cls, path: Path | str, migrations: Sequence[tuple[str, str]], *, must_exist: bool = False
    ) -> Database:
        """Open or create the file and apply pending migrations.

        ``migrations`` are (name, SQL script) in order. Each runs once, in one transaction with the record of
        its name. The folder must exist. With ``must_exist`` the file must exist too, unless a file with the
        suffix ``.new`` lies beside it; this marker is then removed.

        Errors: STORAGE_UNAVAILABLE if the file cannot be opened, is in use by another connection, is damaged,
        or was written by a newer version (it has unknown migrations).
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
        """Return the number of commits (each one fsync) of this connection, without migrations."""
        return sum(self.commit_times.counts)

    async def write(self, fn: Callable[[sqlite3.Connection], T], *, frees_space: bool = False) -> T:
        """Run ``fn`` in the next commit, and return its result after that commit.

        With ``frees_space`` the write runs even if the disk is full. Cancelling the wait does not undo the
        write.

        Errors: any error of ``fn``, with its changes undone; STORAGE_UNAVAILABLE (transient) if the commit
        failed, with nothing written.
        """
        return await self.submit(fn, frees_space=frees_space)

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``fn`` outside any transaction, after all writes submitted before it.

        No write runs between its statements, so they all read the same state.
        """
        return await self._enqueue(fn, writes=False)

    async def read_between_commits(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """`read` the committed state now, without waiting for queued writes."""
        return await self._enqueue(fn, writes=False, between_commits=True)

    def submit(
        self, fn: Callable[[sqlite3.Connection], T], *, frees_space: bool = False
    ) -> asyncio.Future[T]:
        """Queue a `write` and return its future. Writes run in the order of the calls."""
        self._check_writable(frees_space)
        return self._enqueue(fn, writes=True)

    def submit_with(
        self,
        fn: Callable[[sqlite3.Connection, list[Item]], T],
        items: list[Item],
        *,
        frees_space: bool = False,
    ) -> asyncio.Future[T]:
        """`submit` ``fn(connection, items)``.

        Adjacent writes with the same ``fn`` share one call with the items of all, and each gets the result of
        that call. The effect of ``fn`` must not depend on how items are grouped.
        """
        self._check_writable(frees_space)
        return self._enqueue(fn, writes=True, items=items)

    async def copy(self, copy: DatabaseCopy) -> None:
        """Execute a copy, between other jobs. Raises `CopyStoppedError` and errors of SQLite."""
        done = self._loop.create_future()
        self._copies.put((copy, lambda failure: self._call_on_loop(_resolve, done, None, failure)))
        await asyncio.gather(self.read(lambda _: None), done)  # The read wakes the thread.

    async def shrink(self, free_bytes: int) -> int:
        """Return unused pages to the file system, and return how many bytes they were.

        The file shrinks only if a fifth of it is unused and the rest fits into ``free_bytes``. Other jobs
        wait meanwhile, so call this only when the disk is full.
        """
        return await self._enqueue(partial(_shrink, free_bytes=free_bytes), writes=False)

    async def limit_log(self, max_bytes: int | None) -> None:
        """Checkpoint the WAL from ``max_bytes`` on, and from 4,000 pages on in any case (None: only then).

        A repeated call with the same limit costs nothing.

        A checkpoint can grow the file, and on a full disk only the reserve has space for that. With 1,000
        pages a turn costs 5 to 8 % more of the writer's CPU, since pages are copied more often.
        """
        pages = _LOG_PAGES if max_bytes is None else max(1, min(_LOG_PAGES, max_bytes // _PAGE_BYTES))
        if pages == self._log_pages:
            return

        def bound(connection: sqlite3.Connection) -> None:
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}").fetchall()
            connection.execute(f"PRAGMA journal_size_limit = {(pages + 96) * _PAGE_BYTES}").fetchall()

        await self._enqueue(bound, writes=False)
        self._log_pages = pages

    async def overwrite_within(self, free_bytes: int) -> None:
        """Let deletes overwrite freed pages, if SQLite is built for that, while the file fits in
        ``free_bytes``.

        Each overwritten page goes through the WAL, so this can need as much space as the file.
        """
        overwrites = self.path.stat().st_size + self.log_bytes() <= free_bytes
        if overwrites != self._overwrites:
            await self._enqueue(partial(_overwrite, overwrites=overwrites), writes=False)
            self._overwrites = overwrites

    def log_bytes(self) -> int:
        """Return the size of the WAL file in bytes."""
        try:
            return self.path.with_name(f"{self.path.name}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    async def checkpoint(self, free_bytes: int) -> bool:
        """Copy the WAL into the file and truncate it, if the growth of the file fits into ``free_bytes``.

        If it does not fit, disable automatic checkpoints until it does: they would use the space and fail.
        Return True if the checkpoint ran.
        """
        task = partial(_checkpoint, free_bytes=free_bytes, pages=self._log_pages)
        return await self._enqueue(task, writes=False)

    def _check_writable(self, frees_space: bool) -> None:
        rejection = None if frees_space else self.write_rejection()
        if rejection is not None:
            raise rejection

    async def close(self) -> None:
        """Finish queued jobs, checkpoint the WAL and close the file. Idempotent."""
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
                run_copies(self._copies, connection, partial(self._serve, connection))
        finally:
            # If this fails, the WAL stays beside the file and the next start reads it.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.close()
            run_copies(self._copies)
            self._call_on_loop(_resolve, self._stopped, None, None)

    def _serve(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Run batches for some time in the middle of a copy. Raises `CopyStoppedError`."""
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            if not self._pending:
                try:
                    self._take(self._queue.get(timeout=left))
                except queue.Empty:
                    return
            if self._is_closing or not self._run_batch(connection):
                raise CopyStoppedError

    def _run_batch(self, connection: sqlite3.Connection) -> bool:
        """Run one batch. Return False when the database is closing and all jobs are done."""
        taken = self._pending
        while not self._is_closing and not (taken and self._queue.empty()):
            self._take(self._queue.get())
        self._run_reads(connection, [job for job in taken if job.between_commits])
        batch = [job for job in islice(taken, _MAX_BATCH) if not job.between_commits]
        rest = [job for job in islice(taken, _MAX_BATCH, None) if not job.between_commits]
        # Reads ahead of the first write do not wait for its commit. Reads behind it may depend on it.
        leading = next((i for i, job in enumerate(batch) if job.writes), len(batch))
        answered = self._run_reads(connection, batch[:leading])
        # A commit does not wait for a thousand reads: those left follow it, and see it.
        left, batch = batch[answered:leading], batch[leading:]
        done = self._commit(connection, batch)
        for job in batch[:done]:
            if not job.writes:
                self._run_read(connection, job)
        self._call_on_loop(_deliver, batch[:done])
        self._pending = deque([*left, *batch[done:], *rest])
        return not self._is_closing or bool(self._pending)

    def _take(self, job: _Job | None) -> None:
        self._is_closing |= job is None
        self._pending.extend(() if job is None else (job,))

    def _run_reads(self, connection: sqlite3.Connection, reads: list[_Job]) -> int:
        """Answer reads in order until `_MAX_TRANSACTION_S` is over, those between commits all. Return the
        count."""
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
        """Execute the leading writes of ``batch`` in one transaction. Each group of writes can be undone
        alone.

        Return the number of jobs covered, including the reads that follow the last executed write.
        """
        jobs = [job for job in batch if job.writes]
        if not jobs:
            return len(batch)
        execute, done, until = connection.execute, 0, monotonic() + _MAX_TRANSACTION_S
        try:
            execute("BEGIN IMMEDIATE")
            has_changes = False
            for group in self._groupable(jobs):
                done += len(group)
                if self._run_writes(connection, group, has_changes):
                    has_changes = True
                elif len(group) > 1:
                    for job in group:
                        job.error = None
                        has_changes |= self._run_writes(connection, [job], has_changes)
                if monotonic() > until:
                    break
            self.failpoints.reach("before-commit", str(self.path))
            execute("COMMIT")
            self.commit_times.observe(monotonic() - until + _MAX_TRANSACTION_S)
            self._reach_after_commit()
        except BaseException as failure:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    execute("ROLLBACK")
            done = done or len(jobs)
            for job in jobs[:done]:
                job.error = job.error or storage_fault(failure, self.path.name, always=True)
        return len(batch) if done == len(jobs) else batch.index(jobs[done])

    def _reach_after_commit(self) -> None:
        """Pass the failpoint after a commit. The transaction is on disk, so an error there fails no write."""
        with contextlib.suppress(Exception):
            self.failpoints.reach("after-commit", str(self.path))

    def _groupable(self, jobs: list[_Job]) -> Iterator[list[_Job]]:
        """Split jobs, in order, into groups that one call can execute within about `_MAX_CALL_S`."""
        for (_, is_shared), found in groupby(jobs, key=lambda job: (job.fn, job.items is not None)):
            group: list[_Job] = []
            size = 0
            for job in found:
                group.append(job)
                size += len(job.items or ())
                if not is_shared or size * self._seconds_per_item >= _MAX_CALL_S:
                    yield group
                    group, size = [], 0
            if group:
                yield group

    def _run_writes(self, connection: sqlite3.Connection, jobs: list[_Job], has_changes: bool) -> bool:
        """Execute a group of writes in one call. Return False if it raised; its changes are then undone.

        ``has_changes``: the transaction has earlier changes, so the call needs a savepoint.
        """
        execute, first, started = connection.execute, jobs[0], thread_time()
        if has_changes:
            execute("SAVEPOINT job")
        try:
            if first.items is None:
                value = first.fn(connection)
            else:
                items = [item for job in jobs for item in job.items or ()]
                value = first.fn(connection, items)
                self._seconds_per_item += 0.2 * (
                    (thread_time() - started) / max(1, len(items)) - self._seconds_per_item
                )
        except BaseException as failure:
            for job in jobs:
                job.error = storage_fault(failure, self.path.name)
            _undo(connection, has_changes)
            return False
        if has_changes:
            execute("RELEASE job")
        for job in jobs:
            job.value = value
        return True

    def _run_read(self, connection: sqlite3.Connection, job: _Job) -> None:
        before = connection.total_changes
        try:
            job.value = job.fn(connection)
            if connection.total_changes != before:
                raise AssertionError(f"{job.fn!r} changed the database in read(). Pass it to write().")
        except BaseException as failure:
            job.error = storage_fault(failure, self.path.name)

    def _call_on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed, so no caller waits.
            self._loop.call_soon_threadsafe(function, *arguments)


def _no_rejection() -> None:
    return None


def _overwrite(connection: sqlite3.Connection, *, overwrites: bool) -> None:
    is_supported = connection.execute("SELECT sqlite_compileoption_used('SECURE_DELETE')").fetchone()[0]
    connection.execute(f"PRAGMA secure_delete = {'ON' if overwrites and is_supported else 'OFF'}").fetchall()


def _checkpoint(connection: sqlite3.Connection, *, free_bytes: int, pages: int) -> bool:
    size = "SELECT page_count * page_size, file FROM pragma_page_count(), pragma_page_size(), "
    size += "pragma_database_list() WHERE name = 'main'"
    whole, file = connection.execute(size).fetchone()
    fits = bool(whole - Path(file).stat().st_size <= free_bytes)
    connection.execute(f"PRAGMA wal_autocheckpoint = {pages if fits else 0}").fetchall()
    if fits:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return fits


def _shrink(connection: sqlite3.Connection, *, free_bytes: int) -> int:
    """VACUUM the file. SQLite builds the new content in memory and writes it through the WAL."""
    size = "SELECT page_count * page_size, freelist_count * page_size FROM pragma_page_count(), "
    size += "pragma_page_size(), pragma_freelist_count()"
    whole, unused = connection.execute(size).fetchone()
    used = whole - unused
    if unused < max(_SHRINK_MIN_BYTES, used // 4) or used > min(_SHRINK_MAX_BYTES, free_bytes):
        return 0
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return int(unused)


def _undo(connection: sqlite3.Connection, has_changes: bool) -> None:
    """Undo the last call: to its savepoint if the transaction has earlier changes, else the transaction."""
    if has_changes:
        # Raises if a full disk has ended the whole transaction.
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
    else:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")


def _deliver(batch: list[_Job]) -> None:
    for job in batch:
        _resolve(job.future, job.value, job.error)


def _resolve(future: asyncio.Future[Any], value: object, failure: BaseException | None) -> None:
    if future.done():  # The caller was cancelled.
        return
    if failure is None:
        future.set_result(value)
    else:
        future.set_exception(failure)
