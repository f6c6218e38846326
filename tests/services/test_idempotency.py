"""Repeated requests, and the limits of the results that the server remembers."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.kit import run_ready_tasks
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.services.idempotency import RecentExecutions, RecentRequests, RequestLocks


def asking(request_id: str = "r-1", fingerprint: str = "f", caller: str = "") -> IdempotencyKey:
    return IdempotencyKey(caller, request_id, fingerprint)


def reason(problem: pytest.ExceptionInfo[WonderError]) -> Reason:
    return problem.value.fault.reason


def test_two_callers_may_use_the_same_id() -> None:
    recent = RecentRequests[str]()
    recent.reserve(asking(), "anonymous")
    assert recent.find(asking(fingerprint="other", caller="ada")) is None
    assert recent.find(asking()) == "anonymous"


def test_an_id_of_another_request_is_refused() -> None:
    recent = RecentRequests[str]()
    recent.reserve(asking(), "first").complete()
    with pytest.raises(WonderError) as problem:
        recent.find(asking(fingerprint="other"))
    assert reason(problem) is Reason.REQUEST_ID_REUSED


def test_the_oldest_completed_request_is_evicted() -> None:
    recent = RecentRequests[str](limit=2)
    recent.reserve(asking("at work"), "at work")
    recent.reserve(asking("over"), "over").complete()
    recent.reserve(asking("new"), "new")
    assert recent.find(asking("over")) is None
    assert recent.find(asking("at work")) == "at work"
    with pytest.raises(WonderError) as problem:
        recent.reserve(asking("one more"), "one more")
    assert reason(problem) is Reason.LIMIT_EXCEEDED


def test_large_results_are_evicted_oldest_first() -> None:
    recent = RecentRequests[str](max_bytes=100)
    for name in ("a", "b", "c"):
        recent.reserve(asking(name), name).complete(size=60)
    assert [recent.find(asking(name)) for name in ("a", "b", "c")] == [None, None, "c"]


def test_a_failed_request_is_removed() -> None:
    recent = RecentRequests[str]()
    recent.reserve(asking(), "failed").discard()
    assert recent.find(asking(fingerprint="other")) is None


class Store:
    """A store that keeps each answer with its effect."""

    def __init__(self) -> None:
        self.effects = 0
        self.go = asyncio.Event()
        self.stored: tuple[str, str] | None = None

    async def execute(self) -> str:
        await self.go.wait()
        self.effects += 1
        self.stored = f"answer {self.effects}", "f"
        return self.stored[0]

    async def find(self) -> tuple[str, str] | None:
        return self.stored


async def test_requests_at_once_are_executed_once() -> None:
    store, locks = Store(), RequestLocks()
    calls = [asyncio.create_task(locks.execute(asking(), store.find, store.execute)) for _ in range(3)]
    await run_ready_tasks()
    calls[0].cancel()
    store.go.set()
    assert await asyncio.gather(*calls[1:]) == ["answer 1", "answer 1"]
    assert await locks.execute(asking(), store.find, store.execute) == "answer 1"
    assert await locks.execute(None, store.find, store.execute) == "answer 2"
    with pytest.raises(WonderError) as problem:
        await locks.execute(asking(fingerprint="other"), store.find, store.execute)
    assert reason(problem) is Reason.REQUEST_ID_REUSED


async def test_a_repeated_execution_waits_for_the_first() -> None:
    store, executions = Store(), RecentExecutions()

    async def repeat() -> str:
        return "read"

    calls = [asyncio.create_task(executions.execute(asking(), store.execute, repeat)) for _ in range(2)]
    await run_ready_tasks()
    store.go.set()
    assert await asyncio.gather(*calls) == ["answer 1", "read"]
    assert await executions.execute(asking(caller="ada"), store.execute, repeat) == "answer 2"
