"""All shards of a data folder: finds an actor's, and merges what is asked of every one."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.core import ids
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import Reason, error
from wonder_server.ports.journal import Event
from wonder_server.ports.records import EventQuery, Head, Query, QueryResult, Snapshot

_COUNT_FILE = "COUNT"


class SqliteShards:
    """``shards/NN.db`` of one folder. Implements the port ``Records``.

    The number of shards is fixed when the folder is made: an id names its shard for good.
    """

    def __init__(self, shards: list[SqliteShard], row_types: Mapping[str, type]) -> None:
        """Internal; use `open`."""
        self._shards = shards
        self._row_types = row_types

    @classmethod
    async def open(cls, folder: Path, count: int, row_types: Mapping[str, type]) -> SqliteShards:
        """Open the shards in ``folder``, or make ``count`` of them. Errors: STORAGE_UNAVAILABLE."""
        paths, made = await asyncio.to_thread(_paths, folder, count)
        opened = list(await asyncio.gather(*(SqliteShard.open(path) for path in paths)))
        try:
            for index, shard in enumerate(opened):
                await _check_identity(shard, index, len(opened), made=made)
        except BaseException:
            await asyncio.gather(*(shard.close() for shard in opened))
            raise
        await asyncio.to_thread(_write_count, folder, len(opened))
        return cls(opened, row_types)

    async def close(self) -> None:
        await asyncio.gather(*(shard.close() for shard in self._shards))

    @property
    def count(self) -> int:
        return len(self._shards)

    @property
    def databases(self) -> list[Database]:
        """The file of each shard."""
        return [shard.database for shard in self._shards]

    @property
    def commits(self) -> int:
        """Commits of all shards so far."""
        return sum(shard.database.commits for shard in self._shards)

    async def has_actors(self) -> bool:
        """Return True if anything was ever kept here that is there still."""
        for database in self.databases:
            if await database.read(lambda c: c.execute("SELECT 1 FROM actors LIMIT 1").fetchone()):
                return True
        return False

    def of(self, actor_id: str) -> SqliteShard:
        """The shard that an actor's id names."""
        index = ids.shard_of(actor_id)
        if index >= len(self._shards):
            raise error(Reason.STORAGE_UNAVAILABLE, "This id belongs to another data folder.")
        return self._shards[index]

    def holds(self, actor_id: str) -> bool:
        """Whether an id can be of this folder at all."""
        try:
            return ids.shard_of(actor_id) < len(self._shards)
        except (ValueError, IndexError):
            return False

    async def unfinished(self) -> list[str]:
        """Actors of all shards that have operations in their outbox."""
        found = await asyncio.gather(*(shard.unfinished() for shard in self._shards))
        return [actor for actors in found for actor in actors]

    # --- Records --------------------------------------------------------------------------------

    async def head(self, actor_id: str) -> int | None:
        return await self.of(actor_id).head(actor_id) if self.holds(actor_id) else None

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        by_shard: dict[SqliteShard, list[str]] = {}
        for actor in actors:
            if self.holds(actor):
                by_shard.setdefault(self.of(actor), []).append(actor)
        found = await asyncio.gather(*(shard.heads(its) for shard, its in by_shard.items()))
        return {actor: head for heads in found for actor, head in heads.items()}

    async def snapshot(self, actor: str, queries: Sequence[Query]) -> Snapshot | None:
        if not self.holds(actor):
            return None
        asked = [(replace(query, actor=actor), self._row_types[query.table]) for query in queries]
        return await self.of(actor).snapshot(actor, asked)

    async def get(self, table: str, row_id: str, actor: str = "") -> Any | None:
        rows = await self.find(Query(table=table, id=row_id, actor=actor, limit=1))
        return rows[0] if rows else None

    async def find(self, query: Query) -> list[Any]:
        row_type = self._row_types[query.table]
        shards = self._shards
        place = query.actor or query.colocated_with
        if place:
            shards = [self.of(place)] if self.holds(place) else []
        found = await asyncio.gather(*(shard.query(query, row_type) for shard in shards))
        merged = _merged(found, itemgetter(0), query.limit, reverse=query.newest_first)
        return QueryResult((value for _, value in merged), truncated=merged.truncated)

    async def events(self, planner: Planner, query: EventQuery) -> list[Event]:
        if query.actor:
            if not self.holds(query.actor):
                return []
            return await self.of(query.actor).query_events(planner, query)
        found = await asyncio.gather(*(shard.query_events(planner, query) for shard in self._shards))
        return _merged(
            found,
            lambda event: (event.at_ms, event.actor_id, event.sequence),
            query.limit,
            reverse=True,
        )


def _merged(
    found: Sequence[QueryResult], place: Callable[[Any], Any], limit: int, *, reverse: bool
) -> QueryResult:
    """Merge the answers of shards. Behind the end of one that is cut, nobody knows what comes next."""
    if len(found) == 1:
        return QueryResult(found[0][:limit], truncated=found[0].truncated and len(found[0]) <= limit)
    ends = [place(each[-1]) for each in found if each.truncated]
    last = (max(ends) if reverse else min(ends)) if ends else None
    merged = QueryResult()
    for item in heapq.merge(*found, key=place, reverse=reverse):
        if len(merged) == limit:
            break
        merged.append(item)
        if last is not None and place(item) == last:
            merged.truncated = True
            break
    return merged


async def _check_identity(shard: SqliteShard, index: int, count: int, *, made: bool) -> None:
    """Refuse a file that is empty, or another's: restored to the wrong place, its content would be missed."""
    found = await shard.identity()
    if found is None and not made:
        await shard.identify(index, count)
    elif found != (index, count):
        what = "is empty" if found is None else f"is shard {found[0]:02} of {found[1]}"
        name = shard.database.path
        raise error(
            Reason.STORAGE_UNAVAILABLE,
            f"{name} {what}, not shard {index:02} of {count}: restore the right file.",
        )


def _paths(folder: Path, count: int) -> tuple[list[Path], bool]:
    """The files of the shards, and whether the folder was made whole before: then they must all be there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise error(
            Reason.STORAGE_UNAVAILABLE, f"{folder} cannot be used as a folder: {problem.strerror}."
        ) from None
    existing, made = sorted(folder.glob("[0-9][0-9].db")), folder / _COUNT_FILE
    if not made.exists():
        return [folder / f"{index:02}.db" for index in range(max(count, len(existing)))], False
    text = made.read_text(encoding="ascii", errors="replace").strip()
    paths = [folder / f"{index:02}.db" for index in range(int(text) if text.isdigit() else 0)]
    if not paths or existing != paths:
        raise error(
            Reason.STORAGE_UNAVAILABLE,
            f"The shards in {folder} are not complete; restore the missing files.",
        )
    return paths, True


def _write_count(folder: Path, count: int) -> None:
    """Write down, once all of them are there, how many: a lost file must not come back as an empty one."""
    made = folder / _COUNT_FILE
    if not made.exists():
        draft = folder / f"{_COUNT_FILE}.new"
        draft.write_text(f"{count}\n", encoding="ascii")
        draft.replace(made)
