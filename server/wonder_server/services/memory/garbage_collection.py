"""Removal of the memories of deleted agents and of unreferenced objects (feature E6).

The catalog and the memories are different stores, so a tombstone connects their commits. `before_delete`
sets the tombstone ``leaving``, `after_delete` sets ``deleted``. After a crash in between, the next sweep
asks the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol

from wonder_server.core.definitions.resources import Agent
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.memories import IndexResidue, MemoryMaintenance
from wonder_server.ports.placement import OwnsKey, owns_everything
from wonder_server.ports.vectors import Vectors
from wonder_server.services.memory.large_contents import LargeContents

_log = logger("memory")

START_DELAY_S: Final = 30.0
"""Pause after startup: searches come first."""
INTERVAL_S: Final = 600.0
"""Interval between two attempts to remove objects."""
BATCH: Final = 200
"""Memories that are deleted in one transaction. It delays other writes by 20 ms at most, approximately."""


PAUSE_S: Final = 0.02
"""Pause between background steps."""


class Agents(Protocol):
    """The lookup of agents in the catalog."""

    async def agent(self, key: str) -> Agent | None: ...


class MemoryGarbageCollector:
    """Background task that deletes the memories of deleted agents, index residue and unreferenced objects."""

    def __init__(
        self,
        *,
        maintenance: MemoryMaintenance,
        index_residue: IndexResidue,
        large_contents: LargeContents,
        vectors: Vectors,
        agents: Agents,
        owns: OwnsKey = owns_everything,
    ) -> None:
        """``owns`` returns True for the agents whose deleted memories this node removes. The residue of the
        indexes belongs to the store: the owner of the empty key removes it."""
        self._owns = owns
        self._maintenance = maintenance
        self._index_residue = index_residue
        self._large_contents = large_contents
        self._vectors = vectors
        self._agents = agents
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the background task. It resumes the work that the last process did not finish."""
        self._spawn(self._run())

    async def stop(self) -> None:
        """Stop the background tasks. The next start resumes their work."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._large_contents.close()

    async def wait_idle(self) -> None:
        """Wait for the deletions that `after_delete` has started. Do not call it after `start`, whose task
        has no end."""
        await asyncio.gather(*self._tasks)

    async def before_delete(self, agent: Agent) -> None:
        """Set the tombstone ``leaving`` before the catalog commits a deletion that may still fail."""
        await self._maintenance.add_tombstone(agent.id, "leaving")

    async def after_delete(self, agent: Agent) -> None:
        """Set the tombstone ``deleted`` after the catalog's commit, and delete the agent's memories in
        batches. No client can read them any more."""
        try:
            await self._maintenance.add_tombstone(agent.id, "deleted")
        except WonderError as problem:
            # The agent is deleted. Its tombstone stays `leaving`, so the next sweep asks the catalog.
            _log.warning("agent_memories_deletion_deferred", agent=agent.id, problem=str(problem))
        else:
            self._spawn(self._purge(agent.id))

    async def sweep(self) -> None:
        """Delete the memories of this node's deleted agents, then the unreferenced objects."""
        for agent_id, status in (await self._maintenance.tombstones()).items():
            if not self._owns(agent_id):
                continue
            if status == "leaving":
                if await self._agents.agent(agent_id) is not None:
                    await self._maintenance.add_tombstone(agent_id, "kept")
                    continue
                await self._maintenance.add_tombstone(agent_id, "deleted")
            await self._purge(agent_id)
        await self._large_contents.try_collect()

    async def purge_residue(self) -> None:
        """Purge deleted memories from the indexes, step by step."""
        more = self._owns("") and await self._index_residue.purge()
        while more:
            await asyncio.sleep(PAUSE_S)
            more = await self._index_residue.purge()

    async def _purge(self, agent_id: str) -> None:
        count, total = BATCH, 0
        while count == BATCH:
            count, removed_keys = await self._maintenance.delete_agent_memories(agent_id, BATCH)
            await self._vectors.remove(agent_id, removed_keys)
            total += count
        if total:
            _log.info("agent_memories_deleted", agent=agent_id, memories=total)
        await self._large_contents.try_collect()

    async def _run(self) -> None:
        pause_s = START_DELAY_S
        while True:
            for work in (self.sweep, self.purge_residue):
                try:
                    await work()
                except Exception:
                    _log.exception("memory_gc_failed")
                await asyncio.sleep(pause_s)
            pause_s = INTERVAL_S / 2

    def _spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception:
                _log.exception("memory_gc_failed")

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
