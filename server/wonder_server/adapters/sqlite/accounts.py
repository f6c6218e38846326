"""What agents have spent, added up over the shards."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.shards import SqliteShards
from wonder_server.core.budget import Account, joined
from wonder_server.core.ids import in_shard

_SUMS: Final = Account.__struct_fields__


class SqliteAccounts:
    """Implements the port ``Accounts``."""

    def __init__(self, shards: SqliteShards) -> None:
        self._shards = shards

    async def accounts(self, agent_ids: Sequence[str]) -> dict[str, Account]:
        sql = (
            f"SELECT agent, {', '.join(_SUMS)} FROM accounts"
            f" WHERE agent IN ({', '.join('?' * len(agent_ids))})"
        )

        def read(connection: sqlite3.Connection) -> list[tuple[str, Account]]:
            rows = connection.execute(sql, list(agent_ids)).fetchall()
            return [(row[0], Account(**dict(zip(_SUMS, row[1:], strict=True)))) for row in rows]

        shards = (self._shards.of(in_shard("conv_0", index)) for index in range(self._shards.count))
        found = await asyncio.gather(*(shard.database.glance(read) for shard in shards))
        parts = [part for each in found for part in each]
        return {agent: joined(part for whose, part in parts if whose == agent) for agent in agent_ids}
