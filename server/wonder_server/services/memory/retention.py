"""What becomes of memories in time, by the rules of their agent's persona (feature E7).

Without rules everything is kept. A rule is about memories of its types (none: all that no earlier rule is
about) from an age on. *Delete* forgets them. *Consolidate* starts a workflow, `wonder/std/consolidate_memory`
unless the rule names another, that writes a memory to stand for up to 50 of them; they are archived in the
commit that writes it. So however often a run begins, they are summed up once: memories that are archived
cannot be archived again, and what a run could not do is due at the next look.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Protocol

from wonder_server.core.conversation.context.resolved_agent import side_profile_of
from wonder_server.core.definitions.references import parse_reference
from wonder_server.core.definitions.specs import PinnedAgent, RetentionAction, RetentionRule
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.memory.records import Filter, Memory
from wonder_server.logs import logger
from wonder_server.ports.clock import Clock
from wonder_server.services.paging import MAX_PAGE_SIZE, Page, PageRequest

_log = logger("memory")

START_DELAY_S: Final = 10.0
"""After a start others have more urgent things to do."""
DEFAULT_WORKFLOW: Final = "wonder/std/consolidate_memory"
MAX_GROUP: Final = 50
"""Memories that one run sums up, at most."""
MAX_GROUP_BYTES: Final = 100_000
MIN_GROUP: Final = 2
"""A single memory is its own summary."""
MAX_PER_SWEEP: Final = 5_000
"""Memories of an agent that one look sees to; the rest are due at the next."""
MAX_ATTEMPTS: Final = 3
"""Runs that are started for the same memories before something has to change."""


class Memories(Protocol):
    """What is needed of the memory service."""

    async def page(
        self, agent_id: str, request: PageRequest, wanted: Filter | None = None
    ) -> Page[Memory]: ...

    async def delete(self, agent_id: str, memory_id: str) -> None: ...


class Agents(Protocol):
    """What is needed of the library."""

    async def agent_ids(self, project: str, limit: int) -> list[str]: ...

    async def pin_agent(self, agent_id_or_name: str) -> PinnedAgent: ...


class ConsolidationRunner(Protocol):
    """Starts the runs that sum up, and waits for them."""

    async def run(self, workflow: str, agent: PinnedAgent, input: Mapping[str, Any], request_id: str) -> str:
        """The status that the run has in the end; ``running`` if it has none within a minute. A request that
        was made before is about the same run."""
        ...


class Retention:
    """Applies rules, every so often (``every_s``) and when asked."""

    def __init__(
        self,
        *,
        memories: Memories,
        agents: Agents,
        consolidation_runner: ConsolidationRunner,
        clock: Clock,
        interval_s: float = 3600.0,
    ) -> None:
        self._memories = memories
        self._agents = agents
        self._consolidation_runner = consolidation_runner
        self._clock = clock
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look soon, and every so often from then on."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Look no more; runs that were started go on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def sweep(self) -> None:
        """One look at all agents. What fails for one does not keep it from the others."""
        for agent_id in await self._agents.agent_ids("", 1_000_000):
            try:
                await self.apply(await self._agents.pin_agent(agent_id))
            except WonderError as problem:
                _log.warning("retention_failed", agent=agent_id, problem=str(problem))

    async def apply(self, agent: PinnedAgent) -> None:
        """Apply the rules of an agent's persona to what it remembers."""
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
                await self._consolidate(agent, rule, wanted)
            if not rule.types:
                return  # It is about all that is left.

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

    async def _consolidate(self, agent: PinnedAgent, rule: RetentionRule, wanted: Filter) -> None:
        due = [memory async for memory in self._due(agent.agent_id, wanted)]
        due.reverse()  # Oldest first.
        workflow = _workflow(rule, agent.persona_ref)
        for some in _groups(due):
            if len(some) < MIN_GROUP or not await self._summarize(agent, workflow, some):
                return
            _log.info("memories_consolidated", agent=agent.agent_id, memories=len(some))

    async def _summarize(self, agent: PinnedAgent, workflow: str, memories: Sequence[Memory]) -> bool:
        """Whether one memory stands for these now."""
        input = {
            "agent_id": agent.agent_id,
            "model_profile": side_profile_of(agent),
            "memories": [_memory_json(memory) for memory in memories],
        }
        fingerprint = hashlib.blake2b(json.dumps([workflow, input]).encode(), digest_size=16).hexdigest()
        for attempt in range(MAX_ATTEMPTS):
            request_id = f"retention-{fingerprint}-{attempt}"
            status = await self._consolidation_runner.run(workflow, agent, input, request_id)
            if status != "failed":
                return status == "completed"
        _log.warning("memory_consolidation_failed", agent=agent.agent_id, workflow=workflow)
        return False

    async def _due(self, agent_id: str, wanted: Filter) -> AsyncIterator[Memory]:
        """Newest first."""
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
    """The workflow's reference, with the library of the persona where it names none."""
    text = rule.consolidation_workflow_id or DEFAULT_WORKFLOW
    reference = parse_reference(text)
    if reference is None or reference.definition_id or reference.library or not persona_ref:
        return text
    return f"{persona_ref.rpartition('/')[0]}/{text}"


def _groups(due: Sequence[Memory]) -> list[list[Memory]]:
    """What is summed up together: in order, bounded in number and in size."""
    groups: list[list[Memory]] = []
    size = 0
    for memory in due:
        size += memory.size_bytes
        if not groups or len(groups[-1]) == MAX_GROUP or size > MAX_GROUP_BYTES:
            groups.append([])
            size = memory.size_bytes
        groups[-1].append(memory)
    return groups


def _memory_json(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "type": memory.type,
        "content": memory.content,
        "significance": memory.significance,
        "metadata": memory.metadata,
        "created_ms": memory.created_ms,
    }
