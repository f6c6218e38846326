"""Retention rules: memories that stay, are deleted, or are consolidated once (feature E7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.services.memory.memory_kit import MemoryStack, open_memory_stack
from wonder_server.core.definitions.specs import (
    ModelProfile,
    Persona,
    Pin,
    PinnedAgent,
    PinnedProfile,
    PinnedWorkflow,
    RetentionAction,
    RetentionRule,
    Workflow,
)
from wonder_server.core.idempotency import Origin
from wonder_server.core.identity import Principal
from wonder_server.core.json_types import JsonObject
from wonder_server.core.memory.records import EVERYTHING, Draft, Filter
from wonder_server.services.memory.retention import DEFAULT_WORKFLOW, Retention
from wonder_server.services.paging import PageRequest

DAY = 24 * 3600 * 1000
PIN = Pin(definition_id="def_1", library="x", name="y", revision=1)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * DAY

    def now_ms(self) -> int:
        return self.now


def an_agent(*rules: RetentionRule) -> PinnedAgent:
    return PinnedAgent(
        agent_id="ada",
        name="ada",
        project_ids=("proj_1",),
        persona=Persona(system_prompt="", retention=rules),
        persona_ref="acme/x/helper@3",
        profile=PinnedProfile(pin=PIN, spec=ModelProfile(provider="offline", model="offline-1")),
        assembly=PinnedWorkflow(pin=PIN, spec=Workflow(nodes=())),
    )


class Runs:
    """Consolidation runs that write a summary immediately, or fail."""

    def __init__(self, stack: MemoryStack) -> None:
        self.stack = stack
        self.asked: list[tuple[str, list[str], str]] = []
        self.status = "completed"

    async def run(self, workflow: str, agent: PinnedAgent, input: JsonObject, origin: Origin) -> str:
        contents = [memory["content"] for memory in input["memories"]]
        self.asked.append((workflow, contents, origin.request_id))
        if self.status == "completed":
            ids = tuple(memory["id"] for memory in input["memories"])
            draft = Draft(type="summary", content=" ".join(contents), archives_ids=ids)
            await self.stack.service.write(agent.agent_id, draft)
        return self.status


class Agents:
    def __init__(self, agent: PinnedAgent) -> None:
        self.agent = agent

    def of(self, _principal: Principal) -> Agents:
        return self

    def tenant_ids(self) -> list[str]:
        return []

    async def agent_ids(self, project: str, limit: int) -> list[str]:
        return [self.agent.agent_id]

    async def pin_persona(self, agent_id_or_name: str) -> PinnedAgent:
        return self.agent


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stack(tmp_path: Path, clock: Clock) -> AsyncIterator[MemoryStack]:
    async with open_memory_stack(tmp_path, clock) as opened:
        yield opened


async def write(stack: MemoryStack, clock: Clock, kind: str, *contents: str) -> None:
    for content in contents:
        clock.now += 1
        await stack.service.write("ada", Draft(type=kind, content=content))


async def sweep(stack: MemoryStack, clock: Clock, *rules: RetentionRule, runs: Runs | None = None) -> Runs:
    runs = runs or Runs(stack)
    agents = Agents(an_agent(*rules))
    await Retention(memories=stack.service, agents=agents, consolidation_runner=runs, clock=clock).sweep()
    return runs


async def listed(stack: MemoryStack, wanted: Filter | None = None) -> set[str]:
    page = await stack.service.page("ada", PageRequest(size=500), wanted)
    return {memory.content for memory in page.items}


def delete(*types: str, days: int = 7) -> RetentionRule:
    return RetentionRule(types=types, action=RetentionAction.DELETE, older_than_ms=days * DAY)


def consolidate(*types: str, days: int = 7, workflow: str = "") -> RetentionRule:
    return RetentionRule(
        types=types,
        action=RetentionAction.CONSOLIDATE,
        older_than_ms=days * DAY,
        consolidation_workflow_id=workflow,
    )


async def test_without_rules_everything_is_kept(stack: MemoryStack, clock: Clock) -> None:
    await write(stack, clock, "episode", "one", "two")
    clock.now += 10_000 * DAY
    assert (await sweep(stack, clock)).asked == []
    assert await listed(stack) == {"one", "two"}


async def test_only_memories_of_the_age_are_deleted(stack: MemoryStack, clock: Clock) -> None:
    await write(stack, clock, "note", "old note")
    await write(stack, clock, "fact", "old fact")
    clock.now += 7 * DAY + 2
    await write(stack, clock, "note", "new note")
    await sweep(stack, clock, delete("note"))
    assert await listed(stack, EVERYTHING) == {"old fact", "new note"}


async def test_a_rule_without_types_applies_to_the_types_of_no_earlier_rule(
    stack: MemoryStack, clock: Clock
) -> None:
    for kind in ("fact", "note", "episode"):
        await write(stack, clock, kind, f"a {kind}")
    clock.now += 8 * DAY
    keep = RetentionRule(types=("fact",))
    await sweep(stack, clock, keep, delete("note", days=30), delete("fact"), delete(), delete("note"))
    assert await listed(stack) == {"a fact", "a note"}


async def test_old_memories_are_summarized_in_order_and_archived(stack: MemoryStack, clock: Clock) -> None:
    await write(stack, clock, "episode", "one", "two", "three")
    clock.now += 8 * DAY
    await write(stack, clock, "episode", "new")
    runs = await sweep(stack, clock, consolidate("episode"))
    [(workflow, contents, _)] = runs.asked
    assert (workflow, contents) == (DEFAULT_WORKFLOW, ["one", "two", "three"])
    assert await listed(stack) == {"one two three", "new"}
    assert await listed(stack, EVERYTHING) == {"one", "two", "three", "new", "one two three"}
    await sweep(stack, clock, consolidate("episode"), runs=runs)
    assert len(runs.asked) == 1, "what is archived is not due"


async def test_many_memories_are_summarized_in_groups_and_a_single_one_waits(
    stack: MemoryStack, clock: Clock
) -> None:
    await write(stack, clock, "episode", *(f"n{number}" for number in range(101)))
    clock.now += 8 * DAY
    runs = await sweep(stack, clock, consolidate("episode", workflow="sum_up"))
    assert [(workflow, len(contents)) for workflow, contents, _ in runs.asked] == [("acme/x/sum_up", 50)] * 2
    assert "n100" in await listed(stack)


async def test_a_run_that_fails_is_tried_again_and_leaves_everything(
    stack: MemoryStack, clock: Clock
) -> None:
    await write(stack, clock, "episode", "one", "two")
    clock.now += 8 * DAY
    runs = Runs(stack)
    runs.status = "failed"
    await sweep(stack, clock, consolidate(), runs=runs)
    assert len({request_id for _, _, request_id in runs.asked}) == 3
    assert await listed(stack) == {"one", "two"}
    runs.status = "running"
    await sweep(stack, clock, consolidate(), runs=runs)
    assert runs.asked[3][2] == runs.asked[0][2], "the same memories are the same request"
    runs.status = "completed"
    await sweep(stack, clock, consolidate(), runs=runs)
    assert await listed(stack) == {"one two"}


async def test_a_summarized_memory_is_not_summarized_again(stack: MemoryStack, clock: Clock) -> None:
    await write(stack, clock, "episode", "one", "two")
    ids = [memory.id for memory in (await stack.service.page("ada", PageRequest())).items]
    await stack.service.write("ada", Draft(type="summary", content="both", archives_ids=tuple(ids)))
    for wrong in (ids, ["mem_none"]):
        with pytest.raises(Exception, match=r"archived|not there"):
            await stack.service.write("ada", Draft(type="summary", content="x", archives_ids=tuple(wrong)))
    assert await listed(stack) == {"both"}


async def test_a_node_sweeps_its_own_agents_only(stack: MemoryStack, clock: Clock) -> None:
    await write(stack, clock, "note", "old note")
    clock.now += 10 * DAY
    for owns, kept in ((lambda key: key != "ada", {"old note"}), (lambda key: key == "ada", set[str]())):
        agents = Agents(an_agent(delete("note")))
        runner = Runs(stack)
        await Retention(
            memories=stack.service, agents=agents, consolidation_runner=runner, clock=clock, owns=owns
        ).sweep()
        assert await listed(stack) == kept
