"""The journal and the record in memory, for tests and for servers that store nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import gt, lt
from typing import TypeVar

from wonder_server.core.actor.changes import Delete, Erase, Put, field_at
from wonder_server.core.actor.planner import Planner
from wonder_server.core.budget import CHARGES, Account, add_accounts
from wonder_server.core.idempotency import CompletedRequest
from wonder_server.ports.journal import DELETIONS, Commit, Entry, Event, Loaded
from wonder_server.ports.records import EventQuery, Head, Query, Snapshot

Rows = dict[str, Put]
T = TypeVar("T")


@dataclass(slots=True)
class _StoredActor:
    """One stored actor: its rows by table and id, and its entries and events in order.

    Entries and events up to ``erased_heads`` are erased.
    """

    id: str
    planner: Planner
    rows: dict[str, Rows] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    erased_heads: tuple[int, int] = (0, 0)
    root: str = ""

    @property
    def heads(self) -> tuple[int, int]:
        """Return the sequences of the last entry and the last event."""
        return self.erased_heads[0] + len(self.entries), self.erased_heads[1] + len(self.events)

    def table(self, name: str) -> Rows:
        return self.rows.get(name, {})

    @property
    def head(self) -> Head:
        ordinals = [put.ordinal for put in self.table("executions").values()]
        at_ms = self.events[-1].at_ms if self.events else 0
        return Head(self.heads[1], at_ms, max(ordinals, default=0))


class MemoryJournal:
    """Implements the port `wonder_server.ports.journal.Journal`. Frozen values are stored without a copy."""

    def __init__(self) -> None:
        self.actors: dict[str, _StoredActor] = {}
        self._completed_requests: dict[tuple[str, str], CompletedRequest] = {}
        self._owners: dict[tuple[str, str], str] = {}
        """The actor of each completed request."""
        self.accounts: dict[str, Account] = {}
        self.commits = 0

    async def load(self, actor_id: str, planner: Planner) -> Loaded | None:
        actor = self.actors.get(actor_id)
        if actor is None:
            return None
        found = _working_set(actor, planner)
        rows = {
            table: [put.value for put in sorted(found.get(table, {}).values(), key=_by_ordinal)]
            for table in planner.row_types
        }
        return Loaded(rows, *actor.heads, actor.entries[-1].at_ms if actor.entries else 0)

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[None]:
        return completed_future(lambda: self.write(commits))

    async def commit(self, commits: Sequence[Commit]) -> None:
        self.write(commits)

    def write(self, commits: Sequence[Commit]) -> None:
        """Write commits without awaiting."""
        self._check(commits)
        self.commits += 1
        for given in commits:
            if self._erases(given):
                continue
            commit = _expanded(given)
            actor = self.actors.setdefault(commit.actor_id, _StoredActor(commit.actor_id, commit.planner))
            actor.root = actor.root or commit.root or commit.actor_id
            actor.entries.extend(commit.entries)
            actor.events.extend(commit.events)
            for change in commit.changes:
                rows = actor.rows.setdefault(change.table, {})
                if isinstance(change, Delete):
                    rows.pop(change.id, None)
                elif isinstance(change, Put) and change.table == CHARGES:
                    before = self.accounts.get(change.parent, Account())
                    self.accounts[change.parent] = add_accounts((before, change.value))
                elif isinstance(change, Put):
                    if change.fresh and change.id in rows:
                        raise ValueError(
                            f"{change.table} {change.id} exists, but the change says that it is new"
                        )
                    rows[change.id] = change
            for request, answer in commit.requests:
                self._completed_requests[request.scope, request.id] = CompletedRequest(
                    request.fingerprint, answer
                )
                self._owners[request.scope, request.id] = commit.actor_id

    def _erases(self, commit: Commit) -> bool:
        """Erase the record that a commit erases. Return True if the commit writes nothing else."""
        place = next((at for at, change in enumerate(commit.changes) if isinstance(change, Erase)), None)
        if place is None:
            return False
        erase = commit.changes[place]
        assert isinstance(erase, Erase)
        erased = {commit.actor_id, *erase.children}
        if erase.whole:
            erased |= {actor.id for actor in self.actors.values() if actor.root == commit.actor_id}
        for actor_id in erased - {commit.actor_id}:
            self.actors.pop(actor_id, None)
        owned = [key for key, owner in self._owners.items() if owner in erased]
        for key in [key for key in owned if key[0] != DELETIONS]:
            del self._completed_requests[key], self._owners[key]
        kept = self.actors.get(commit.actor_id)
        if erase.whole:
            self.actors.pop(commit.actor_id, None)
            for request, answer in commit.requests:
                self._completed_requests[request.scope, request.id] = CompletedRequest(
                    request.fingerprint, answer
                )
        elif kept is not None:
            kept.erased_heads = kept.heads
            kept.rows, kept.entries, kept.events = {}, [], []
            commit.changes = commit.changes[place:]
        return erase.whole

    def _check(self, commits: Sequence[Commit]) -> None:
        """Raise ValueError before any change if a commit does not continue its actor's record."""
        heads: dict[str, tuple[int, int]] = {}
        for commit in commits:
            actor = self.actors.get(commit.actor_id)
            before = actor.heads if actor is not None else (0, 0)
            entry, event = heads.get(commit.actor_id, before)
            entries = [each.sequence for each in commit.entries]
            events = [each.sequence for each in commit.events]
            fits = entries == [*range(entry + 1, entry + 1 + len(entries))]
            fits &= events == [*range(event + 1, event + 1 + len(events))]
            fits &= all(
                (request.scope, request.id) not in self._completed_requests for request, _ in commit.requests
            )
            if not fits:
                raise ValueError(f"the commit does not continue the record of {commit.actor_id}")
            heads[commit.actor_id] = (entry + len(entries), event + len(events))

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        return self._completed_requests.get((scope, request_id))

    async def events(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Event]:
        actor = self.actors.get(actor_id)
        return _after(actor.events, after - actor.erased_heads[1], limit) if actor is not None else []

    async def entries(self, actor_id: str, planner: Planner, after: int, limit: int) -> list[Entry]:
        actor = self.actors.get(actor_id)
        return _after(actor.entries, after - actor.erased_heads[0], limit) if actor is not None else []

    async def unfinished(self) -> list[str]:
        return [
            actor.id
            for actor in self.actors.values()
            if any(put.live for put in actor.table("operations").values())
        ]


