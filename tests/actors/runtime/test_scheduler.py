"""The scheduler alone: order, priorities, throttling, time slices, the idle cache."""

from __future__ import annotations

import asyncio

from tests.actors.kit import LIMITS, run_ready_tasks
from tests.actors.toy import TOY, Op, ToyState
from tests.replacing import replace
from wonder_server.actors.runtime.actor import Actor, Batch
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.actors.runtime.scheduler import Scheduler


class RecordingWork:
    """Work that records the order of its actors, and a scheduler that runs it."""

    def __init__(self, limits: LoopLimits = LIMITS) -> None:
        self.order: list[str] = []
        self.throttled = False
        self.fails_for = ""
        self.scheduler = Scheduler(
            (TOY,), limits, home_of=lambda _: self, is_throttled=lambda: self.throttled
        )

    def work(self, actor: Actor) -> None:
        self.order.append(actor.id)
        actor.scheduled = False
        if actor.id == self.fails_for:
            raise ZeroDivisionError
        self.scheduler.mark_idle(actor)

    def submit_if_due(self, actor: Actor) -> None:
        """Submit nothing."""

    def on_flush_due(self, actor: Actor, batch: Batch) -> bool:
        return True

    def schedule(self, actor_id: str, *, low_priority: bool = False) -> Actor:
        actor = self.scheduler.get_or_create(actor_id)
        actor.low_priority = low_priority
        self.scheduler.schedule(actor)
        return actor


async def test_a_scheduled_actor_runs_once() -> None:
    work = RecordingWork()
    work.schedule("run_a0")
    work.schedule("run_a0")
    assert not work.scheduler.is_idle and work.order == []
    await work.scheduler.wait_until_idle()
    assert work.order == ["run_a0"]


async def test_low_priority_actors_run_between_the_others_and_wait_while_throttled() -> None:
    work = RecordingWork()
    work.throttled = True
    for number in range(2):
        work.schedule(f"run_low{number}", low_priority=True)
    work.schedule("run_high0")
    await run_ready_tasks()
    assert work.order == ["run_high0"]
    work.throttled = False
    work.scheduler.start_slice()
    await work.scheduler.wait_until_idle()
    assert work.order == ["run_high0", "run_low0", "run_low1"]


async def test_an_actor_that_fails_does_not_stop_the_others() -> None:
    work = RecordingWork()
    work.fails_for = "run_a0"
    work.schedule("run_a0")
    work.schedule("run_b0")
    await run_ready_tasks()
    assert work.order == ["run_a0", "run_b0"]


async def test_other_callbacks_run_between_time_slices() -> None:
    work = RecordingWork(replace(LIMITS, time_slice_s=-1.0))
    for number in range(3):
        work.schedule(f"run_{number}")
    counts = []
    for _ in range(4):
        await asyncio.sleep(0)
        counts.append(len(work.order))
    assert counts == [1, 2, 3, 3]


async def test_an_ended_run_leaves_memory_and_a_waiting_one_is_cached() -> None:
    work = RecordingWork(replace(LIMITS, idle_actors=1))
    scheduler = work.scheduler
    for actor_id in ("run_ended0", "run_w1", "run_w2"):
        actor = scheduler.get_or_create(actor_id)
        actor.state, actor.committed = ToyState(), True
        if actor_id != "run_ended0":
            actor.state.ops["op"] = Op(id="op", index=0)
        actor.planner = replace(TOY, can_unload=lambda state: True)
        scheduler.release_if_idle(actor)
    assert list(scheduler.actors) == ["run_w2"], "the cache holds one actor"
    assert scheduler.evict("run_w2") and scheduler.actors == {}
