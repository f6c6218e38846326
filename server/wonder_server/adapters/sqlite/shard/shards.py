"""The shard files of a data folder.

Their number is fixed when the folder is created, since another number would place the stored actors in other
files (see `wonder_server.record.journals`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.shard.identity import COUNT_FILE, identity_problem
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.core import ids
from wonder_server.core.errors import Reason, error


class SqliteShards:
    """The shard files ``NN.db`` of one folder."""

    def __init__(self, shards: list[SqliteShard]) -> None:
        """Internal; use `open`."""
        self._shards = shards

    @classmethod
    async def open(cls, folder: Path, count: int) -> SqliteShards:
        """Open the files in ``folder``, or create ``count`` files. Errors: STORAGE_UNAVAILABLE."""
        paths, is_complete = await asyncio.to_thread(_paths, folder, count)
        opened = list(await asyncio.gather(*(SqliteShard.open(path) for path in paths)))
        try:
            await _check_identities(opened, must_be_stored=is_complete)
        except BaseException:
            await asyncio.gather(*(shard.close() for shard in opened))
            raise
        await asyncio.to_thread(_write_count, folder, len(opened))
        return cls(opened)

    async def close(self) -> None:
        await asyncio.gather(*(shard.close() for shard in self._shards))

    @property
    def file_count(self) -> int:
        """The number of files."""
        return len(self._shards)

    @property
    def files(self) -> Sequence[SqliteShard]:
        """The files, in order."""
        return self._shards

    @property
    def databases(self) -> list[Database]:
        """Return the database of each shard."""
        return [shard.database for shard in self._shards]

    @property
    def commits(self) -> int:
        """Return the number of commits of all shards."""
        return sum(shard.database.commits for shard in self._shards)

    def of(self, actor_id: str) -> SqliteShard:
        """Return the file of the shard that an actor's id names."""
        return self._shards[ids.shard_of(actor_id) % len(self._shards)]

    async def has_actors(self) -> bool:
        """Return True if any shard stores a conversation or a run."""
        for database in self.databases:
            if await database.read(lambda c: c.execute("SELECT 1 FROM actors LIMIT 1").fetchone()):
                return True
        return False


async def _check_identities(shards: Sequence[SqliteShard], *, must_be_stored: bool) -> None:
    """Refuse a file of another shard, and an empty one in place of a lost one: either would hide its data.

    Give the other files without an identity theirs. Those with actors come last: a start that was killed here
    thus leaves an identity in a used file only if each unused file has one.
    """
    found = [await shard.identity() for shard in shards]
    used = [await shard.is_used() for shard in shards]
    # Only the file COUNT tells that a folder of unused files was complete.
    was_complete = must_be_stored or any(each and is_used for each, is_used in zip(found, used, strict=True))
    unnamed: list[int] = []
    for index, (shard, stored, is_used) in enumerate(zip(shards, found, used, strict=True)):
        if stored is None and not must_be_stored and (is_used or not was_complete):
            unnamed.append(index)
        elif problem := identity_problem(stored, index, len(shards)):
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"{shard.database.path} {problem}. Restore the right files and"
                f" {COUNT_FILE} from a backup. The number of files of a data folder cannot change, since"
                " other files would then be searched for its conversations and runs.",
            )
    for index in sorted(unnamed, key=lambda index: used[index]):
        await shards[index].identify(index, len(shards))


def _paths(folder: Path, count: int) -> tuple[list[Path], bool]:
    """Return the files of the shards, and True if the folder was complete before, so that all must exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise error(
            Reason.STORAGE_UNAVAILABLE, f"{folder} cannot be used as a folder: {problem.strerror}."
        ) from None
    existing, count_file = sorted(folder.glob("[0-9][0-9].db")), folder / COUNT_FILE
    if not count_file.exists():
        return [folder / f"{index:02}.db" for index in range(max(count, len(existing)))], False
    text = count_file.read_text(encoding="ascii", errors="replace").strip()
    paths = [folder / f"{index:02}.db" for index in range(int(text) if text.isdigit() else 0)]
    if not paths or existing != paths:
        raise error(
            Reason.STORAGE_UNAVAILABLE,
            f"The shards in {folder} are not complete. Restore the missing files from a backup.",
        )
    return paths, True


def _write_count(folder: Path, count: int) -> None:
    """Store the number of shards after all exist: the next start then refuses a lost file instead of creating
    it.

    The file is flushed before it gets its name, and the folders after that. Otherwise a power failure could
    leave an empty file, which a start refuses, or none, and then a lost shard would be noticed later.
    """
    count_file = folder / COUNT_FILE
    if not count_file.exists():
        draft = folder / f"{COUNT_FILE}.new"
        with draft.open("w", encoding="ascii") as file:
            file.write(f"{count}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(count_file)
        for written in (folder, folder.parent):
            handle = os.open(written, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
