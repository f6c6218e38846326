"""Restores and checks of backups, without a server."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from wonder_server.actors.runs.replay import Replay
from wonder_server.adapters.backup.manifest import BackupError, DamagedBackupError, Manifest, StoredFile
from wonder_server.adapters.backup.restoring import clear, open_backup, restore
from wonder_server.adapters.sqlite.catalog import schema as catalog
from wonder_server.adapters.sqlite.memory import schema as memory
from wonder_server.adapters.sqlite.shard import schema as shard
from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.compose.checking import check_folder
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.errors import WonderError
from wonder_server.ports.backups import UNFINISHED
from wonder_server.record.journal import StoredJournal
from wonder_server.record.journals import StoredJournals

__all__ = [
    "UNFINISHED",
    "BackupError",
    "CheckedBackup",
    "DamagedBackupError",
    "Restored",
    "check_restored",
    "restore_backup",
]

Say = Callable[[str], None]

SAMPLE: Final = 20
"""Journals of each database that a check replays."""
_PAGE: Final = 500
_SAY_EVERY_BYTES: Final = 256 << 20

_KNOWN: Final = {
    "shards": [name for name, _ in shard.MIGRATIONS],
    "catalog": [name for name, _ in catalog.MIGRATIONS],
    "memory": [name for name, _ in memory.MIGRATIONS],
}


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored backup."""

    manifest: Manifest

    @property
    def made_at(self) -> str:
        """The time of the backup as text."""
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.manifest.created_ms / 1_000))


@dataclass(slots=True)
class CheckedBackup:
    """Result of a check. ``problems`` has one line for each."""

    records: int = 0
    replayed: int = 0
    problems: list[str] = field(default_factory=list)


def restore_backup(backup: Path, data: Path, say: Say) -> Restored:
    """Restore a backup to the folder ``data``, which is missing, empty, or of a restore that did not finish.
    On an error it is empty again. Raises `BackupError`."""
    manifest = open_backup(backup, _KNOWN)
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        data.chmod(0o700)
        clear(data)
    except OSError as problem:
        raise BackupError(f"{data} cannot be written: {problem.strerror}.") from None
    done = said = 0

    def on_file(file: StoredFile) -> None:
        nonlocal done, said
        done += file.size
        if done >= said + _SAY_EVERY_BYTES:
            said = done
            say(f"{done >> 20:,} MiB")

    try:
        restore(backup, manifest, data, on_file)
    except BaseException:
        clear(data)
        raise
    return Restored(manifest)


def check_restored(data: Path, manifest: Manifest, say: Say) -> CheckedBackup:
    """Check every record and reference of a restored folder, and replay some journals of each database."""
    found = check_folder(data, say, objects_elsewhere=manifest.objects_elsewhere)
    checked = CheckedBackup(records=found.records, problems=list(found.problems))
    if not checked.problems:
        say("journals …")
        asyncio.run(_replay_sample(data, checked))
    return checked


async def _replay_sample(data: Path, checked: CheckedBackup) -> None:
    shards = await SqliteShards.open(data / "shards", 1)
    try:
        journals = StoredJournals.on(shards.files, (CONVERSATION, RUN))
        for database, journal in zip(shards.databases, journals.files, strict=True):
            for actor_id in await database.read(_sample):
                try:
                    problem = await _replay(journal, actor_id)
                except WonderError as failure:
                    problem = str(failure)
                checked.replayed += 1
                if problem:
                    checked.problems.append(f"shards/{database.path.name}: {actor_id}: {problem}")
    finally:
        await shards.close()


def _sample(connection: sqlite3.Connection) -> list[str]:
    """Return some actors, evenly over the ids, and so over the time."""
    count = connection.execute("SELECT count(*) FROM actors").fetchone()[0]
    step = max(1, count // SAMPLE)
    sql = "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM actors) WHERE n % ? = 0"
    return [row[0] for row in connection.execute(f"{sql} LIMIT {SAMPLE}", (step,))]


async def _replay(journal: StoredJournal, actor_id: str) -> str:
    """Replay a journal. Return the problem, or ""."""
    replay = Replay(RUN if actor_id.startswith("run_") else CONVERSATION)
    after = 0
    while page := await journal.entries(actor_id, after, _PAGE):
        if not replay.feed(page):
            assert replay.result.difference is not None
            return f"its journal does not replay at entry {replay.result.difference.step}"
        after = page[-1].sequence
    return ""
