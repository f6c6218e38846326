"""Journals on shard files, opened without a server."""

from __future__ import annotations

from pathlib import Path

from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.record.journal import StoredJournal
from wonder_server.record.journals import StoredJournals, row_types

PLANNERS = (CONVERSATION, RUN)


class SqliteJournal(StoredJournal):
    """The journal on one shard file."""

    def __init__(self, shard: SqliteShard) -> None:
        super().__init__(shard, PLANNERS)
        self.shard = shard

    @classmethod
    async def open(cls, path: Path) -> SqliteJournal:
        return cls(await SqliteShard.open(path))

    async def close(self) -> None:
        await self.shard.close()

    @property
    def database(self) -> Database:
        return self.shard.database


class SqliteJournals(StoredJournals):
    """The journals on the shard files of a folder."""

    def __init__(self, shards: SqliteShards) -> None:
        self.own = [SqliteJournal(shard) for shard in shards.files]
        super().__init__(self.own, row_types(PLANNERS))
        self.shards = shards

    @classmethod
    async def open(cls, folder: Path, count: int) -> SqliteJournals:
        return cls(await SqliteShards.open(folder, count))

    async def close(self) -> None:
        await self.shards.close()

    @property
    def file_count(self) -> int:
        return self.shards.file_count

    @property
    def commits(self) -> int:
        return self.shards.commits

    @property
    def files(self) -> list[SqliteJournal]:
        return self.own

    def of(self, actor_id: str) -> SqliteJournal:
        return self.own[self.shards.files.index(self.shards.of(actor_id))]
