"""The journal and the record in memory, for tests and for dry runs. Rows are encoded as on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wonder_server.adapters.in_memory.record_store import (
    MemoryRecordStore,
    MemoryStatements,
    as_read,
    is_live,
)
from wonder_server.core import ids
from wonder_server.core.actor.changes import Change, Delete, Erase, Put
from wonder_server.core.actor.derivation import derived
from wonder_server.core.actor.planner import Planner
from wonder_server.core.budget import CHARGES, Account
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.ports.journal import Commit, Entry, Event, StaleEpochError
from wonder_server.ports.record_store import StoredRow
from wonder_server.record import decoding
from wonder_server.record.journal import StoredJournal
from wonder_server.record.journals import StoredJournals, row_types

ALL: Final = 1 << 31
"""More than any actor has of anything."""


class MemoryJournal(StoredJournal):
    """A journal in memory. Refuses commits that do not continue the record of their actor with ValueError."""

    def __init__(
        self, planners: Sequence[Planner] = (CONVERSATION, RUN), store: MemoryRecordStore | None = None
    ) -> None:
        self.memory = store or MemoryRecordStore()
        self.planners = tuple(planners)
        self.derived_runs: dict[str, tuple[list[StoredRow], Commit]] = {}
        """The journal rows of compact runs, and the commits with everything that follows from them."""
        super().__init__(self.memory, planners)

    @property
    def commits(self) -> int:
        """The number of writes."""
        return self.memory.commits

    @property
    def accounts(self) -> Mapping[str, Account]:
        """The usage of agents by id."""
        return self.memory.accounts

    async def commit(self, commits: Sequence[Commit]) -> None:
        self.write(commits)

    def write(self, commits: Sequence[Commit]) -> None:
        """Write commits without awaiting."""
        if not any(self._is_stale(commit) for commit in commits):  # The store refuses those.
            self._check(commits)
        known, found = self.memory.run(lambda writes: self._write(writes, commits))
        known.add(found)

    @property
    def actors(self) -> dict[str, StoredActor]:
        """The stored actors by id."""
        return {actor: StoredActor(self, actor) for actor in self.memory.actors}

    def actor(self, actor_id: str) -> StoredActor | None:
        """Return a stored actor, or None."""
        return StoredActor(self, actor_id) if actor_id in self.memory.actors else None

    def check_epoch(self, actor_id: str, epoch: int) -> None:
        """Raise `StaleEpochError` if the actor's shard has a later epoch."""
        current = self.memory.epochs.get(ids.shard_of(actor_id), 0)
        if epoch < current:
            raise StaleEpochError(actor_id, epoch, current)

    def _is_stale(self, commit: Commit) -> bool:
        return commit.epoch < self.memory.epochs.get(ids.shard_of(commit.actor_id), 0)

    def _check(self, commits: Sequence[Commit]) -> None:
        """Raise ValueError before any change if a commit does not continue its actor's record."""
        heads: dict[str, tuple[int, int]] = {}
        removed: set[tuple[str, str, str]] = set()
        for commit in commits:
            row = self.memory.actors.get(commit.actor_id)
            entry, event = heads.get(commit.actor_id, (0, 0) if row is None else row[3:5])
            entries = [each.sequence for each in commit.entries]
            events = [each.sequence for each in commit.events]
            if entries != [*range(entry + 1, entry + 1 + len(entries))] or events != [
                *range(event + 1, event + 1 + len(events))
            ]:
                raise ValueError(f"the commit does not continue the record of {commit.actor_id}")
            heads[commit.actor_id] = (entry + len(entries), event + len(events))
            if not any(isinstance(change, Erase) for change in commit.changes):
                for change in commit.changes:
                    self._check_fresh(commit.actor_id, change, removed)

    def _check_fresh(self, actor: str, change: Change, removed: set[tuple[str, str, str]]) -> None:
        """Raise ValueError for a row that exists, if the change says that it is new."""
        if isinstance(change, Delete):
            removed.add((actor, change.table, change.id))
        elif isinstance(change, Put) and change.fresh and change.table != CHARGES:
            exists = change.id in self.memory.tables[change.table].get(actor, {})
            if exists and (actor, change.table, change.id) not in removed:
                raise ValueError(f"{change.table} {change.id} exists, but the change says that it is new")


