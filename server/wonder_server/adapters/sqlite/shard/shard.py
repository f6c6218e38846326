"""One shard file: the rows of the conversations and runs whose ids name its shards."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from wonder_server.adapters.sqlite.connection import UNSEALED
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.shard.identity import STORED_IDENTITY, Identity
from wonder_server.adapters.sqlite.shard.schema import MIGRATIONS
from wonder_server.adapters.sqlite.shard.statements import Statements
from wonder_server.core import ids
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.journal import StaleEpochError
from wonder_server.ports.record_store import Reads as ReadStatements
from wonder_server.ports.record_store import Writes as WriteStatements

T = TypeVar("T")
Item = TypeVar("Item")

_log = logger("store")

_ALL_EPOCHS: Final = "SELECT shard, epoch FROM epochs"
_IS_USED: Final = "SELECT EXISTS (SELECT 1 FROM epochs) OR EXISTS (SELECT 1 FROM actors)"


class SqliteShard:
    """One shard file. Implements the port ``RecordStore``."""

    def __init__(self, database: Database, unsealed: Mapping[str, int], epochs: dict[int, int]) -> None:
        """Internal; use `open`."""
        self.database = database
        self._name = f"{database.path.parent.name}/{database.path.name}"
        self._unsealed = unsealed
        self._epochs = epochs
        """The epochs of this file's shards. Only the writer thread changes them. They may be ahead of the
        file after a failed write, which refuses too much and never too little."""
        self._calls: dict[Callable[..., Any], Callable[[sqlite3.Connection, list[Any]], Any]] = {}
        """The functions that were submitted, as functions of the connection."""

    @classmethod
    async def open(cls, path: Path) -> SqliteShard:
        """Open or create the shard file. Errors: STORAGE_UNAVAILABLE."""
        database = await Database.open(path, MIGRATIONS)
        try:
            return cls(
                database,
                await database.read(lambda connection: dict(connection.execute(UNSEALED).fetchall())),
                await database.read(lambda connection: dict(connection.execute(_ALL_EPOCHS).fetchall())),
            )
        except BaseException:
            await database.close()
            raise

    async def close(self) -> None:
        await self.database.close()

    async def identity(self) -> Identity | None:
        """Return the index of this shard and the number of shards; None if they were never stored."""
        return await self.database.read(lambda connection: connection.execute(STORED_IDENTITY).fetchone())

    async def is_used(self) -> bool:
        """Return True if a server has owned shards of this file, or if the file stores an actor."""
        return await self.database.read(lambda connection: bool(connection.execute(_IS_USED).fetchone()[0]))

    async def identify(self, shard: int, shards: int) -> None:
        """Store the index of this shard and the number of shards."""
        sql = "INSERT INTO identity (shard, shards) VALUES (?, ?)"
        await self.database.write(lambda connection: connection.execute(sql, (shard, shards)).rowcount)

    async def raise_epochs(self, shards: Collection[int]) -> dict[int, int]:
        """Raise the epoch of each of these shards, which must be in this file, and return the new epochs.

        On a full disk they are raised for this process only: no other process can open the file meanwhile.
        """
        raised: dict[int, int] = {}

        def write(connection: sqlite3.Connection) -> None:
            # Computed here, since another call may have raised them after this one was queued.
            raised.update((shard, self._epochs.get(shard, 0) + 1) for shard in shards)
            self._epochs |= raised
            rows = ", ".join(["(?, ?)"] * len(raised))
            values = [value for row in raised.items() for value in row]
            connection.execute(f"INSERT OR REPLACE INTO epochs (shard, epoch) VALUES {rows}", values)

        try:
            if shards:
                await self.database.write(write, frees_space=True)
        except WonderError as problem:
            if not problem.fault.transient or not raised:
                raise
            _log.warning("epochs_not_stored", store=self.database.path.name, problem=str(problem))
        return raised

    def check_epoch(self, actor_id: str, epoch: int) -> None:
        """Raise `StaleEpochError` if the actor's shard has a later epoch. Call it in the transaction of the
        write."""
        current = self._epochs.get(ids.shard_of(actor_id), 0)
        if epoch < current:
            raise StaleEpochError(actor_id, epoch, current)

    # --- the port RecordStore -------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    @property
    def unsealed(self) -> Mapping[str, int]:
        return self._unsealed

    def submit(
        self, fn: Callable[[WriteStatements, list[Item]], T], items: list[Item], *, frees_space: bool
    ) -> asyncio.Future[T]:
        # Writes share a call only if their function is the same object.
        call = self._calls.get(fn)
        if call is None:
            call = self._calls[fn] = lambda connection, own: fn(self._statements(connection), own)
        return self.database.submit_with(call, items, frees_space=frees_space)

    async def write(self, fn: Callable[[WriteStatements], T], *, frees_space: bool = False) -> T:
        return await self.database.write(
            lambda connection: fn(self._statements(connection)), frees_space=frees_space
        )

    async def read(self, fn: Callable[[ReadStatements], T], *, between_commits: bool = False) -> T:
        run = self.database.read_between_commits if between_commits else self.database.read
        return await run(lambda connection: fn(self._statements(connection)))

    def _statements(self, connection: sqlite3.Connection) -> Statements:
        return Statements(connection, self._epochs)
