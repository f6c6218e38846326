"""The simulated disk of a node, and the stores that a node opens on it.

The `Disk` survives its nodes. It holds what is durable: the journal in memory of the server's own adapter. A
node opens `NodeStores` on it, which implement the ports ``Journals``, ``Journal``, ``Records`` and
``Accounts``:

- A commit waits in the node until it is written, alone or with others. A node that dies loses it before.
- A node may die before a write, and after a write before the acknowledgement.
- Writes and reads take a random time. While the disk is faulty, they fail now and then with
  STORAGE_UNAVAILABLE.
- The disk keeps the epoch of each write by shard, so that a test can check that epochs never fall. It also
  keeps every entry and event, so that a test can check what an archive brings back.
- `NodeBlobs` and `NodeArchives` are the object store and the export of records, with the same faults.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tests.simulation.event_loop import Process
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.in_memory.journal import MemoryJournal, MemoryShards, StoredActor
from wonder_server.core import ids
from wonder_server.core.budget import Account
from wonder_server.core.conversation.model.values import Turn
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import CompletedRequest
from wonder_server.core.ids import shard_of
from wonder_server.ports.archives import RegisteredObject
from wonder_server.ports.journal import Commit, Entry, Event, Loaded, Unfinished
from wonder_server.ports.records import EventQuery, Head, Query, Snapshot

T = TypeVar("T")

MAX_GROUP = 8
"""Maximum number of submissions that one write contains."""


class Trace(Protocol):
    """Receives each step of the history."""

    def __call__(self, *step: object) -> None: ...


@dataclass(slots=True, kw_only=True)
class DiskFaults:
    """Probabilities and durations of a disk's faults. All zero is a disk without faults."""

    write_fails: float = 0.0
    read_fails: float = 0.0
    dies_before_write: float = 0.0
    dies_after_write: float = 0.0
    max_delay_s: float = 0.005


class Disk:
    """Durable state, shared by all nodes that open it one after another."""

    def __init__(self, trace: Trace, journal: MemoryJournal | None = None) -> None:
        self.shards = MemoryShards(journal)
        self.journal = self.shards.journal
        # As a server with a file for each shard, which refuses a second reference in its own file only.
        self.journal.memory.files = ids.SHARDS
        self.epochs: dict[int, list[int]] = {}
        """The epochs of all writes to each shard, in order."""
        self.turns: dict[str, Turn] = {}
        """Every turn as it was last written, also those of deleted conversations."""
        self.memories: Any = None
        """The memories (`tests.simulation.memories.MemoryDisk`), once a node has opened them."""
        self.blobs = MemoryBlobs()
        self.registered: dict[tuple[str, int], RegisteredObject] = {}
        """Objects of conversations that were about to be written, by key and epoch."""
        self.archive_keys: set[str] = set()
        """The keys of all objects of conversations that were ever written."""
        self.entries: defaultdict[str, list[Entry]] = defaultdict(list)
        """Every entry that was written, by actor, also those of archived and deleted actors."""
        self.events: defaultdict[str, list[Event]] = defaultdict(list)
        """Every event that was written, by actor, also those of archived and deleted actors."""
        self.vault: list[tuple[Any, ...]] = []
        """Parts of exported rows. The rows of the journal are frozen, so no encoding is needed."""
        self._vault_numbers: dict[tuple[object, ...], int] = {}
        self.trace = trace

    def keep(self, *value: object) -> int:
        """Keep an exported row and return its number, which is the same for the same row."""
        if value not in self._vault_numbers:
            self._vault_numbers[value] = len(self.vault)
            self.vault.append(value)
        return self._vault_numbers[value]

    def write(self, commits: Sequence[Commit]) -> None:
        """Write the commits of one submission durably, all or none."""
        self.journal.write(commits)
        for commit in commits:
            self.epochs.setdefault(shard_of(commit.actor_id), []).append(commit.epoch)
            self.turns.update((put.id, put.value) for put in commit.changes if put.table == "turns")
            self._remember(commit)
            self.trace("written", commit.actor_id, len(commit.entries), len(commit.events))

    def _remember(self, commit: Commit) -> None:
        """Keep the entries and events of a commit. The oracle compares what the store decodes with them."""
        actor_id = commit.actor_id
        self.entries[actor_id] += commit.entries
        if commit.compact:
            self.events[actor_id] += StoredActor(self.journal, actor_id).events
        else:
            self.events[actor_id] += commit.events

    def unfinished(self) -> list[str]:
        """Return the ids of the actors with operations in their durable outboxes."""
        return [actor.id for actor in self.journal.actors.values() if actor.outbox]

    def conversations_away(self) -> list[str]:
        """Return the conversations that are archived, or that are being archived or restored."""
        rows = [
            put.value for each in self.journal.actors.values() for put in each.table("conversations").values()
        ]
        return [row.id for row in rows if (row.archived_ms or row.stale_archive) and not row.deleted_ms]

    def events_of(self, actor_id: str) -> list[Event]:
        """Return the events of an actor that were written."""
        return self.events[actor_id]


class _Numbered(Protocol):
    @property
    def sequence(self) -> int: ...


N = TypeVar("N", bound=_Numbered)


_Waiting = tuple[Sequence[Commit], "asyncio.Future[None]"]


