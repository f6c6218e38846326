"""All shards of a data folder. Finds the shard of an actor and merges queries over all shards."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Final

from wonder_server.adapters.sqlite.codec.fields import StoredValue
from wonder_server.adapters.sqlite.database import Database
from wonder_server.adapters.sqlite.shard.shard import SqliteShard
from wonder_server.core import ids
from wonder_server.core.actor.planner import Planner
from wonder_server.core.errors import Reason, error
from wonder_server.ports.journal import Event
from wonder_server.ports.records import EventQuery, Head, Query, QueryResult, Snapshot

_COUNT_FILE: Final = "COUNT"


class SqliteShards:
    """The shards ``NN.db`` of one folder. Implements the port ``Records``.

    The number of shards is fixed when the folder is created, because an id names its shard permanently.
    """

    def __init__(self, shards: list[SqliteShard], row_types: Mapping[str, type]) -> None:
        """Internal; use `open`."""
        self._shards = shards
        self._row_types = row_types

    @classmethod
    async def open(cls, folder: Path, count: int, row_types: Mapping[str, type]) -> SqliteShards:
        """Open the shards in ``folder``, or create ``count`` shards. Errors: STORAGE_UNAVAILABLE."""
        paths, is_complete = await asyncio.to_thread(_paths, folder, count)
        opened = list(await asyncio.gather(*(SqliteShard.open(path) for path in paths)))
        try:
            for index, shard in enumerate(opened):
                await _check_identity(shard, index, len(opened), must_be_stored=is_complete)
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
        """Return the database of each shard."""
        return [shard.database for shard in self._shards]

    @property
    def commits(self) -> int:
        """Return the number of commits of all shards."""
        return sum(shard.database.commits for shard in self._shards)

    async def has_actors(self) -> bool:
        """Return True if any shard stores a conversation or a run."""
        for database in self.databases:
            if await database.read(lambda c: c.execute("SELECT 1 FROM actors LIMIT 1").fetchone()):
                return True
        return False

    def of(self, actor_id: str) -> SqliteShard:
        """Return the shard that an actor's id names. STORAGE_UNAVAILABLE if this folder has no such shard."""
        index = ids.shard_of(actor_id)
        if index >= len(self._shards):
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"{actor_id} belongs to another data folder: it names shard {index:02}, and this one has"
                f" {len(self._shards)} shards.",
            )
        return self._shards[index]

    def holds(self, actor_id: str) -> bool:
        """Return True if the id names a shard of this folder."""
        try:
            return ids.shard_of(actor_id) < len(self._shards)
        except (ValueError, IndexError):
            return False

    async def unfinished(self) -> list[str]:
        """Return the actors of all shards that have pending operations."""
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
        found = await asyncio.gather(*(shard.heads(own) for shard, own in by_shard.items()))
        return {actor: head for heads in found for actor, head in heads.items()}

    async def snapshot(self, actor: str, queries: Sequence[Query]) -> Snapshot | None:
        if not self.holds(actor):
            return None
        typed = [(replace(query, actor=actor), self._row_types[query.table]) for query in queries]
        return await self.of(actor).snapshot(actor, typed)

    async def get(self, table: str, row_id: str, actor: str = "") -> StoredValue | None:
        rows = await self.find(Query(table=table, id=row_id, actor=actor, limit=1))
        return rows[0] if rows else None

    async def find(self, query: Query) -> list[StoredValue]:
        row_type = self._row_types[query.table]
        shards = self._shards
        colocated = query.actor or query.colocated_with
        if colocated:
            shards = [self.of(colocated)] if self.holds(colocated) else []
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
    found: Sequence[QueryResult],
    position: Callable[[StoredValue], StoredValue],
    limit: int,
    *,
    reverse: bool,
) -> QueryResult:
    """Merge the results of shards. Stop where a truncated result ends: rows after it may precede the
    others."""
    if len(found) == 1:
        return QueryResult(found[0][:limit], truncated=found[0].truncated and len(found[0]) <= limit)
    ends = [position(each[-1]) for each in found if each.truncated]
    last = (max(ends) if reverse else min(ends)) if ends else None
    merged = QueryResult()
    for item in heapq.merge(*found, key=position, reverse=reverse):
        if len(merged) == limit:
            break
        merged.append(item)
        if last is not None and position(item) == last:
            merged.truncated = True
            break
    return merged


async def _check_identity(shard: SqliteShard, index: int, count: int, *, must_be_stored: bool) -> None:
    """Refuse an empty file and a file of another shard: a file restored to the wrong name would hide its
    data."""
    found = await shard.identity()
    if found is None and not must_be_stored:
        await shard.identify(index, count)
    elif found != (index, count):
        content = "is empty" if found is None else f"is shard {found[0]:02} of {found[1]}"
        raise error(
            Reason.STORAGE_UNAVAILABLE,
            f"{shard.database.path} {content}, not shard {index:02} of {count}. Restore the right file from a"
            " backup.",
        )


def _paths(folder: Path, count: int) -> tuple[list[Path], bool]:
    """Return the files of the shards, and True if the folder was complete before, so that all must exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise error(
            Reason.STORAGE_UNAVAILABLE, f"{folder} cannot be used as a folder: {problem.strerror}."
        ) from None
    existing, count_file = sorted(folder.glob("[0-9][0-9].db")), folder / _COUNT_FILE
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
    it."""
    count_file = folder / _COUNT_FILE
    if not count_file.exists():
        draft = folder / f"{_COUNT_FILE}.new"
        draft.write_text(f"{count}\n", encoding="ascii")
        draft.replace(count_file)
