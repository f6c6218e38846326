"""Write-behind: repeatable work runs before its commit, other work waits, and a crash loses no answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from tests.actors.kit import LIMITS, TestJournal, run_ready_tasks
from tests.actors.toy import TOY, Note
from tests.actors.toy_stage import NESTED, RUN, ToyStage, early
from tests.conformance.ports.journal_subjects import unfinished
from wonder_server.actors.runtime.loop import MAX_BATCH_INPUTS
from wonder_server.codec.interning import encode
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import WonderError

# --- early dispatch ---------------------------------------------------------------------------------


async def test_a_run_of_inline_tasks_takes_one_commit() -> None:
    stage = ToyStage()
    outcome = await stage.begin(*early(*"abcdefghij"))
    assert outcome.decisions
    assert stage.journal.commits == 1
    run = stage.committed_run()
    assert run is not None and run.ended and len(run.output) == 10
    assert stage.loop.actor_count == 0
    assert stage.sequences(RUN) == list(range(1, len(stage.events) + 1))
    await stage.assert_replays()


async def test_repeatable_work_starts_before_the_commit_and_continues_during_it() -> None:
    stage = ToyStage(by_hand="abc")
    stage.journal.hold()
    beginning = stage.begin(*early("a", "b", "c"))
    await run_ready_tasks()
    assert list(stage.waiting) == ["a"] and stage.journal.held == 1
    stage.finish("a")
    await run_ready_tasks()
    stage.finish("b")
    await run_ready_tasks()
    assert list(stage.waiting) == ["c"], "the run continued during the commit"
    assert stage.journal.held == 1, "the next batch waits for the commit"
    assert not beginning.done() and stage.events == []
    stage.journal.release(1)
    await run_ready_tasks()
    assert beginning.done()
    assert stage.names(RUN) == ["workflow_started", "node.started"], (
        "the events of what is on disk, and no others"
    )
    assert stage.journal.held == 1
    stage.journal.release()
    await run_ready_tasks()
    assert [len(commit.entries) for (commit,) in stage.journal.transactions] == [1, 2]
    assert stage.names(RUN)[2:] == ["node.completed", "node.started"] * 2
    await stage.assert_replays()


async def test_an_operation_that_is_not_repeatable_waits_for_its_commit() -> None:
    stage = ToyStage(by_hand="a")
    stage.journal.hold()
    stage.begin(("early", "a"), ("held", "b"))
    await run_ready_tasks()
    stage.finish("a")
    await run_ready_tasks()
    assert not stage.effects["run_a0/b"]
    stage.journal.release(1)
    await run_ready_tasks()
    assert not stage.effects["run_a0/b"], "its commit is in flight"
    stage.journal.release()
    await run_ready_tasks()
    assert stage.effects["run_a0/b"] == 1
    run = stage.committed_run()
    assert run is not None and run.ended


async def test_rejections_and_answers_wait_for_the_commits_that_they_depend_on() -> None:
    stage = ToyStage(by_hand="a")
    await stage.begin(*early("a"))
    stage.journal.hold()
    noting = stage.ask_in_background(Note(text="1"), actor=RUN)
    await run_ready_tasks()
    refused = stage.ask_in_background(Note(text="2", refuse=True), actor=RUN)
    await run_ready_tasks()
    assert stage.journal.held == 1 and not refused.done()
    stage.journal.release()
    await run_ready_tasks()
    assert noting.done()
    with pytest.raises(WonderError):
        await refused


async def test_a_child_starts_after_its_parents_commit_and_answers_in_the_next() -> None:
    stage = ToyStage()
    stage.journal.hold()
    stage.begin(("early", "a"), ("child", "c", early("x", "y")), ("early", "b"))
    await run_ready_tasks()
    assert not stage.effects["run_c0/x"]
    stage.journal.release()
    await run_ready_tasks()
    run = stage.committed_run()
    assert run is not None and run.output == {"a": "ok", "b": "ok", "c": {"x": "ok", "y": "ok"}}
    assert [[each.actor_id for each in together] for together in stage.journal.transactions] == [
        [RUN],
        ["run_c0", RUN],
    ]
    await stage.assert_replays("run_c0")


async def test_other_callbacks_run_during_a_long_run() -> None:
    stage = ToyStage(limits=replace(LIMITS, time_slice_s=-1.0))
    turns: list[int] = []

    def look() -> None:
        turns.append(stage.effects.total())
        if turns[-1] < 50:
            asyncio.get_running_loop().call_soon(look)

    look()
    await stage.begin(*early(*(f"s{number}" for number in range(50))))
    await run_ready_tasks()
    assert len(turns) >= 50


async def test_a_time_slice_ends_although_commands_are_ready() -> None:
    stage = ToyStage(limits=replace(LIMITS, time_slice_s=-1.0))
    for number in range(20):
        stage.begin(*early("a"), run_id=f"run_{number}")
    handed_out = []
    while stage.effects.total() < 20:
        await asyncio.sleep(0)
        handed_out.append(stage.effects.total())
    assert len(set(handed_out)) >= 20, "every command ends its slice"


async def test_a_long_run_is_written_in_parts() -> None:
    stage = ToyStage()
    stage.begin(*early(*(f"s{number}" for number in range(3 * MAX_BATCH_INPUTS))))
    await run_ready_tasks()
    run = stage.committed_run()
    assert run is not None and run.ended
    sizes = [len(commit.entries) for (commit,) in stage.journal.transactions]
    assert max(sizes) <= MAX_BATCH_INPUTS and len(sizes) <= 6
    await stage.assert_replays()


async def test_a_long_volatile_run_is_written() -> None:
    stage = ToyStage()
    steps = early(*(f"s{number}" for number in range(2 * MAX_BATCH_INPUTS)))
    stage.begin(("child", "c", steps), ("early", "b"))
    await run_ready_tasks()
    run = stage.committed_run()
    assert run is not None and run.ended
    assert ["run_c0"] in [[each.actor_id for each in together] for together in stage.journal.transactions]


# --- parents before children ------------------------------------------------------------------------


async def test_a_volatile_parent_is_written_ahead_of_its_child() -> None:
    stage = ToyStage(by_hand="h")
    stage.begin(*NESTED)
    await run_ready_tasks()
    together = [[each.actor_id for each in commits] for commits in stage.journal.transactions]
    assert together == [[RUN], ["run_v0", "run_g0"]]
    stage.finish("h")
    await run_ready_tasks()
    run = stage.committed_run()
    assert run is not None and run.ended
    for each in (RUN, "run_v0", "run_g0"):
        await stage.assert_replays(each)


async def test_a_crash_after_the_grandchilds_first_commit_does_nothing_twice() -> None:
    journal = TestJournal((CONVERSATION, TOY))
    stage = ToyStage(journal, by_hand="h")
    stage.begin(*NESTED)
    await run_ready_tasks()
    assert stage.effects["run_g0/h"] == 1
    restarted = ToyStage(journal, by_hand="h")
    assert sorted(await unfinished(journal)) == [RUN, "run_g0", "run_v0"]
    await restarted.loop.resume()
    await run_ready_tasks()
    restarted.finish("h")
    await run_ready_tasks()
    run = restarted.committed_run()
    assert run is not None and run.output == {"a": "ok", "v": {"x": "ok", "g": {"h": "ok", "i": "ok"}}}
    assert not restarted.effects["run_v0/x"], "it was on disk"
    for each in (RUN, "run_v0", "run_g0"):
        await restarted.assert_replays(each)


async def test_a_child_waits_while_its_parents_first_commit_is_under_way() -> None:
    stage = ToyStage(by_hand="h")
    stage.begin(
        *NESTED[:1], ("child", "v", (("child", "g", (("early", "y"), ("held", "h"))), ("early", "z")))
    )
    stage.by_hand = "yh"
    await run_ready_tasks()
    assert list(stage.waiting) == ["y"]
    # A request to the volatile parent makes its batch due.
    stage.journal.hold()
    stage.ask_in_background(Note(text="?"), actor="run_v0")
    await run_ready_tasks()
    stage.finish("y")
    await run_ready_tasks()
    assert stage.journal.held == 1, "the child's commit is not submitted yet"
    stage.journal.release(1)
    await run_ready_tasks()
    assert stage.journal.held == 1
    stage.journal.release()
    await run_ready_tasks()
    assert list(stage.waiting) == ["h"]


async def test_a_failed_joint_commit_restarts_parent_and_child() -> None:
    stage = ToyStage(by_hand="x")
    stage.begin(*NESTED)
    await run_ready_tasks()
    stage.journal.fails_for = "run_v0"
    stage.finish("x")
    await run_ready_tasks()
    assert not stage.effects["run_g0/h"]
    assert stage.loop.peek("run_g0") is None, "its parent's start is not on disk"
    stage.journal.fails_for = ""
    await run_ready_tasks()
    assert stage.effects["run_v0/x"] == 2
    stage.finish("x")
    await run_ready_tasks()
    assert stage.effects["run_g0/h"] == 1
    run = stage.committed_run()
    assert run is not None and run.ended
    await stage.assert_replays("run_g0")


# --- unloading --------------------------------------------------------------------------------------


async def test_a_run_that_only_waits_leaves_memory_and_comes_back_for_its_answer() -> None:
    stage = ToyStage()
    at = stage.clock.now + 60_000
    await stage.begin(("early", "a"), ("wait", "w", at), ("early", "b"))
    await run_ready_tasks()
    assert stage.loop.actor_count == 0
    assert stage.loop.timer_count == 1, "its timer is set"
    stage.loop.report_success(RUN, "op_1_run_a0", "answered")
    await run_ready_tasks()
    run = stage.committed_run()
    assert run is not None and run.output == {"a": "ok", "w": "answered", "b": "ok"}
    assert stage.loop.timer_count == 0
    await stage.assert_replays()


async def test_a_volatile_run_that_waits_stays_until_it_is_written() -> None:
    stage = ToyStage()
    await stage.begin(("child", "c", (("wait", "w", 0),)))
    await run_ready_tasks()
    assert stage.loop.peek("run_c0") is not None
    stage.loop.report_success("run_c0", "op_0_run_c0", "answered")
    await run_ready_tasks()
    run = stage.committed_run()
    assert run is not None and run.output == {"c": {"w": "answered"}}


# --- stop -------------------------------------------------------------------------------------------


async def test_stop_waits_for_batches_behind_a_commit() -> None:
    stage = ToyStage(by_hand="ab")
    stage.journal.hold()
    beginning = stage.begin(*early("a", "b"))
    await run_ready_tasks()
    stage.finish("a")
    await run_ready_tasks()
    stopping = asyncio.get_running_loop().create_task(stage.loop.stop())
    await run_ready_tasks()
    assert not stopping.done()
    stage.journal.release(1)
    await run_ready_tasks()
    assert not stopping.done()
    stage.journal.release()
    await stopping
    await beginning
    assert len(stage.journal.transactions) == 2


async def crash_and_finish(journal: TestJournal, effects: Counter[str]) -> ToyStage:
    """Start a new server on the journal and run it until every run has ended."""
    stage = ToyStage(journal)
    stage.effects = effects
    await stage.loop.resume()
    for _ in range(5):
        await run_ready_tasks()
    return stage


@pytest.mark.parametrize("released", range(12))
async def test_a_crash_at_any_commit_loses_nothing_that_was_answered(released: int) -> None:
    """Stop the same run after each number of commits.

    No task that is not repeatable runs before its cause is on disk, and the result is the same.
    """
    steps = (("early", "a"), ("held", "b"), *NESTED[1:], ("early", "c"), ("held", "d"))
    journal = TestJournal((CONVERSATION, TOY))
    stage = ToyStage(journal)
    journal.hold()
    beginning = stage.begin(*steps)
    for _ in range(released):
        await run_ready_tasks()
        journal.release(1)
    await run_ready_tasks()
    answered, done = beginning.done(), Counter(stage.effects)
    shown = list(stage.events)
    beginning.cancel()
    after = TestJournal((CONVERSATION, TOY), journal.memory)
    restarted = await crash_and_finish(after, stage.effects)
    run = restarted.committed_run()
    if not answered:
        assert run is None and done.keys() <= {"run_a0/a"}
        return
    assert run is not None and run.ended
    assert run.output == {
        "a": "ok", "b": "ok", "v": {"x": "ok", "g": {"h": "ok", "i": "ok"}}, "c": "ok", "d": "ok",
    }  # fmt: skip
    for each in (RUN, "run_v0", "run_g0"):
        await restarted.assert_replays(each)
        written = [encode(event.emit) for event in journal.actors[each].events]
        assert [encode(event.emit) for event in shown if event.actor_id == each] == written[
            : len([event for event in shown if event.actor_id == each])
        ]