class NodeStores:
    """One opening of a disk by one node."""

    def __init__(self, disk: Disk, faults: DiskFaults, dice: random.Random, process: Process) -> None:
        self.disk = disk
        self._faults = faults
        self.dice = dice
        self._process = process
        self._waiting: deque[_Waiting] = deque()
        self._is_writing = False

    # --- the port Journals ----------------------------------------------------------------------

    def of(self, actor_id: str) -> NodeStores:
        return self

    def holds(self, actor_id: str) -> bool:
        return True

    async def raise_epochs(self, shards: Collection[int]) -> dict[int, int]:
        """Raise epochs; implements the port ``Epochs``."""
        await self.wait_for_read()
        return await self.disk.journal.raise_epochs(shards)

    @property
    def files(self) -> Sequence[NodeStores]:
        return (self,)

    async def members(self, root: str) -> list[str]:
        await self.wait_for_read()
        return await self.disk.shards.members(root)

    # --- the port Journal: writes ---------------------------------------------------------------

    async def commit(self, commits: Sequence[Commit]) -> None:
        await self.submit(commits)

    def submit(self, commits: Sequence[Commit]) -> asyncio.Future[None]:
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((commits, written))
        if not self._is_writing:
            self._is_writing = True
            asyncio.get_running_loop().call_later(self._delay_s(), self._write)
        return written

    def _write(self) -> None:
        """Write the first waiting submissions, and acknowledge them a moment later."""
        if self.dice.random() < self._faults.dies_before_write:
            self._process.kill_here()
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._group_size()))]
        if self.dice.random() < self._faults.write_fails:
            results: list[Exception | None] = [_unavailable("write") for _ in group]
        else:
            results = [self._try_to_write(commits) for commits, _ in group]
        if self.dice.random() < self._faults.dies_after_write:
            self._process.kill_here()
        asyncio.get_running_loop().call_later(self._delay_s(), self._acknowledge, group, results)

    def _try_to_write(self, commits: Sequence[Commit]) -> Exception | None:
        try:
            self.write(commits)
        except Exception as problem:
            return problem
        return None

    def write(self, commits: Sequence[Commit]) -> None:
        """Write one submission. Raises what the disk raises."""
        self.disk.write(commits)

    def _acknowledge(self, group: list[_Waiting], results: list[Exception | None]) -> None:
        for (_, written), problem in zip(group, results, strict=True):
            if written.cancelled():
                continue
            if problem is None:
                written.set_result(None)
            else:
                written.set_exception(problem)
        self._is_writing = bool(self._waiting)
        if self._is_writing:
            asyncio.get_running_loop().call_later(self._delay_s(), self._write)

    @property
    def process(self) -> Process:
        """The process of the node."""
        return self._process

    async def change(self, work: Callable[[], Awaitable[T]]) -> T:
        """Make a change outside the journal. It fails before its effect, or the node dies before or after."""
        await asyncio.sleep(self._delay_s())
        if self.dice.random() < self._faults.dies_before_write:
            self._process.kill_here()
        if self.dice.random() < self._faults.write_fails:
            raise _unavailable("write")
        result = await work()
        if self.dice.random() < self._faults.dies_after_write:
            self._process.kill_here()
        await asyncio.sleep(self._delay_s())
        return result

    def _group_size(self) -> int:
        return self.dice.randint(1, MAX_GROUP)

    def _delay_s(self) -> float:
        return self.dice.random() * self._faults.max_delay_s

    # --- the port Journal: reads ----------------------------------------------------------------

    async def wait_for_read(self) -> None:
        await asyncio.sleep(self._delay_s() if self.dice.random() < 0.5 else 0)
        if self.dice.random() < self._faults.read_fails:
            raise _unavailable("read")

    async def load(self, actor_id: str) -> Loaded | None:
        await self.wait_for_read()
        return await self.disk.journal.load(actor_id)

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        await self.wait_for_read()
        return await self.disk.journal.completed_request(scope, request_id)

    async def entries(self, actor_id: str, after: int, limit: int) -> list[Entry]:
        await self.wait_for_read()
        return await self.disk.journal.entries(actor_id, after, limit)

    async def events(self, actor_id: str, after: int, limit: int) -> list[Event]:
        await self.wait_for_read()
        return await self.disk.journal.events(actor_id, after, limit)

    async def unfinished(self, prefix: str, after: str, limit: int) -> list[Unfinished]:
        await self.wait_for_read()
        return await self.disk.journal.unfinished(prefix, after, limit)


class NodeRecords:
    """The ports ``Records`` and ``Accounts`` of one opening. Reads wait and fail like those of its
    journal."""

    def __init__(self, stores: NodeStores) -> None:
        self._stores = stores
        self._shards = stores.disk.shards

    async def head(self, actor_id: str) -> int | None:
        await self._stores.wait_for_read()
        return await self._shards.head(actor_id)

    async def heads(self, actors: Sequence[str]) -> dict[str, Head]:
        await self._stores.wait_for_read()
        return await self._shards.heads(actors)

    async def snapshot(self, actor: str, queries: Sequence[Query]) -> Snapshot | None:
        await self._stores.wait_for_read()
        return await self._shards.snapshot(actor, queries)

    async def get(self, table: str, row_id: str, actor: str = "") -> Any:
        await self._stores.wait_for_read()
        return await self._shards.get(table, row_id, actor)

    async def find(self, query: Query) -> list[Any]:
        await self._stores.wait_for_read()
        return await self._shards.find(query)

    async def events(self, prefix: str, query: EventQuery) -> list[Event]:
        await self._stores.wait_for_read()
        return await self._shards.events(prefix, query)

    async def accounts(self, agent_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        await self._stores.wait_for_read()
        return await self._shards.accounts(agent_ids, lenient=lenient)


def _unavailable(what: str) -> WonderError:
    return error(Reason.STORAGE_UNAVAILABLE, f"The simulated disk refused a {what}.", transient=True)
