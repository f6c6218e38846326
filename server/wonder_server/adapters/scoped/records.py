"""Views of the record, the journals and the accounts."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Final

from wonder_server.core.budget import Account
from wonder_server.core.idempotency import CompletedRequest
from wonder_server.ports.access import AccessScope
from wonder_server.ports.accounts import Accounts
from wonder_server.ports.catalog import Agents
from wonder_server.ports.journal import Entry, Event, Journals, Loaded
from wonder_server.ports.records import EventQuery, Head, Query, Records, RowValue, Snapshot
from wonder_server.ports.scoped import JournalView, ScopedRecords

_TABLES: Final = {"conv": "conversations", "run": "runs"}
"""The table of an actor's own row, by the prefix of its id."""


class RecordsView:
    """Implements the port ``ScopedRecords``."""

    def __init__(self, records: Records, scope: AccessScope) -> None:
        self._records = records
        self._projects = scope.projects
        self.scope = scope

    async def shows(self, actor_id: str) -> bool:
        if self._projects is None:
            return True
        table = _TABLES.get(actor_id.partition("_")[0])
        return table is not None and await self.get(table, actor_id, actor_id) is not None

    def head(self, actor_id: str) -> Coroutine[object, None, int | None]:
        return self._records.head(actor_id) if self._projects is None else self._head(actor_id)

    def heads(self, actors: Sequence[str]) -> Coroutine[object, None, dict[str, Head]]:
        return self._records.heads(actors) if self._projects is None else self._heads(actors)

    def snapshot(self, actor: str, queries: Sequence[Query]) -> Coroutine[object, None, Snapshot | None]:
        if self._projects is None:
            return self._records.snapshot(actor, queries)
        return self._snapshot(actor, queries)

    def get(self, table: str, row_id: str, actor: str = "") -> Coroutine[object, None, RowValue | None]:
        if self._projects is None:
            return self._records.get(table, row_id, actor)
        return self._get(Query(table=table, id=row_id, actor=actor, limit=1))

    def find(self, query: Query) -> Coroutine[object, None, list[RowValue]]:
        if self._projects is not None:
            wanted = self._projects if query.projects is None else self._projects & query.projects
            query = replace(query, projects=wanted)
        return self._records.find(query)

    def events(self, prefix: str, query: EventQuery) -> Coroutine[object, None, list[Event]]:
        if self._projects is not None:
            query = replace(query, projects=self._projects)
        return self._records.events(prefix, query)

    async def _head(self, actor_id: str) -> int | None:
        return await self._records.head(actor_id) if await self.shows(actor_id) else None

    async def _heads(self, actors: Sequence[str]) -> dict[str, Head]:
        return await self._records.heads([actor for actor in actors if await self.shows(actor)])

    async def _snapshot(self, actor: str, queries: Sequence[Query]) -> Snapshot | None:
        return await self._records.snapshot(actor, queries) if await self.shows(actor) else None

    async def _get(self, query: Query) -> RowValue | None:
        found = await self.find(query)
        return found[0] if found else None


class JournalsView:
    """Implements the port ``ScopedJournals``."""

    def __init__(self, journals: Journals, records: ScopedRecords) -> None:
        self._journals = journals
        self._records = records
        self._is_whole = records.scope.projects is None
        self.scope = records.scope

    def of(self, actor_id: str) -> JournalView:
        journal = self._journals.of(actor_id)
        return journal if self._is_whole else _GuardedJournal(journal, self._records)

    def holds(self, actor_id: str) -> bool:
        return self._journals.holds(actor_id)

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        return await self._journals.completed_request(scope, request_id)

    async def members(self, root: str) -> list[str]:
        return await self._journals.members(root) if await self._records.shows(root) else []


class _GuardedJournal:
    """The journal of a shard for a scope of some projects."""

    def __init__(self, journal: JournalView, records: ScopedRecords) -> None:
        self._journal = journal
        self._records = records

    async def load(self, actor_id: str) -> Loaded | None:
        return await self._journal.load(actor_id) if await self._records.shows(actor_id) else None

    async def entries(self, actor_id: str, after: int, limit: int) -> list[Entry]:
        if not await self._records.shows(actor_id):
            return []
        return await self._journal.entries(actor_id, after, limit)

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        return await self._journal.completed_request(scope, request_id)


class AccountsView:
    """Implements the port ``ScopedAccounts``. ``agents`` and ``records`` are views for the same scope."""

    def __init__(
        self, accounts: Accounts, agents: Agents, records: ScopedRecords, scope: AccessScope
    ) -> None:
        self._accounts = accounts
        self._agents = agents
        self._records = records
        self.scope = scope

    async def accounts(self, account_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        if self.scope.projects is not None:
            account_ids = [each for each in account_ids if await self._shows(each)]
        return await self._accounts.accounts(account_ids, lenient=lenient) if account_ids else {}

    async def _shows(self, account_id: str) -> bool:
        if account_id.startswith("proj_"):
            return self.scope.has_project(account_id)
        if account_id.startswith("run_"):
            return await self._records.shows(account_id)
        return await self._agents.agent_header(account_id) is not None
