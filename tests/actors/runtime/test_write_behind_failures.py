"""Write-behind after failures: early work is undone, and one bad input fails alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.actors.kit import run_ready_tasks
from tests.actors.toy import TOY, Note, OperationSucceeded
from tests.actors.toy_stage import RUN, ToyStage, early
from wonder_server.core.errors import Fault, Reason, WonderError


async def test_early_work_of_a_failed_commit_is_stopped_and_dropped() -> None:
    stage = ToyStage(by_hand="ab")
    stage.journal.hold()
    beginning = stage.begin(*early("a", "b"))
    await run_ready_tasks()
    stage.finish("a")
    await run_ready_tasks()
    stage.journal.fails = True
    stage.journal.release()
    with pytest.raises(WonderError) as failed:
        await beginning
    assert failed.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    await run_ready_tasks()
    assert "op_1_run_a0" in stage.stopped
    stage.journal.fails = False
    stage.finish("b")
    await run_ready_tasks()
    assert stage.committed_run() is None and stage.events == [], "a result of an undone start changes nothing"
    assert stage.loop.actor_count == 0
    await stage.begin(*early("c"))
    assert stage.sequences(RUN) == list(range(1, len(stage.events) + 1))


async def test_a_run_on_disk_repeats_its_early_work_after_a_failed_commit() -> None:
    stage = ToyStage(by_hand="abc")
    await stage.begin(*early("a", "b", "c"))
    stage.journal.hold()
    stage.finish("a", 1)
    await run_ready_tasks()
    stage.finish("b", 2)
    await run_ready_tasks()
    assert list(stage.waiting) == ["c"]
    stage.journal.fails = True
    stage.journal.release()
    await run_ready_tasks()
    stage.journal.fails = False
    await run_ready_tasks()
    # The start of `a` is on disk, so its result is planned again. That of `b` is not, so `b` runs again.
    assert stage.effects == {"run_a0/a": 1, "run_a0/b": 2, "run_a0/c": 1}
    stage.finish("b", 3)
    await run_ready_tasks()
    stage.finish("c")
    await run_ready_tasks()
    run = stage.committed_run()
    assert run is not None and run.output == {"a": 1, "b": 3, "c": "ok"}
    await stage.assert_replays()


async def test_one_result_that_cannot_be_written_fails_alone() -> None:
    stage = ToyStage(by_hand="b")
    stage.journal.unwritable_output = "poison"
    beginning = stage.begin(*early("a", "b", "c"))
    await run_ready_tasks()
    stage.finish("b", "poison")
    await run_ready_tasks()
    await beginning
    run = stage.committed_run()
    assert run is not None and run.output == {"a": "ok", "b": "INTERNAL", "c": "ok"}
    await stage.assert_replays()


async def test_the_parent_of_an_unwritable_run_is_not_failed() -> None:
    stage = ToyStage(by_hand="b")
    stage.journal.unwritable_output = "poison"
    stage.journal.hold()
    first = stage.begin(("early", "a"))
    await run_ready_tasks()
    other = stage.ask_in_background(Note(text="!"), actor=RUN)
    stage.journal.release()
    await first
    await other
    stage.journal.hold()
    beginning = stage.begin(*early("b"), run_id="run_b0")
    await run_ready_tasks()
    stage.finish("b", "poison")
    stage.ask_in_background(Note(text="?"), actor="run_b0")
    await run_ready_tasks()
    stage.journal.release()
    await beginning
    await run_ready_tasks()
    run = stage.committed_run("run_b0")
    assert run is not None and run.output == {"b": "INTERNAL"}
    assert stage.names("run_b0").count("noted") == 1
    await stage.assert_replays("run_b0")


async def test_an_input_that_breaks_the_planner_leaves_the_others_of_its_commit_alone() -> None:
    def plan(state: object, event: object, now_ms: int) -> Any:
        if isinstance(event, OperationSucceeded) and event.output == "break":
            raise ZeroDivisionError
        return TOY.plan(state, event, now_ms)

    stage = ToyStage(by_hand="b", run=replace(TOY, plan=plan))
    stage.journal.hold()
    beginning = stage.begin(*early("a", "b", "c"))
    await run_ready_tasks()
    noting = stage.ask_in_background(Note(text="!"), actor=RUN)
    stage.finish("b", "break")
    await run_ready_tasks()
    assert not beginning.done()
    stage.journal.release()
    await beginning
    await noting
    await run_ready_tasks()
    run = stage.committed_run()
    assert run is not None and run.output == {"a": "ok", "b": "INTERNAL", "c": "ok"}
    await stage.assert_replays()


async def test_a_store_that_raises_at_once_is_a_failed_commit() -> None:
    stage = ToyStage()

    def closed(commits: Any) -> Any:
        raise WonderError(Fault(reason=Reason.STORAGE_UNAVAILABLE, message=".", transient=True))

    stage.journal.submit = closed  # type: ignore[method-assign]
    with pytest.raises(WonderError):
        await stage.begin(*early("a"))
    await run_ready_tasks()
    assert stage.loop.actor_count == 0
