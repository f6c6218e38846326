"""Fair queues: the order in which turns, bulk work and callers are served."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.kit import CONVERSATION_ID, nth_conversation_id, run_ready_tasks
from tests.actors.toy_stage import ToyStage
from tests.core.conversation.conversation_kit import new_conversation
from wonder_server.actors.runtime.committer import MAX_BULK_COMMITS
from wonder_server.actors.runtime.fair_queue import FairQueue, Lane, current_caller


def bulk_id(number: int) -> str:
    return f"run_bulk{number:04}"


def start_bulk(world: ToyStage, count: int, name: str = "", first: int = 0) -> list[asyncio.Task[Any]]:
    """So many runs of one caller, each with one step that waits for the disk."""
    token = current_caller.set(name)
    try:
        return [
            world.begin(("held", f"{number}"), run_id=bulk_id(number))
            for number in range(first, first + count)
        ]
    finally:
        current_caller.reset(token)


def served_actors(world: ToyStage) -> list[str]:
    """The actors in the order of their first commits."""
    return list(
        dict.fromkeys(commit.actor_id for written in world.journal.transactions for commit in written)
    )


def test_turns_and_bulk_are_served_alternately_and_owners_in_turn() -> None:
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
    world = ToyStage()
    runs = start_bulk(world, 400)
    world.loop.register_new(CONVERSATION_ID)
    turn = world.ask_in_background(new_conversation(CONVERSATION_ID))
    await asyncio.gather(turn, *runs)
    assert served_actors(world).index(CONVERSATION_ID) <= 1


async def test_one_callers_runs_do_not_wait_behind_anothers() -> None:
    world = ToyStage()
    runs = [*start_bulk(world, 100, "ann"), *start_bulk(world, 3, "bob", first=500)]
    await asyncio.gather(*runs)
    order = served_actors(world)
    assert [order.index(bulk_id(number)) for number in (500, 501, 502)] == [1, 3, 5]


async def test_bulk_commits_leave_capacity_for_turns() -> None:
    world = ToyStage(by_hand="")
    world.journal.hold()
    runs = start_bulk(world, 10 * MAX_BULK_COMMITS)
    await run_ready_tasks()
    assert world.journal.held == MAX_BULK_COMMITS
    turns = [
        world.ask_in_background(
            new_conversation(nth_conversation_id(number)), actor=nth_conversation_id(number)
        )
        for number in range(3)
    ]
    await run_ready_tasks()
    assert world.journal.held == MAX_BULK_COMMITS + 3, "turns are given to the store at once"
    world.journal.release(MAX_BULK_COMMITS)
    await run_ready_tasks()
    assert world.journal.held == MAX_BULK_COMMITS and not any(turn.done() for turn in turns)
    world.journal.release(3)
    await run_ready_tasks()
    assert all(turn.done() for turn in turns), "what was given to the store is written in its order"
    world.journal.release()
    await asyncio.gather(*runs)
    await world.loop.wait_until_idle()
    for number in range(0, len(runs), 50):
        run = world.committed_run(bulk_id(number))
        assert run is not None


async def test_the_loop_is_not_idle_while_a_run_waits_for_a_commit() -> None:
    world = ToyStage()
    world.journal.hold()
    start_bulk(world, MAX_BULK_COMMITS + 1)
    stopping = asyncio.create_task(world.loop.stop())
    await run_ready_tasks()
    assert not stopping.done()
    world.journal.release(MAX_BULK_COMMITS)
    await run_ready_tasks()
    assert not stopping.done() and world.journal.held
    world.journal.release()
    await stopping
    assert world.committed_run(bulk_id(MAX_BULK_COMMITS)) is not None


async def test_a_failed_commit_releases_capacity() -> None:
    world = ToyStage()
    world.journal.hold()
    runs = start_bulk(world, 3 * MAX_BULK_COMMITS)
    await run_ready_tasks()
    world.journal.fails = True
    world.journal.release(MAX_BULK_COMMITS)
    await run_ready_tasks()
    assert world.journal.held == MAX_BULK_COMMITS
    world.journal.fails = False
    world.journal.release()
    done = await asyncio.gather(*runs, return_exceptions=True)
    assert sum(isinstance(each, Exception) for each in done) == MAX_BULK_COMMITS
