"""Write-behind after failures: early work is undone, and one bad input fails alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.actors.kit import run_ready_tasks
from tests.actors.toy import TOY, Note, OperationSucceeded
from tests.actors.toy_stage import RUN, ToyStage, early
from wonder_server.core.errors import Fault, Reason, WonderError


async def test_early_work_of_a_commit_that_failed_is_stopped_and_forgotten() -> None:
    world = ToyStage(by_hand="ab")
    world.journal.hold()
    beginning = world.begin(*early("a", "b"))
    await run_ready_tasks()
    world.finish("a")
    await run_ready_tasks()
    world.journal.fails = True
    world.journal.release()
    with pytest.raises(WonderError) as failed:
        await beginning
    assert failed.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    await run_ready_tasks()
    assert "op_1_run_a" in world.stopped
    world.journal.fails = False
    world.finish("b")
    await run_ready_tasks()
    assert world.committed_run() is None and world.events == [], "a result of what never was changes nothing"
    assert world.loop.actor_count == 0
    await world.begin(*early("c"))
    assert world.sequences(RUN) == list(range(1, len(world.events) + 1))


async def test_a_run_on_disk_begins_its_early_work_again_after_a_failed_commit() -> None:
    world = ToyStage(by_hand="abc")
    await world.begin(*early("a", "b", "c"))
    world.journal.hold()
    world.finish("a", 1)
    await run_ready_tasks()
    world.finish("b", 2)
    await run_ready_tasks()
    assert list(world.waiting) == ["c"]
    world.journal.fails = True
    world.journal.release()
    await run_ready_tasks()
    world.journal.fails = False
    await run_ready_tasks()
    # The result of `a` was of what is on disk: it is told again. That of `b` was not: it is done again.
    assert world.effects == {"run_a/a": 1, "run_a/b": 2, "run_a/c": 1}
    world.finish("b", 3)
    await run_ready_tasks()
    world.finish("c")
    await run_ready_tasks()
    run = world.committed_run()
    assert run is not None and run.output == {"a": 1, "b": 3, "c": "ok"}
    await world.assert_replays()


async def test_one_result_that_cannot_be_written_fails_alone() -> None:
    world = ToyStage(by_hand="b")
    world.journal.unwritable_output = "poison"
    beginning = world.begin(*early("a", "b", "c"))
    await run_ready_tasks()
    world.finish("b", "poison")
    await run_ready_tasks()
    await beginning
    run = world.committed_run()
    assert run is not None and run.output == {"a": "ok", "b": "INTERNAL", "c": "ok"}
    await world.assert_replays()


async def test_the_parent_of_an_unwritable_run_is_not_failed() -> None:
    world = ToyStage(by_hand="b")
    world.journal.unwritable_output = "poison"
    world.journal.hold()
    first = world.begin(("early", "a"))
    await run_ready_tasks()
    other = world.ask_in_background(Note(text="!"), actor=RUN)
    world.journal.release()
    await first
    await other
    world.journal.hold()
    beginning = world.begin(*early("b"), run_id="run_b")
    await run_ready_tasks()
    world.finish("b", "poison")
    world.ask_in_background(Note(text="?"), actor="run_b")
    await run_ready_tasks()
    world.journal.release()
    await beginning
    await run_ready_tasks()
    run = world.committed_run("run_b")
    assert run is not None and run.output == {"b": "INTERNAL"}
    assert world.names("run_b").count("noted") == 1
    await world.assert_replays("run_b")


async def test_an_input_that_breaks_the_planner_leaves_the_others_of_its_commit_alone() -> None:
    def plan(state: Any, event: Any, now_ms: int) -> Any:
        if isinstance(event, OperationSucceeded) and event.output == "break":
            raise ZeroDivisionError
        return TOY.plan(state, event, now_ms)

    world = ToyStage(by_hand="b", run=replace(TOY, plan=plan))
    world.journal.hold()
    beginning = world.begin(*early("a", "b", "c"))
    await run_ready_tasks()
    noting = world.ask_in_background(Note(text="!"), actor=RUN)
    world.finish("b", "break")
    await run_ready_tasks()
    assert not beginning.done()
    world.journal.release()
    await beginning
    await noting
    await run_ready_tasks()
    run = world.committed_run()
    assert run is not None and run.output == {"a": "ok", "b": "INTERNAL", "c": "ok"}
    await world.assert_replays()


async def test_a_store_that_refuses_at_once_is_a_commit_that_fails() -> None:
    world = ToyStage()

    def closed(commits: Any) -> Any:
        raise WonderError(Fault(reason=Reason.STORAGE_UNAVAILABLE, message=".", transient=True))

    world.journal.submit = closed  # type: ignore[method-assign]
    with pytest.raises(WonderError):
        await world.begin(*early("a"))
    await run_ready_tasks()
    assert world.loop.actor_count == 0
