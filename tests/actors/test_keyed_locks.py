"""Locks by key: tasks of one key run in turn, and unused locks are removed."""

from __future__ import annotations

import asyncio

from tests.actors.kit import run_ready_tasks
from wonder_server.actors.keyed_locks import KeyedLocks


async def test_tasks_of_one_key_run_in_turn_and_others_do_not_wait() -> None:
    locks, entered, release = KeyedLocks(), list[str](), asyncio.Event()

    async def enter(key: str) -> None:
        async with locks.lock("scope", key):
            entered.append(key)
            await release.wait()

    tasks = [asyncio.ensure_future(enter(key)) for key in ("a", "a", "b")]
    await run_ready_tasks()
    assert entered == ["a", "b"]
    assert len(locks) == 2
    release.set()
    await asyncio.gather(*tasks)
    assert entered == ["a", "b", "a"]
    assert len(locks) == 0


async def test_a_cancelled_task_leaves_no_lock_behind() -> None:
    locks, release = KeyedLocks(), asyncio.Event()

    async def enter() -> None:
        async with locks.lock("scope", "key"):
            await release.wait()

    holder, waiter = asyncio.ensure_future(enter()), asyncio.ensure_future(enter())
    await run_ready_tasks()
    waiter.cancel()
    await run_ready_tasks()
    assert waiter.cancelled()
    release.set()
    await holder
    assert len(locks) == 0