def _after(items: list[T], skipped: int, limit: int) -> list[T]:
    start = max(0, skipped)
    return items[start : start + limit]


def _expanded(commit: Commit) -> Commit:
    """Return a commit with everything that follows from its entries: this journal has no compact form."""
    if not commit.compact:
        return commit
    whole = Commit(commit.actor_id, commit.planner, commit.entries, root=commit.root)
    whole.add_all(commit.entries)
    return whole


def completed_future(work: Callable[[], None]) -> asyncio.Future[None]:
    """Call ``work``. Return a completed future with its result or exception."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        work()
        future.set_result(None)
    except Exception as failure:
        future.set_exception(failure)
    return future


class MemoryShards:
    """One journal instead of many shards. Implements the port `wonder_server.ports.records.Records`."""

    def __init__(self, journal: MemoryJournal | None = None) -> None:
        self.journal = journal or MemoryJournal()

    @property
    def count(self) -> int:
        return 1

    def of(self, actor_id: str) -> MemoryJournal:
        return self.journal

    def holds(self, actor_id: str) -> bool:
        return True

    async def unfinished(self) -> list[str]:
        return await self.journal.unfinished()

    async def accounts(self, agent_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        """Return the accounts of these agents; implements the port ``Accounts``."""
        return {agent: self.journal.accounts.get(agent, Account()) for agent in agent_ids}

    async def head(self, actor_id: str) -> int | None:
        actor = self.journal.actors.get(actor_id)
        return None if actor is None else actor.heads[1]

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        stored = self.journal.actors
        return {actor: stored[actor].head for actor in actors if actor in stored}

    async def snapshot(self, actor: str, queries: Sequence[Query]) -> Snapshot | None:
        stored = self.journal.actors.get(actor)
        if stored is None:
            return None
        return Snapshot(stored.head, [await self.find(replace(query, actor=actor)) for query in queries])

    async def get(self, table: str, row_id: str, actor: str = "") -> object | None:
        found = await self.find(Query(table=table, id=row_id, actor=actor, limit=1))
        return found[0] if found else None

    async def find(self, query: Query) -> list[object]:
        def position(put: Put) -> tuple[int, str]:
            return (put.ordinal if query.by_ordinal else put.created_ms, put.id)

        found = [
            put
            for actor in self.journal.actors.values()
            if query.actor in ("", actor.id)
            for put in actor.table(query.table).values()
            if _matches(put, query)
        ]
        found.sort(key=position, reverse=query.newest_first)
        if query.after is not None:
            is_after = lt if query.newest_first else gt
            found = [put for put in found if is_after(position(put), query.after)]
        return [put.value for put in found[: query.limit]]

    async def events(self, planner: Planner, query: EventQuery) -> list[Event]:
        actors = [
            actor
            for actor in self.journal.actors.values()
            if actor.planner.prefix == planner.prefix and query.actor in ("", actor.id)
        ]
        if query.project_id:
            actors = [actor for actor in actors if _project(actor) == query.project_id]
        found = [event for actor in actors for event in actor.events if _event_matches(event, query)]
        after = query.after
        if query.actor:
            found = [event for event in found if after is None or event.sequence > after[2]]
        else:
            found.sort(key=_position, reverse=True)
            found = [event for event in found if after is None or _position(event) < after]
        return found[: query.limit]


def _working_set(actor: _StoredActor, planner: Planner) -> dict[str, Rows]:
    """Return the rows that the planner's `Reload` selects."""
    found: dict[str, Rows] = {}
    for table in planner.reload.live:
        found[table] = {key: put for key, put in actor.table(table).items() if put.live}
    for table, count in planner.reload.recent:
        newest = sorted(actor.table(table).values(), key=_by_ordinal)[-count:]
        found.setdefault(table, {}).update({put.id: put for put in newest})
    for table, parent in planner.reload.children:
        parents = found.get(parent, {})
        # A row of `works` has the id of its turn.
        same_id = (table, parent) == ("turns", "works")
        children = {
            key: put
            for key, put in actor.table(table).items()
            if (put.id if same_id else put.parent) in parents
        }
        found.setdefault(table, {}).update(children)
    return found


