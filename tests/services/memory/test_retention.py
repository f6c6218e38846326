"""Rules of retention: what is kept, forgotten and summed up, and that it is summed up once (feature E7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.services.memory.memory_kit import MemoryHouse, memory_house
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
    """Consolidations that write a summary at once, or fail."""

    def __init__(self, house: MemoryHouse) -> None:
        self.house = house
        self.asked: list[tuple[str, list[str], str]] = []
        self.status = "completed"

    async def run(self, workflow: str, agent: PinnedAgent, input: JsonObject, request_id: str) -> str:
        contents = [memory["content"] for memory in input["memories"]]
        self.asked.append((workflow, contents, request_id))
        if self.status == "completed":
            ids = tuple(memory["id"] for memory in input["memories"])
            draft = Draft(type="summary", content=" ".join(contents), archives_ids=ids)
            await self.house.service.write(agent.agent_id, draft)
        return self.status


class Agents:
    def __init__(self, agent: PinnedAgent) -> None:
        self.agent = agent

    async def agent_ids(self, project: str, limit: int) -> list[str]:
        return [self.agent.agent_id]

    async def pin_agent(self, agent_id_or_name: str) -> PinnedAgent:
        return self.agent


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def house(tmp_path: Path, clock: Clock) -> AsyncIterator[MemoryHouse]:
    async with memory_house(tmp_path, clock) as opened:
        yield opened


async def write(house: MemoryHouse, clock: Clock, kind: str, *contents: str) -> None:
    for content in contents:
        clock.now += 1
        await house.service.write("ada", Draft(type=kind, content=content))


async def sweep(house: MemoryHouse, clock: Clock, *rules: RetentionRule, runs: Runs | None = None) -> Runs:
    runs = runs or Runs(house)
    agents = Agents(an_agent(*rules))
    await Retention(memories=house.service, agents=agents, consolidation_runner=runs, clock=clock).sweep()
    return runs


async def listed(house: MemoryHouse, wanted: Filter | None = None) -> set[str]:
    page = await house.service.page("ada", PageRequest(size=500), wanted)
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


async def test_without_rules_everything_is_kept(house: MemoryHouse, clock: Clock) -> None:
    await write(house, clock, "episode", "one", "two")
    clock.now += 10_000 * DAY
    assert (await sweep(house, clock)).asked == []
    assert await listed(house) == {"one", "two"}


async def test_what_is_old_enough_is_deleted_and_nothing_else(house: MemoryHouse, clock: Clock) -> None:
    await write(house, clock, "note", "old note")
    await write(house, clock, "fact", "old fact")
    clock.now += 7 * DAY + 2
    await write(house, clock, "note", "new note")
    await sweep(house, clock, delete("note"))
    assert await listed(house, EVERYTHING) == {"old fact", "new note"}


async def test_a_rule_without_types_is_about_all_that_no_earlier_one_is_about(
    house: MemoryHouse, clock: Clock
) -> None:
    for kind in ("fact", "note", "episode"):
        await write(house, clock, kind, f"a {kind}")
    clock.now += 8 * DAY
    keep = RetentionRule(types=("fact",))
    await sweep(house, clock, keep, delete("note", days=30), delete("fact"), delete(), delete("note"))
    assert await listed(house) == {"a fact", "a note"}


async def test_old_ones_are_summed_up_in_order_and_archived(house: MemoryHouse, clock: Clock) -> None:
    await write(house, clock, "episode", "one", "two", "three")
    clock.now += 8 * DAY
    await write(house, clock, "episode", "new")
    runs = await sweep(house, clock, consolidate("episode"))
    [(workflow, contents, _)] = runs.asked
    assert (workflow, contents) == (DEFAULT_WORKFLOW, ["one", "two", "three"])
    assert await listed(house) == {"one two three", "new"}
    assert await listed(house, EVERYTHING) == {"one", "two", "three", "new", "one two three"}
    await sweep(house, clock, consolidate("episode"), runs=runs)
    assert len(runs.asked) == 1, "what is archived is not due"


async def test_many_are_summed_up_in_portions_and_a_single_one_waits(
    house: MemoryHouse, clock: Clock
) -> None:
    await write(house, clock, "episode", *(f"n{number}" for number in range(101)))
    clock.now += 8 * DAY
    runs = await sweep(house, clock, consolidate("episode", workflow="sum_up"))
    assert [(workflow, len(contents)) for workflow, contents, _ in runs.asked] == [("acme/x/sum_up", 50)] * 2
    assert "n100" in await listed(house)


async def test_a_run_that_fails_is_tried_again_and_leaves_everything(
    house: MemoryHouse, clock: Clock
) -> None:
    await write(house, clock, "episode", "one", "two")
    clock.now += 8 * DAY
    runs = Runs(house)
    runs.status = "failed"
    await sweep(house, clock, consolidate(), runs=runs)
    assert len({request_id for _, _, request_id in runs.asked}) == 3
    assert await listed(house) == {"one", "two"}
    runs.status = "running"
    await sweep(house, clock, consolidate(), runs=runs)
    assert runs.asked[3][2] == runs.asked[0][2], "the same memories are the same request"
    runs.status = "completed"
    await sweep(house, clock, consolidate(), runs=runs)
    assert await listed(house) == {"one two"}


async def test_what_stands_for_something_already_is_not_summed_up_twice(
    house: MemoryHouse, clock: Clock
) -> None:
    await write(house, clock, "episode", "one", "two")
    ids = [memory.id for memory in (await house.service.page("ada", PageRequest())).items]
    await house.service.write("ada", Draft(type="summary", content="both", archives_ids=tuple(ids)))
    for wrong in (ids, ["mem_none"]):
        with pytest.raises(Exception, match=r"archived|not there"):
            await house.service.write("ada", Draft(type="summary", content="x", archives_ids=tuple(wrong)))
    assert await listed(house) == {"both"}
