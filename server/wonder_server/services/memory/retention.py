"""Retention of memories by the rules of their agent's persona (feature E7).

Without rules every memory stays. A rule applies to memories of its types from an age on; a rule without
types applies to all types that no earlier rule names.

- *Delete* deletes them.
- *Consolidate* starts a workflow: `wonder/std/consolidate_memory`, unless the rule names another. The
  workflow writes one memory that summarizes up to 50 others, and archives those in the same commit.

Archived memories cannot be archived again, so memories are consolidated once even if a run is repeated.
The next sweep repeats failed consolidations."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final, Protocol

from wonder_server.core.conversation.context.resolved_agent import extraction_profile_input
from wonder_server.core.definitions.references import parse_reference
from wonder_server.core.definitions.specs import PinnedAgent, RetentionAction, RetentionRule
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import Origin
from wonder_server.core.identity import server_in, server_part
from wonder_server.core.json_types import JsonDict, JsonObject
from wonder_server.core.memory.records import Filter, Memory
from wonder_server.core.tenancy.resources import DEFAULT_TENANT
from wonder_server.logs import logger
from wonder_server.ports.access import ByPrincipal
from wonder_server.ports.clock import Clock
from wonder_server.ports.placement import OwnsKey, owns_everything
from wonder_server.services.paging import MAX_PAGE_SIZE, Page, PageRequest

_log = logger("memory")

START_DELAY_S: Final = 10.0
"""Pause after startup, which has more urgent work."""
DEFAULT_WORKFLOW: Final = "wonder/std/consolidate_memory"
MAX_GROUP: Final = 50
"""Maximum number of memories that one run summarizes."""
MAX_GROUP_BYTES: Final = 100_000
MIN_GROUP: Final = 2
"""Minimum number of memories to summarize."""
MAX_PER_SWEEP: Final = 5_000
"""Maximum number of an agent's memories per sweep; the next sweep continues."""
MAX_ATTEMPTS: Final = 3
"""Maximum number of runs for the same memories."""


class Memories(Protocol):
    """The methods of `MemoryService` that retention needs."""

    async def page(
        self, agent_id: str, request: PageRequest, wanted: Filter | None = None
    ) -> Page[Memory]: ...

    async def delete(self, agent_id: str, memory_id: str) -> None: ...


class Agents(Protocol):
    """The methods of `Library` that retention needs."""

    async def agent_ids(self, project: str, limit: int) -> list[str]: ...

    async def pin_persona(self, agent_id_or_name: str) -> PinnedAgent: ...


class AgentsOfTenants(ByPrincipal[Agents], Protocol):
    """The agents of each tenant."""

    def tenant_ids(self) -> Collection[str]:
        """Return the ids of the tenants but ``default``."""
        ...


class ConsolidationRunner(Protocol):
    """Starts consolidation runs and waits for them."""

    async def run(self, workflow: str, agent: PinnedAgent, input: JsonObject, origin: Origin) -> str:
        """Start the workflow and return the final status of its run, or ``running`` after one minute. A
        repeated request id refers to the first run."""
        ...


