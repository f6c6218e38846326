"""Fair queues: the order in which turns, bulk work and callers are served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.actors.kit import ROOM, rest, room_id
from tests.actors.test_write_behind import World
from tests.core.conversation_kit import room
from wonder_server.actors import crew
from wonder_server.actors.lanes import FairLine, Lane, owner
from wonder_server.actors.scribe import MOST_BULK


@pytest.fixture(autouse=True)
def _whole_stretches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # How far a stretch gets must not depend on how busy the machine is.
    monkeypatch.setattr(crew, "STRETCH_S", 60.0)
    yield


def bulk_id(number: int) -> str:
    return f"run_bulk{number:04}"


def flood(world: World, count: int, name: str = "", first: int = 0) -> list[asyncio.Task[Any]]:
    """So many runs of one caller, each with one step that waits for the disk."""
    token = owner.set(name)
    try:
        return [
            world.begin(("held", f"{number}"), run_id=bulk_id(number))
            for number in range(first, first + count)
        ]
    finally:
        owner.reset(token)


def served(world: World) -> list[str]:
    """The actors in the order of their first commits."""
    return list(dict.fromkeys(commit.actor_id for written in world.journal.together for commit in written))


def test_turns_and_bulk_are_served_alternately_and_owners_in_turn() -> None:
    line = FairLine[str]()
    for number in range(4):
        line.append(f"ann's run {number}", Lane(is_bulk=True, owner="ann"))
    line.append("bob's run", Lane(is_bulk=True, owner="bob"))
    for name in ("ann", "ann", "bob"):
        line.append(f"{name}'s turn", Lane(is_bulk=False, owner=name))
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
    world = World()
    runs = flood(world, 400)
    world.loop.new(ROOM)
    turn = world.asking(room(ROOM))
    await asyncio.gather(turn, *runs)
    assert served(world).index(ROOM) <= 1


async def test_one_callers_runs_do_not_wait_behind_anothers() -> None:
    world = World()
    runs = [*flood(world, 100, "ann"), *flood(world, 3, "bob", first=500)]
    await asyncio.gather(*runs)
    order = served(world)
    assert [order.index(bulk_id(number)) for number in (500, 501, 502)] == [1, 3, 5]


async def test_runs_leave_room_among_the_commits_for_turns() -> None:
    world = World(by_hand="")
    world.journal.hold()
    runs = flood(world, 10 * MOST_BULK)
    await rest()
    assert world.journal.held == MOST_BULK
    turns = [world.asking(room(room_id(number)), actor=room_id(number)) for number in range(3)]
    await rest()
    assert world.journal.held == MOST_BULK + 3, "turns are given to the store at once"
    world.journal.release(MOST_BULK)
    await rest()
    assert world.journal.held == MOST_BULK and not any(turn.done() for turn in turns)
    world.journal.release(3)
    await rest()
    assert all(turn.done() for turn in turns), "what was given to the store is written in its order"
    world.journal.release()
    await asyncio.gather(*runs)
    await world.loop.settled()
    for number in range(0, len(runs), 50):
        run = world.run_on_disk(bulk_id(number))
        assert run is not None


async def test_the_loop_is_not_at_rest_while_a_run_waits_for_room() -> None:
    world = World()
    world.journal.hold()
    flood(world, MOST_BULK + 1)
    stopping = asyncio.create_task(world.loop.stop())
    await rest()
    assert not stopping.done()
    world.journal.release(MOST_BULK)
    await rest()
    assert not stopping.done() and world.journal.held
    world.journal.release()
    await stopping
    assert world.run_on_disk(bulk_id(MOST_BULK)) is not None


async def test_a_commit_that_fails_makes_room_too() -> None:
    world = World()
    world.journal.hold()
    runs = flood(world, 3 * MOST_BULK)
    await rest()
    world.journal.broken = True
    world.journal.release(MOST_BULK)
    await rest()
    assert world.journal.held == MOST_BULK
    world.journal.broken = False
    world.journal.release()
    done = await asyncio.gather(*runs, return_exceptions=True)
    assert sum(isinstance(each, Exception) for each in done) == MOST_BULK
