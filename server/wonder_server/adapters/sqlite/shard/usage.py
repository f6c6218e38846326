"""Usage of agents, projects and runs, summed over the shards."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence

from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.adapters.sqlite.shard.shards import SqliteShards
from wonder_server.codec.seals import Seals
from wonder_server.codec.usage_seals import COLUMNS, verified_account
from wonder_server.core.budget import Account, add_accounts
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger

_log = logger("store")


class SqliteAccounts:
    """Implements the port ``Accounts``."""

    def __init__(self, shards: SqliteShards) -> None:
        self._shards = shards

    async def accounts(self, account_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        found = await asyncio.gather(*(_read_accounts(shard, account_ids) for shard in self._shards.files))
        parts = [part for each in found for part in each]
        lost: set[str] = set()
        for agent_id, part in parts:
            if isinstance(part, WonderError):
                if not lenient:
                    raise part
                _log.error("damaged_record_skipped", problem=str(part))
                lost.add(agent_id)
        return {
            agent: add_accounts(part for owner, part in parts if owner == agent and isinstance(part, Account))
            for agent in account_ids
            if agent not in lost
        }


async def _read_accounts(
    shard: SqliteShard, account_ids: Sequence[str]
) -> list[tuple[str, Account | WonderError]]:
    """Read the accounts of one shard, with an error in place of each damaged account."""
    sql = (
        f"SELECT agent, seal, {', '.join(COLUMNS)} FROM accounts"
        f" WHERE agent IN ({', '.join('?' * len(account_ids))})"
    )

    seals = Seals(shard.name, shard.unsealed)

    def read(connection: sqlite3.Connection) -> list[tuple[str, Account | WonderError]]:
        found: list[tuple[str, Account | WonderError]] = []
        for agent_id, seal, *sums in connection.execute(sql, list(account_ids)).fetchall():
            try:
                found.append((agent_id, verified_account(seals, agent_id, sums, seal)))
            except WonderError as problem:
                found.append((agent_id, problem))
        return found

    return await shard.database.read_between_commits(read)