class StoredActor:
    """The decoded record of one actor as it is now. That of a compact run has all its rows and events.

    A part is read and checked when the first value names it, and is kept for further values.
    """

    def __init__(self, journal: MemoryJournal, actor_id: str) -> None:
        self._journal = journal
        self.id = actor_id
        self.planner = next(
            planner for planner in journal.planners if actor_id.startswith(f"{planner.prefix}_")
        )
        row = journal.memory.actors[actor_id]
        self.root: str = row[2]
        self.heads: tuple[int, int] = row[3:5]
        self._is_compact = bool(row[5])
        self._reads = MemoryStatements(journal.memory)
        self._parts = decoding.PartReader(self._reads, actor_id, journal.seals)
        self._decoded: tuple[list[StoredRow], list[Entry]] = [], []
        """The rows of the journal, and the entries in them."""

    @property
    def entries(self) -> list[Entry]:
        """The journal. It is decoded again only after a change of its rows: a checker reads it often."""
        rows = self._entry_rows()
        if rows != self._decoded[0]:
            self._decoded = rows, self.entries_after(0)
        return [*self._decoded[1]]

    def _entry_rows(self) -> list[StoredRow]:
        return list(self._journal.memory.entries.get(self.id, {}).values())

    def entries_after(self, sequence: int) -> list[Entry]:
        """Return the journal entries above ``sequence``."""
        return decoding.entries(self._parts, self.planner, sequence, ALL)

    @property
    def epochs(self) -> list[int]:
        """The epoch of each entry."""
        before, found = 0, []
        for sequence, _, epoch, *_ in self._reads.entries(self.id, 0, ALL):
            found += [epoch] * (sequence - before)
            before = sequence
        return found

    @property
    def events(self) -> list[Event]:
        """The events."""
        return self.events_after(0)

    def events_after(self, sequence: int) -> list[Event]:
        """Return the events above ``sequence``."""
        if self._is_compact:
            return self._derived.events[sequence:]
        rows = self._reads.events(self.id, sequence, ALL)
        return [decoding.event(self._parts, row, self.planner) for row in rows]

    @property
    def rows(self) -> dict[str, dict[str, Put]]:
        """The rows by table and id."""
        return {table: rows for table in self.planner.row_types if (rows := self.table(table))}

    def table(self, name: str) -> dict[str, Put]:
        """Return the rows of a table by id."""
        if not self._is_compact:
            stored = self._journal.memory.tables[name].get(self.id, {}).values()
            return {row[1]: self._put(name, row) for row in stored}
        found: dict[str, Put] = {}
        for change in self._derived.changes:
            if change.table == name and isinstance(change, Put):
                found[change.id] = change
            elif change.table == name:
                found.pop(change.id, None)
        return found

    @property
    def outbox(self) -> list[Put]:
        """The rows of the pending operations. A compact run has ended, so it has none."""
        if self._is_compact:
            return []
        stored = self._journal.memory.tables["operations"].get(self.id, {}).values()
        return [self._put("operations", row) for row in stored if is_live(row)]

    @property
    def _derived(self) -> Commit:
        """The commit of a compact run with all rows and events. The journal keeps it while the rows of the
        run's journal are the same: a compact run rarely changes, and checkers read it after each write."""
        rows, kept = self._entry_rows(), self._journal.derived_runs.get(self.id)
        if kept is not None and kept[0] == rows:
            return kept[1]
        whole = Commit(self.id, root=self.root)
        whole.add_all(derived(self.planner, self.entries))
        self._journal.derived_runs[self.id] = rows, whole
        return whole

    def _put(self, table: str, row: StoredRow) -> Put:
        _, row_id, parent, ordinal, status, alias, live, created_ms, *_ = row
        value = decoding.row_value(table, as_read(row), self._parts, self.planner.row_types[table])
        return Put(table, row_id, value, parent, ordinal, status, alias, bool(live), created_ms)


class MemoryShards(StoredJournals):
    """One journal instead of many shards."""

    def __init__(self, journal: MemoryJournal | None = None) -> None:
        self.journal = journal or MemoryJournal()
        super().__init__([self.journal], row_types(self.journal.planners))

    def of(self, actor_id: str) -> MemoryJournal:
        return self.journal

    def holds(self, actor_id: str) -> bool:
        return True

    async def accounts(self, account_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        """Return the accounts of these agents; implements the port ``Accounts``."""
        return {agent: self.journal.accounts.get(agent, Account()) for agent in account_ids}