class Retention:
    """Applies retention rules every ``interval_s`` seconds and on demand."""

    def __init__(
        self,
        *,
        memories: Memories,
        agents: AgentsOfTenants,
        consolidation_runner: ConsolidationRunner,
        clock: Clock,
        interval_s: float = 3600.0,
        owns: OwnsKey = owns_everything,
    ) -> None:
        """``owns`` returns True for the agents whose memories this node sweeps."""
        self._owns = owns
        self._memories = memories
        self._agents = agents
        self._consolidation_runner = consolidation_runner
        self._clock = clock
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the periodic sweeps; the first follows within ten seconds."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop the sweeps. Started runs continue."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def sweep(self) -> None:
        """Apply the rules of every agent of this node. An error for one agent is logged and does not affect
        the others."""
        swept: set[str] = set()
        # The agents of the tenant ``default`` are those that no other tenant has.
        for tenant_id in (*self._agents.tenant_ids(), DEFAULT_TENANT):
            agents = self._agents.of(server_in(tenant_id))
            agent_ids = [each for each in await agents.agent_ids("", 1_000_000) if each not in swept]
            swept.update(agent_ids)
            for agent_id in filter(self._owns, agent_ids):
                try:
                    await self._apply(await agents.pin_persona(agent_id), tenant_id)
                except WonderError as problem:
                    _log.warning("retention_failed", agent=agent_id, problem=str(problem))

    async def _apply(self, agent: PinnedAgent, tenant_id: str) -> None:
        """Apply the rules of an agent's persona to its memories."""
        rules = agent.persona.retention
        for position, rule in enumerate(rules):
            earlier = tuple(name for other in rules[:position] for name in other.types)
            wanted = Filter(
                types=tuple(name for name in rule.types if name not in earlier),
                other_types=() if rule.types else earlier,
                end_ms=self._clock.now_ms() - rule.older_than_ms,
                set_aside=rule.action is RetentionAction.DELETE,
            )
            if rule.types and not wanted.types:
                continue
            if rule.action is RetentionAction.DELETE:
                await self._delete(agent.agent_id, wanted)
            elif rule.action is RetentionAction.CONSOLIDATE:
                await self._consolidate(agent, rule, wanted, tenant_id)
            if not rule.types:
                return  # A rule without types applies to all other memories, so it is the last.

    async def _delete(self, agent_id: str, wanted: Filter) -> None:
        count = 0
        async for memory in self._due(agent_id, wanted):
            try:
                await self._memories.delete(agent_id, memory.id)
            except WonderError as problem:
                if problem.fault.reason is not Reason.MEMORY_NOT_FOUND:
                    raise
            count += 1
        if count:
            _log.info("memories_deleted", agent=agent_id, memories=count)

    async def _consolidate(
        self, agent: PinnedAgent, rule: RetentionRule, wanted: Filter, tenant_id: str
    ) -> None:
        due = [memory async for memory in self._due(agent.agent_id, wanted)]
        due.reverse()  # Oldest first.
        workflow = _workflow(rule, agent.persona_ref)
        for group in _groups(due):
            if len(group) < MIN_GROUP or not await self._summarize(agent, workflow, group, tenant_id):
                return
            _log.info("memories_consolidated", agent=agent.agent_id, memories=len(group))

    async def _summarize(
        self, agent: PinnedAgent, workflow: str, memories: Sequence[Memory], tenant_id: str
    ) -> bool:
        """Summarize memories with a run. Return True if the run completed."""
        input = {
            "agent_id": agent.agent_id,
            "model_profile": extraction_profile_input(agent),
            "memories": [_memory_json(memory) for memory in memories],
        }
        fingerprint = hashlib.blake2b(json.dumps([workflow, input]).encode(), digest_size=16).hexdigest()
        for attempt in range(MAX_ATTEMPTS):
            origin = Origin(server_part("retention", tenant_id), f"retention-{fingerprint}-{attempt}")
            status = await self._consolidation_runner.run(workflow, agent, input, origin)
            if status != "failed":
                return status == "completed"
        _log.warning("memory_consolidation_failed", agent=agent.agent_id, workflow=workflow)
        return False

    async def _due(self, agent_id: str, wanted: Filter) -> AsyncIterator[Memory]:
        """Yield the memories that match ``wanted``, newest first."""
        token, count = "", 0
        while count < MAX_PER_SWEEP:
            page = await self._memories.page(agent_id, PageRequest(size=MAX_PAGE_SIZE, token=token), wanted)
            for memory in page.items:
                yield memory
            token, count = page.next_page_token, count + len(page.items)
            if not token:
                return

    async def _run(self) -> None:
        await asyncio.sleep(min(self._interval_s, START_DELAY_S))
        while True:
            try:
                await self.sweep()
            except Exception:
                _log.exception("retention_failed")
            await asyncio.sleep(self._interval_s)


def _workflow(rule: RetentionRule, persona_ref: str) -> str:
    """Return the workflow reference of a rule, with the persona's library if it names none."""
    text = rule.consolidation_workflow_id or DEFAULT_WORKFLOW
    reference = parse_reference(text)
    if reference is None or reference.definition_id or reference.library or not persona_ref:
        return text
    return f"{persona_ref.rpartition('/')[0]}/{text}"


def _groups(due: Sequence[Memory]) -> list[list[Memory]]:
    """Split memories into groups to summarize, in order, each within the maximum number and size."""
    groups: list[list[Memory]] = []
    size = 0
    for memory in due:
        size += memory.size_bytes
        if not groups or len(groups[-1]) == MAX_GROUP or size > MAX_GROUP_BYTES:
            groups.append([])
            size = memory.size_bytes
        groups[-1].append(memory)
    return groups


def _memory_json(memory: Memory) -> JsonDict:
    return {
        "id": memory.id,
        "type": memory.type,
        "content": memory.content,
        "significance": memory.significance,
        "metadata": memory.metadata,
        "created_ms": memory.created_ms,
    }