def _by_ordinal(put: Put) -> tuple[int, str]:
    return (put.ordinal, put.id)


def _matches(put: Put, query: Query) -> bool:
    filters = ((query.id, put.id), (query.parent, put.parent), (query.alias, put.alias))
    return (
        all(wanted in ("", value) for wanted, value in filters)
        and (not query.statuses or put.status in query.statuses)
        and query.start_ms <= put.created_ms
        and (not query.end_ms or put.created_ms < query.end_ms)
        and all(
            field_at(put.value, path) in (wanted if isinstance(wanted, tuple) else (wanted,))
            for path, wanted in query.fields
        )
        and all(
            any(member.id == wanted for member in field_at(put.value, path)) for path, wanted in query.members
        )
        and all(wanted in (field_at(put.value, path) or (wanted,)) for path, wanted in query.allowed)
    )


def _event_matches(event: Event, query: EventQuery) -> bool:
    return (
        event.sequence > query.after_sequence
        and (not query.names or event.emit.name in query.names)
        and query.turn_id in ("", event.emit.turn_id)
        and query.start_ms <= event.at_ms
        and (not query.end_ms or event.at_ms < query.end_ms)
    )


def _position(event: Event) -> tuple[int, str, int]:
    return (event.at_ms, event.actor_id, event.sequence)


def _project(actor: _StoredActor) -> str:
    return next((put.parent for put in actor.table("conversations").values()), "")
