"""Write-behind: repeatable work runs before its commit, other work waits, and a crash loses no answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from tests.actors.kit import LIMITS, TestJournal, run_ready_tasks
from tests.actors.toy import Note
from tests.actors.toy_stage import NESTED, RUN, ToyStage, early
from wonder_server.actors.runtime.loop import MAX_BATCH_INPUTS
from wonder_server.core.errors import WonderError

# --- ahead of the disk ------------------------------------------------------------------------------


async def test_a_run_of_work_that_answers_at_once_is_one_commit() -> None:
    world = ToyStage()
    outcome = await world.begin(*early(*"abcdefghij"))
    assert outcome.decisions
    assert world.journal.commits == 1
    run = world.committed_run()
    assert run is not None and run.ended and len(run.output) == 10
    assert world.loop.actor_count == 0
    assert world.sequences(RUN) == list(range(1, len(world.events) + 1))
    await world.assert_replays()


async def test_repeatable_work_begins_before_the_commit_and_is_planned_on_while_it_is_under_way() -> None:
    world = ToyStage(by_hand="abc")
    world.journal.hold()
    beginning = world.begin(*early("a", "b", "c"))
    await run_ready_tasks()
    assert list(world.waiting) == ["a"] and world.journal.held == 1
    world.finish("a")
    await run_ready_tasks()
    world.finish("b")
    await run_ready_tasks()
    assert list(world.waiting) == ["c"], "two steps further"
    assert world.journal.held == 1, "and what gathered waits for its turn"
    assert not beginning.done() and world.events == []
    world.journal.release(1)
    await run_ready_tasks()
    assert beginning.done()
    assert world.names(RUN) == ["workflow_started", "node.started"], (
        "the events of what is on disk, and no others"
    )
    assert world.journal.held == 1
    world.journal.release()
    await run_ready_tasks()
    assert [len(commit.entries) for (commit,) in world.journal.transactions] == [1, 2]
    assert world.names(RUN)[2:] == ["node.completed", "node.started"] * 2
    await world.assert_replays()


async def test_an_operation_that_is_not_repeatable_waits_for_its_commit() -> None:
    world = ToyStage(by_hand="a")
    world.journal.hold()
    world.begin(("early", "a"), ("held", "b"))
    await run_ready_tasks()
    world.finish("a")
    await run_ready_tasks()
    assert not world.effects["run_a/b"]
    world.journal.release(1)
    await run_ready_tasks()
    assert not world.effects["run_a/b"], "its own commit is under way"
    world.journal.release()
    await run_ready_tasks()
    assert world.effects["run_a/b"] == 1
    run = world.committed_run()
    assert run is not None and run.ended


async def test_rejections_and_answers_wait_for_the_commits_that_they_depend_on() -> None:
    world = ToyStage(by_hand="a")
    await world.begin(*early("a"))
    world.journal.hold()
    noting = world.ask_in_background(Note(text="1"), actor=RUN)
    await run_ready_tasks()
    refused = world.ask_in_background(Note(text="2", refuse=True), actor=RUN)
    await run_ready_tasks()
    assert world.journal.held == 1 and not refused.done()
    world.journal.release()
    await run_ready_tasks()
    assert noting.done()
    with pytest.raises(WonderError):
        await refused


async def test_a_child_begins_when_its_parent_is_on_disk_and_its_answer_travels() -> None:
    world = ToyStage()
    world.journal.hold()
    world.begin(("early", "a"), ("child", "c", early("x", "y")), ("early", "b"))
    await run_ready_tasks()
    assert not world.effects["run_c/x"]
    world.journal.release()
    await run_ready_tasks()
    run = world.committed_run()
    assert run is not None and run.output == {"a": "ok", "b": "ok", "c": {"x": "ok", "y": "ok"}}
    assert [[each.actor_id for each in together] for together in world.journal.transactions] == [
        [RUN],
        ["run_c", RUN],
    ]
    await world.assert_replays("run_c")


async def test_others_have_their_turn_while_a_long_run_goes_on() -> None:
    world = ToyStage(limits=replace(LIMITS, time_slice_s=-1.0))
    turns: list[int] = []

    def look() -> None:
        turns.append(world.effects.total())
        if turns[-1] < 50:
            asyncio.get_running_loop().call_soon(look)

    look()
    await world.begin(*early(*(f"s{number}" for number in range(50))))
    await run_ready_tasks()
    assert len(turns) >= 50


async def test_a_time_slice_ends_although_commands_are_ready() -> None:
    world = ToyStage(limits=replace(LIMITS, time_slice_s=-1.0))
    for number in range(20):
        world.begin(*early("a"), run_id=f"run_{number}")
    handed_out = []
    while world.effects.total() < 20:
        await asyncio.sleep(0)
        handed_out.append(world.effects.total())
    assert len(set(handed_out)) >= 20, "one after the other, and everybody else in between"


async def test_a_long_run_is_written_in_parts() -> None:
    world = ToyStage()
    world.begin(*early(*(f"s{number}" for number in range(3 * MAX_BATCH_INPUTS))))
    await run_ready_tasks()
    run = world.committed_run()
    assert run is not None and run.ended
    sizes = [len(commit.entries) for (commit,) in world.journal.transactions]
    assert max(sizes) <= MAX_BATCH_INPUTS and len(sizes) <= 6
    await world.assert_replays()


async def test_a_volatile_run_that_goes_on_and_on_is_written_all_the_same() -> None:
    world = ToyStage()
    steps = early(*(f"s{number}" for number in range(2 * MAX_BATCH_INPUTS)))
    world.begin(("child", "c", steps), ("early", "b"))
    await run_ready_tasks()
    run = world.committed_run()
    assert run is not None and run.ended
    assert ["run_c"] in [[each.actor_id for each in together] for together in world.journal.transactions]


# --- parents before children ------------------------------------------------------------------------


async def test_a_volatile_parent_is_written_ahead_of_its_child() -> None:
    world = ToyStage(by_hand="h")
    world.begin(*NESTED)
    await run_ready_tasks()
    together = [[each.actor_id for each in commits] for commits in world.journal.transactions]
    assert together == [[RUN], ["run_v", "run_g"]]
    world.finish("h")
    await run_ready_tasks()
    run = world.committed_run()
    assert run is not None and run.ended
    for each in (RUN, "run_v", "run_g"):
        await world.assert_replays(each)


async def test_a_crash_after_the_grandchilds_first_commit_does_nothing_twice() -> None:
    journal = TestJournal()
    world = ToyStage(journal, by_hand="h")
    world.begin(*NESTED)
    await run_ready_tasks()
    assert world.effects["run_g/h"] == 1
    again = ToyStage(journal, by_hand="h")
    assert sorted(await journal.unfinished()) == [RUN, "run_g", "run_v"]
    again.loop.resume(await journal.unfinished())
    await run_ready_tasks()
    again.finish("h")
    await run_ready_tasks()
    run = again.committed_run()
    assert run is not None and run.output == {"a": "ok", "v": {"x": "ok", "g": {"h": "ok", "i": "ok"}}}
    assert not again.effects["run_v/x"], "it was on disk"
    for each in (RUN, "run_v", "run_g"):
        await again.assert_replays(each)


async def test_a_child_waits_while_its_parents_first_commit_is_under_way() -> None:
    world = ToyStage(by_hand="h")
    world.begin(
        *NESTED[:1], ("child", "v", (("child", "g", (("early", "y"), ("held", "h"))), ("early", "z")))
    )
    world.by_hand = "yh"
    await run_ready_tasks()
    assert list(world.waiting) == ["y"]
    # Somebody asks the volatile parent something: it is written for that.
    world.journal.hold()
    world.ask_in_background(Note(text="?"), actor="run_v")
    await run_ready_tasks()
    world.finish("y")
    await run_ready_tasks()
    assert world.journal.held == 1, "the child's commit is not even submitted"
    world.journal.release(1)
    await run_ready_tasks()
    assert world.journal.held == 1
    world.journal.release()
    await run_ready_tasks()
    assert list(world.waiting) == ["h"]


async def test_when_the_joint_first_commit_fails_both_begin_again() -> None:
    world = ToyStage(by_hand="x")
    world.begin(*NESTED)
    await run_ready_tasks()
    world.journal.fails_for = "run_v"
    world.finish("x")
    await run_ready_tasks()
    assert not world.effects["run_g/h"]
    assert world.loop.peek("run_g") is None, "it was begun by what is not on disk"
    world.journal.fails_for = ""
    await run_ready_tasks()
    assert world.effects["run_v/x"] == 2
    world.finish("x")
    await run_ready_tasks()
    assert world.effects["run_g/h"] == 1
    run = world.committed_run()
    assert run is not None and run.ended
    await world.assert_replays("run_g")


# --- parked -----------------------------------------------------------------------------------------


async def test_a_run_that_only_waits_leaves_memory_and_comes_back_for_its_answer() -> None:
    world = ToyStage()
    at = world.clock.now + 60_000
    await world.begin(("early", "a"), ("wait", "w", at), ("early", "b"))
    await run_ready_tasks()
    assert world.loop.actor_count == 0
    assert world.loop.timer_count == 1, "but it is woken when its time has come"
    world.loop.report_success(RUN, "op_1_run_a", "answered")
    await run_ready_tasks()
    run = world.committed_run()
    assert run is not None and run.output == {"a": "ok", "w": "answered", "b": "ok"}
    assert world.loop.timer_count == 0
    await world.assert_replays()


async def test_a_volatile_run_that_waits_stays_until_it_is_written() -> None:
    world = ToyStage()
    await world.begin(("child", "c", (("wait", "w", 0),)))
    await run_ready_tasks()
    assert world.loop.peek("run_c") is not None
    world.loop.report_success("run_c", "op_0_run_c", "answered")
    await run_ready_tasks()
    run = world.committed_run()
    assert run is not None and run.output == {"c": {"w": "answered"}}


# --- stop -------------------------------------------------------------------------------------------


async def test_stop_waits_for_batches_behind_a_commit() -> None:
    world = ToyStage(by_hand="ab")
    world.journal.hold()
    beginning = world.begin(*early("a", "b"))
    await run_ready_tasks()
    world.finish("a")
    await run_ready_tasks()
    stopping = asyncio.get_running_loop().create_task(world.loop.stop())
    await run_ready_tasks()
    assert not stopping.done()
    world.journal.release(1)
    await run_ready_tasks()
    assert not stopping.done()
    world.journal.release()
    await stopping
    await beginning
    assert len(world.journal.transactions) == 2


async def crash_and_finish(journal: TestJournal, effects: Counter[str]) -> ToyStage:
    """A new server over what is on disk, until everything has ended."""
    world = ToyStage(journal)
    world.effects = effects
    world.loop.resume(await journal.unfinished())
    for _ in range(5):
        await run_ready_tasks()
    return world


@pytest.mark.parametrize("released", range(12))
async def test_a_crash_at_any_commit_loses_nothing_that_was_answered(released: int) -> None:
    """The same run, cut off after each number of commits: nothing that may not be repeated is done without
    its cause on disk, and the end is the same."""
    steps = (("early", "a"), ("held", "b"), *NESTED[1:], ("early", "c"), ("held", "d"))
    journal = TestJournal()
    world = ToyStage(journal)
    journal.hold()
    beginning = world.begin(*steps)
    for _ in range(released):
        await run_ready_tasks()
        journal.release(1)
    await run_ready_tasks()
    told, done = beginning.done(), Counter(world.effects)
    shown = list(world.events)
    beginning.cancel()
    after = TestJournal()
    after.actors = journal.actors
    again = await crash_and_finish(after, world.effects)
    run = again.committed_run()
    if not told:
        assert run is None and done.keys() <= {"run_a/a"}
        return
    assert run is not None and run.ended
    assert run.output == {
        "a": "ok", "b": "ok", "v": {"x": "ok", "g": {"h": "ok", "i": "ok"}}, "c": "ok", "d": "ok",
    }  # fmt: skip
    for each in (RUN, "run_v", "run_g"):
        await again.assert_replays(each)
        written = [event.emit for event in journal.actors[each].events]
        assert [event.emit for event in shown if event.actor_id == each] == written[
            : len([event for event in shown if event.actor_id == each])
        ]
