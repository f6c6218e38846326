"""Child runs below one root run: bounded, counted once, and no hindrance to others."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.actors.dispatch.test_handlers import Agents, Memory, Model, Tasks
from tests.actors.kit import LIMITS, TestJournal, origin
from tests.actors.run_kit import RunStage, open_stage, pinned
from tests.views import ForAll
from wonder_server.actors.dispatch import descendant_quota, handlers
from wonder_server.actors.dispatch.agent_calls import AgentCalls
from wonder_server.actors.dispatch.descendant_quota import DescendantQuota
from wonder_server.actors.dispatch.handlers import MAX_FEW_DESCENDANTS, Handlers
from wonder_server.actors.dispatch.model_calls import ModelCalls
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.adapters.in_memory.prices import MemoryPrices
from wonder_server.core.coordinator.model.values import Run, RunStatus
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Reason
from wonder_server.ports.records import Query


def with_handlers(stage: RunStage, *, quick: bool = True) -> tuple[Handlers, Tasks]:
    """Let real handlers execute the stage's commands. Tasks return an empty output, at once or never."""
    tasks = Tasks()
    tasks.output, tasks.quick, tasks.wait = {}, quick, not quick
    stage.handlers = Handlers(
        access=stage.access,
        tasks=tasks,
        memory=Memory(),
        model_calls=ModelCalls(
            directory=stage.directory, model=Model(), prices=MemoryPrices(), streams=stage.streams
        ),
        agent_calls=AgentCalls(access=stage.access, agents=ForAll(Agents())),
        quota=stage.quota,
    )
    return stage.handlers, tasks


def nested(levels: int, each: int) -> PinnedWorkflow:
    """Build ``levels`` nested workflows, each started for every one of ``each`` items."""
    every = {"s>b": {"for_each": {"items": str(list(range(each)))}}}
    inner = pinned("level0", "a")
    for level in range(1, levels + 1):
        outer = pinned(f"level{level}", "s>b", nodes={"b": {"workflow_id": "w"}}, edges=every)
        inner = replace(outer, workflows={"w": inner})
    return inner


async def children(stage: RunStage, run_id: str) -> list[Run]:
    found: list[Run] = await stage.shards.find(
        Query(table="runs", fields=(("parent.actor_id", run_id),), limit=100)
    )
    return found


# --- the limit --------------------------------------------------------------------------------------


async def test_a_tree_of_runs_that_grows_too_large_fails_and_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descendant_quota, "MAX_DESCENDANTS", 50)
    async with open_stage() as stage:
        _, tasks = with_handlers(stage)
        stage.workflows.known += [nested(30, 5), nested(2, 6)]
        begun = await stage.start("team/level30")
        await stage.wait_until_idle()
        run = await stage.runs.lookup.run(begun.run.id)
        assert run.status is RunStatus.FAILED and run.fault is not None
        assert run.fault.reason is Reason.LIMIT_EXCEEDED and "50 runs and agents" in run.fault.message
        assert stage.quota.count(run.id) == 0 and stage.loop.actor_count == 0
        assert tasks.inline_count < 500
        smaller = await stage.start("team/level2", wait_ms=5000)
        assert smaller.run.status is RunStatus.COMPLETED, "a tree within the limit"
        assert stage.quota.count(smaller.run.id) == 0


async def test_a_run_counts_until_it_has_ended() -> None:
    counted = DescendantQuota()
    for number in range(descendant_quota.MAX_DESCENDANTS):
        assert counted.acquire("run_r", f"op_{number}") is None
    assert counted.acquire("run_r", "op_0") is None, "a repeated dispatch"
    assert counted.acquire("run_q", "op_q") is None, "below another run"
    for refused in ("op_x", "op_y"):
        fault = counted.acquire("run_r", refused)
        assert fault is not None and fault.reason is Reason.LIMIT_EXCEEDED and not fault.transient
        assert not counted.is_counted(refused)
        counted.release("op_1")
    for number in range(descendant_quota.MAX_DESCENDANTS):
        counted.release(f"op_{number}")
    assert counted.count("run_r") == 0
    assert counted.acquire("run_r", "op_z") is None


async def test_runs_at_any_depth_know_their_root() -> None:
    async with open_stage() as stage:
        with_handlers(stage)
        stage.workflows.known.append(nested(2, 1))
        begun = (await stage.start("team/level2", wait_ms=5000)).run
        (child,) = await children(stage, begun.id)
        (grandchild,) = await children(stage, child.id)
        assert begun.scope.root_id == ""
        assert child.scope.root_id == grandchild.scope.root_id == begun.id
        assert stage.quota.count(begun.id) == 0


# --- runs in progress -------------------------------------------------------------------------------


async def test_a_running_child_is_found_by_its_id(stage: RunStage) -> None:
    begun = await stage.start("team/outer")
    await stage.finish("a", run_id=begun.run.id)
    whole = await stage.runs.lookup.with_details(begun.run.id)
    assert whole.details is not None
    (child_id,) = (token.waits_for_id for token in whole.details.tokens)
    assert await children(stage, begun.run.id) == [], "the children are volatile"
    found = await stage.runs.lookup.with_details(child_id)
    assert found.run.status is RunStatus.RUNNING
    assert [run.id for run in await children(stage, begun.run.id)] == [child_id]
    cancelled = await stage.runs.cancel(child_id, "Enough.", "", origin())
    assert cancelled.run.status is RunStatus.CANCELLED
    await stage.wait_until_idle()
    assert (await stage.runs.lookup.run(begun.run.id)).status is RunStatus.FAILED


async def test_a_child_that_goes_on_for_a_while_is_written() -> None:
    async with open_stage(limits=replace(LIMITS, flush_after_s=0.0)) as stage:
        begun = await stage.start("team/outer")
        await stage.finish("a", run_id=begun.run.id)
        loop = asyncio.get_running_loop()
        aged = loop.create_future()
        loop.call_later(0.01, aged.set_result, None)  # Timers ring in their order.
        await aged
        await stage.wait_until_idle()
        (child,) = await children(stage, begun.run.id)
        assert child.status is RunStatus.RUNNING


# --- priority ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "is_one"), [(1, True), (MAX_FEW_DESCENDANTS, True), (40, False)])
async def test_the_commit_of_a_parent_waits_for_its_children_if_they_are_few(
    count: int, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a loaded machine, a few quick tasks take longer than a slice of inline work.
    monkeypatch.setattr(handlers, "MAX_INLINE_S", 3600.0)
    journal = TestJournal()
    stage = RunStage(MemoryShards(journal))
    with_handlers(stage)
    stage.workflows.known.append(nested(1, count))
    run = (await stage.start("team/level1", wait_ms=5000)).run
    assert run.status is RunStatus.COMPLETED
    first = journal.transactions[0]
    assert first[-1].actor_id == run.id
    assert (len(first) == count + 1) == (len(journal.transactions) == 1) == is_one
    assert len(journal.actors) == count + 1
    await stage.loop.stop()
