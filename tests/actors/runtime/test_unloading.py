"""Runs that only wait, for a person, a signal or a time, become idle and leave memory."""

from __future__ import annotations

import pytest

from tests.actors.kit import FakeTimers, origin
from tests.actors.run_kit import GATE, RunStage, pinned
from wonder_server.core.coordinator.model.inputs import ReceiveSignal
from wonder_server.core.coordinator.model.values import RunStatus

IDLE_LIMIT = 100
"""Number of idle actors that the stage keeps in memory."""


@pytest.fixture
def stage(stage: RunStage) -> RunStage:
    stage.instant_output = lambda command: {"n": 1}
    return stage


async def test_many_runs_that_wait_for_a_person_are_not_kept_in_memory(stage: RunStage) -> None:
    runs = [await stage.start("team/gate") for _ in range(2 * IDLE_LIMIT)]
    await stage.wait_until_idle()
    assert stage.loop.actor_count == IDLE_LIMIT
    assert stage.loop.peek(runs[0].run.id) is None
    whole = await stage.runs.lookup.with_details(runs[0].run.id)
    assert whole.run.status is RunStatus.WAITING


@pytest.mark.parametrize("left", [False, True])
async def test_a_signal_reaches_an_unloaded_run(stage: RunStage, left: bool) -> None:
    view = await stage.start("team/wait")
    for _ in range(2 * IDLE_LIMIT if left else 1):
        await stage.start("team/gate")
    await stage.wait_until_idle()
    assert (stage.loop.peek(view.run.id) is None) is left
    await stage.runs.signal(view.run.id, ReceiveSignal(name="go", payload={"x": 1}), origin())
    await stage.wait_until_idle()
    assert (await stage.runs.lookup.run(view.run.id)).status is RunStatus.COMPLETED


async def test_a_deadline_finds_a_run_that_has_left_memory(
    stage: RunStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = FakeTimers(monkeypatch)
    gate = {**GATE, "timeout_ms": 60_000}
    stage.workflows.known.append(pinned("hurry", "a>ask ask>b", nodes={"ask": gate}))
    view = await stage.start("team/hurry")
    for _ in range(2 * IDLE_LIMIT):
        await stage.start("team/gate")
    await stage.wait_until_idle()
    assert stage.loop.peek(view.run.id) is None
    stage.clock.now += 60_000
    timers.fire()
    await stage.wait_until_idle()
    run = await stage.runs.lookup.run(view.run.id)
    assert run.status is RunStatus.FAILED


async def test_a_run_whose_task_runs_stays(stage: RunStage) -> None:
    stage.instant_output = None
    view = await stage.start("team/one")
    stage.instant_output = lambda command: {"n": 1}
    for _ in range(2 * IDLE_LIMIT):
        await stage.start("team/gate")
    await stage.wait_until_idle()
    assert stage.loop.peek(view.run.id) is not None
