"""Fair queues: the order in which turns, bulk work and callers are served."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.kit import CONVERSATION_ID, nth_conversation_id, run_ready_tasks
from tests.actors.toy_stage import ToyStage
from tests.core.conversation.conversation_kit import new_conversation
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.runtime.commits import MAX_BULK_COMMITS
from wonder_server.actors.runtime.fair_queue import FairQueue, Lane


def bulk_id(number: int) -> str:
    return f"run_bulk{number:04}"


def start_bulk(stage: ToyStage, count: int, name: str = "", first: int = 0) -> list[asyncio.Task[Outcome]]:
    """Start ``count`` runs of one caller, each with one step that waits for the disk."""
    return [
        stage.begin(("held", f"{number}"), run_id=bulk_id(number), caller=name)
        for number in range(first, first + count)
    ]


def served_actors(stage: ToyStage) -> list[str]:
    """Return the actors in the order of their first commits."""
    return list(
        dict.fromkeys(commit.actor_id for written in stage.journal.transactions for commit in written)
    )


def test_turns_and_bulk_are_served_alternately_and_callers_in_turn() -> None:
    line = FairQueue[str]()
    for number in range(4):
        line.append(f"ann's run {number}", Lane(is_bulk=True, caller="ann"))
    line.append("bob's run", Lane(is_bulk=True, caller="bob"))
    for name in ("ann", "ann", "bob"):
        line.append(f"{name}'s turn", Lane(is_bulk=False, caller=name))
    order = []
    while line:
        order.append(line.popleft())
    assert order == [
        *("ann's turn", "ann's run 0", "bob's turn", "bob's run", "ann's turn"),
        *("ann's run 1", "ann's run 2", "ann's run 3"),
    ]
    with pytest.raises(IndexError):
        line.popleft()


async def test_a_turn_is_planned_ahead_of_hundreds_of_runs_that_came_before_it() -> None:
    stage = ToyStage()
    runs = start_bulk(stage, 400)
    turn = stage.ask_in_background(new_conversation(CONVERSATION_ID), fresh=True)
    await asyncio.gather(turn, *runs)
    assert served_actors(stage).index(CONVERSATION_ID) <= 1


async def test_one_callers_runs_do_not_wait_behind_anothers() -> None:
    stage = ToyStage()
    runs = [*start_bulk(stage, 100, "ann"), *start_bulk(stage, 3, "bob", first=500)]
    await asyncio.gather(*runs)
    order = served_actors(stage)
    assert [order.index(bulk_id(number)) for number in (500, 501, 502)] == [1, 3, 5]


async def test_bulk_commits_leave_capacity_for_turns() -> None:
    stage = ToyStage(by_hand="")
    stage.journal.hold()
    runs = start_bulk(stage, 10 * MAX_BULK_COMMITS)
    await run_ready_tasks()
    assert stage.journal.held == MAX_BULK_COMMITS
    turns = [
        stage.ask_in_background(
            new_conversation(nth_conversation_id(number)), actor=nth_conversation_id(number)
        )
        for number in range(3)
    ]
    await run_ready_tasks()
    assert stage.journal.held == MAX_BULK_COMMITS + 3, "turns are submitted at once"
    stage.journal.release(MAX_BULK_COMMITS)
    await run_ready_tasks()
    assert stage.journal.held == MAX_BULK_COMMITS and not any(turn.done() for turn in turns)
    stage.journal.release(3)
    await run_ready_tasks()
    assert all(turn.done() for turn in turns), "the store writes in the order of submission"
    stage.journal.release()
    await asyncio.gather(*runs)
    await stage.loop.wait_until_idle()
    for number in range(0, len(runs), 50):
        run = stage.committed_run(bulk_id(number))
        assert run is not None


async def test_the_loop_is_not_idle_while_a_run_waits_for_a_commit() -> None:
    stage = ToyStage()
    stage.journal.hold()
    start_bulk(stage, MAX_BULK_COMMITS + 1)
    stopping = asyncio.create_task(stage.loop.stop())
    await run_ready_tasks()
    assert not stopping.done()
    stage.journal.release(MAX_BULK_COMMITS)
    await run_ready_tasks()
    assert not stopping.done() and stage.journal.held
    stage.journal.release()
    await stopping
    assert stage.committed_run(bulk_id(MAX_BULK_COMMITS)) is not None


async def test_a_failed_commit_releases_capacity() -> None:
    stage = ToyStage()
    stage.journal.hold()
    runs = start_bulk(stage, 3 * MAX_BULK_COMMITS)
    await run_ready_tasks()
    stage.journal.fails = True
    stage.journal.release(MAX_BULK_COMMITS)
    await run_ready_tasks()
    assert stage.journal.held == MAX_BULK_COMMITS
    stage.journal.fails = False
    stage.journal.release()
    done = await asyncio.gather(*runs, return_exceptions=True)
    assert sum(isinstance(each, Exception) for each in done) == MAX_BULK_COMMITS
