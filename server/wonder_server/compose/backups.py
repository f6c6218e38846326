"""Backups of the data folder while the server works (feature N6, ADR 55).

The order: all databases at one instant, then the objects, then git and worktrees. A row refers to objects and
commits that exist before it, and from before the instant until the copies are complete nothing is removed. So
whatever a copied row refers to is in the backup.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from wonder_server import __version__
from wonder_server.adapters.backup.folder import BackupFolder, open_folder
from wonder_server.adapters.backup.manifest import FORMAT, BackupError, Manifest, StoredFile
from wonder_server.adapters.files.blobs import place_of as object_place
from wonder_server.adapters.sqlite.copying import CopyStoppedError, Cut, DatabaseCopy, applied_migrations
from wonder_server.adapters.sqlite.database import Database
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.ports.backups import BackupProgress, BackupSummary
from wonder_server.ports.holds import Holds

_log = logger("backup")

T = TypeVar("T")

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
OnProgress = Callable[[BackupProgress], None]


class DataBackups:
    """Implements the port ``Backups``. One backup is made at a time."""

    def __init__(
        self,
        *,
        root: Path | None,
        data: Path,
        databases: Sequence[Database],
        holds: Sequence[Holds],
        objects_elsewhere: bool,
    ) -> None:
        """``root`` is the folder of all backups. ``holds`` stop removals."""
        self._root = root
        self._data = data
        self._databases = {_name_of(each, data): each for each in databases}
        self._holds = holds
        self._objects_elsewhere = objects_elsewhere
        self._lock = asyncio.Lock()

    async def create(self, name: str, on_progress: OnProgress) -> BackupSummary:
        if self._root is None:
            raise error(
                Reason.NOT_IMPLEMENTED,
                "This server has no folder for backups. Set `backup_dir` (--backup-dir) and restart it.",
            )
        if not _NAME.match(name):
            raise error(
                Reason.FIELD_INVALID,
                f"name is '{name[:100]}'. Use 1 to 64 of a-z, 0-9, _ and -; begin with a-z or 0-9.",
                field="name",
            )
        if self._lock.locked():
            raise error(Reason.RESOURCE_IN_USE, "Another backup is in progress. Try again later.")
        async with self._lock:
            started = time.monotonic()
            try:
                made = await _Making(self, self._root / name, on_progress).make(name)
            except BackupError as problem:
                _log.error("backup_failed", backup=name, problem=str(problem))
                raise error(Reason.STORAGE_UNAVAILABLE, str(problem)) from None
            except WonderError as problem:
                _log.error("backup_failed", backup=name, problem=str(problem))
                raise
            seconds = round(time.monotonic() - started, 2)
            _log.info("backup_made", backup=name, files=made.files, bytes=made.bytes, seconds=seconds)
            return made

    @property
    def parts(self) -> tuple[Path, Mapping[str, Database], Sequence[Holds], bool]:
        """The data folder, its databases by path, the holds, and whether a bucket has the objects."""
        return self._data, self._databases, self._holds, self._objects_elsewhere


class _Making:
    """One backup in progress."""

    def __init__(self, backups: DataBackups, path: Path, on_progress: OnProgress) -> None:
        self._data, self._databases, self._holds, self._objects_elsewhere = backups.parts
        self._path = path
        self._report = on_progress
        self._loop = asyncio.get_running_loop()
        self._files: list[StoredFile] = []
        self._bytes = 0
        self._is_left = False

    async def make(self, name: str) -> BackupSummary:
        """Make the backup. Raises `BackupError` and STORAGE_UNAVAILABLE."""
        opening = open_folder(self._path)
        folder = await asyncio.to_thread(opening.__enter__)
        failure: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                for hold in self._holds:
                    await stack.enter_async_context(hold.hold())
                migrations = await self._copy_databases(folder)
                created_ms = int(time.time() * 1_000)
                for step, names in self._trees():
                    for each in names:
                        await self._in_thread(partial(self._add_tree, folder, step, each))
            manifest = Manifest(
                format=FORMAT,
                version=__version__,
                created_ms=created_ms,
                generation=folder.generation,
                files=tuple(self._files),
                migrations=migrations,
                objects_elsewhere=self._objects_elsewhere,
            )
            await self._in_thread(partial(folder.finish, manifest))
        except BaseException as problem:
            failure = problem
            raise
        finally:
            if failure is None:
                await asyncio.to_thread(opening.__exit__, None, None, None)
            else:
                # Converts an OSError.
                opening.__exit__(type(failure), failure, failure.__traceback__)
        return BackupSummary(
            name=name,
            created_ms=created_ms,
            files=len(self._files),
            bytes=self._bytes,
            new_bytes=folder.new_bytes,
            objects_elsewhere=self._objects_elsewhere,
        )

    def _trees(self) -> list[tuple[str, Sequence[str]]]:
        objects = [] if self._objects_elsewhere else [("objects", ["blobs"])]
        return [*objects, ("git", ["artifacts", "repositories"]), ("files", ["worktrees"])]

    async def _copy_databases(self, folder: BackupFolder) -> dict[str, tuple[str, ...]]:
        """Copy all databases at one instant. Each begins when the one before waits for the instant."""
        await self._in_thread(
            partial(folder.require_space, _size(self._data / name for name in self._databases))
        )
        cut = Cut(len(self._databases))
        targets = {name: folder.databases / name.replace("/", "-") for name in self._databases}
        try:
            async with asyncio.TaskGroup() as group:
                for name, database in self._databases.items():
                    arrived = asyncio.Event()
                    on_arrival = partial(_set, self._loop, arrived)
                    copying = group.create_task(database.copy(DatabaseCopy(targets[name], cut, on_arrival)))
                    copying.add_done_callback(lambda _, arrived=arrived: arrived.set())  # type: ignore[misc]
                    await arrived.wait()
                    self._report(BackupProgress(step="databases", files=0, bytes=_size(targets.values())))
        except ExceptionGroup as failures:
            raise _first(failures) from None
        finally:
            cut.stop()
        migrations: dict[str, tuple[str, ...]] = {}
        for name, copy in targets.items():
            self._add(await self._in_thread(partial(folder.add_database, name, copy)))
            migrations[name] = await self._in_thread(partial(applied_migrations, copy))
        count = self._data / "shards" / "COUNT"
        found = await self._in_thread(partial(folder.add_file, count, "shards/COUNT"))
        assert found is not None
        self._add(found)
        return migrations

    def _add(self, found: StoredFile) -> None:
        self._files.append(found)
        self._bytes += found.size

    def _add_tree(self, folder: BackupFolder, step: str, name: str) -> None:
        def on_file(size: int) -> None:
            if self._is_left:
                raise BackupError("The backup was given up.")
            self._bytes += size
            progress = BackupProgress(step=step, files=len(self._files), bytes=self._bytes)
            self._loop.call_soon_threadsafe(self._report, progress)

        place_of = object_place if step == "objects" else str
        self._files += folder.add_tree(self._data, name, on_file, place_of)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread. A caller that leaves waits for its end."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._is_left = True
            await asyncio.wait({task})
            raise


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # The loop is closed.
        loop.call_soon_threadsafe(event.set)


def _name_of(database: Database, data: Path) -> str:
    return str(database.path.relative_to(data))


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.exists())


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the failure that ended the other copies, as an error for the caller."""
    found: list[BaseException] = []
    for each in failures.exceptions:
        found.append(_first(each) if isinstance(each, BaseExceptionGroup) else each)
    causes = [each for each in found if not isinstance(each, CopyStoppedError)]
    cause = causes[0] if causes else found[0]
    if isinstance(cause, WonderError | OSError):
        return cause
    return BackupError(f"The databases could not be copied: {str(cause) or 'the copies were given up'}.")
