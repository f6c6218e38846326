"""What becomes of memories when their agent goes, and of objects that nobody has any more (feature E6).

An agent is deleted in the catalog, its memories lie in another store: it is marked as leaving before, and
as deleted after the catalog has committed. A start asks the catalog about those in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol

from wonder_server.core.definitions.resources import Agent
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.memories import MemoryUpkeep, Traces
from wonder_server.ports.vectors import Vectors
from wonder_server.services.overflow import Overflow

_log = logger("memory")

SOON_S: Final = 30.0
"""After a start, searches come before tidying up."""
EVERY_S: Final = 600.0
"""How often objects are looked for that could not be removed before."""
AT_ONCE: Final = 200
"""Memories that are forgotten in one transaction; others wait for it no longer than 20 ms or so."""


PAUSE_S: Final = 0.02
"""Between steps of what nobody waits for."""


class Agents(Protocol):
    """What is needed of the catalog."""

    async def agent(self, key: str) -> Agent | None: ...


class Upkeep:
    """Keeps the store of memories in order."""

    def __init__(
        self,
        *,
        upkeep: MemoryUpkeep,
        traces: Traces,
        overflow: Overflow,
        vectors: Vectors,
        agents: Agents,
    ) -> None:
        self._upkeep = upkeep
        self._traces = traces
        self._overflow = overflow
        self._vectors = vectors
        self._agents = agents
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Take up what was left, and look after objects from now on."""
        self._spawn(self._run())

    async def stop(self) -> None:
        """The next start goes on with what is left."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._overflow.close()

    async def before_delete(self, agent: Agent) -> None:
        """An agent is about to be deleted, if nothing comes between."""
        await self._upkeep.mark_agent(agent.id, "leaving")

    async def after_delete(self, agent: Agent) -> None:
        """It was. Nobody can read its memories any more; they go in parts."""
        try:
            await self._upkeep.mark_agent(agent.id, "deleted")
        except WonderError as problem:
            # The agent is deleted, whatever becomes of this: the next sweep asks the catalog.
            _log.warning("agent_memories_deletion_deferred", agent=agent.id, problem=str(problem))
        else:
            self._spawn(self._purge(agent.id))

    async def sweep(self) -> None:
        """Forget what agents have left, remove what nobody has."""
        for agent_id, mark in (await self._upkeep.marked_agents()).items():
            if mark == "leaving":
                if await self._agents.agent(agent_id) is not None:
                    await self._upkeep.mark_agent(agent_id, "kept")
                    continue
                await self._upkeep.mark_agent(agent_id, "deleted")
            await self._purge(agent_id)
        await self._overflow.try_collecting()

    async def erase(self) -> None:
        """Let nothing be left of what was forgotten, step by step."""
        more = await self._traces.erase_some()
        while more:
            await asyncio.sleep(PAUSE_S)
            more = await self._traces.erase_some()

    async def _purge(self, agent_id: str) -> None:
        count, total = AT_ONCE, 0
        while count == AT_ONCE:
            count, gone = await self._upkeep.purge(agent_id, AT_ONCE)
            await self._vectors.remove(agent_id, gone)
            total += count
        if total:
            _log.info("agent_memories_deleted", agent=agent_id, memories=total)
        await self._overflow.try_collecting()

    async def _run(self) -> None:
        pause_s = SOON_S
        while True:
            for work in (self.sweep, self.erase):
                try:
                    await work()
                except Exception:
                    _log.exception("memory_gc_failed")
                await asyncio.sleep(pause_s)
            pause_s = EVERY_S / 2

    def _spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception:
                _log.exception("memory_gc_failed")

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
