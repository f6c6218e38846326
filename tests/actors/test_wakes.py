"""Timers of operations: never early, once, whatever the clock does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.actors.kit import FakeClock
from tests.core.conversation_kit import NOW
from wonder_server.actors.wakes import LONGEST_S, Wakes


class Timers:
    """The event loop's timers, rung by hand. Time of the event loop and the wall clock are two things."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set: list[tuple[float, asyncio.TimerHandle]] = []
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(self._loop, "call_later", self._call_later)

    def _call_later(
        self, delay: float, callback: Callable[..., None], *arguments: Any
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(delay, callback, arguments, self._loop)
        self.set.append((delay, handle))
        return handle

    def ring(self) -> list[float]:
        """Ring all that are set now; the delays they were set for."""
        rung, self.set = [each for each in self.set if not each[1].cancelled()], []
        for _, handle in rung:
            handle._run()
        return [delay for delay, _ in rung]


class Bell:
    def __init__(self) -> None:
        self.rung: list[tuple[str, str]] = []

    def __call__(self, actor_id: str, operation_id: str) -> None:
        self.rung.append((actor_id, operation_id))


async def test_a_wake_comes_when_its_time_has_come_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), Bell(), Timers(monkeypatch)
    wakes = Wakes(clock, bell)
    wakes.set("conv_1", "op_1", NOW + 5000)
    clock.now += 5000
    assert timers.ring() == [5.0]
    assert bell.rung == [("conv_1", "op_1")]
    assert timers.ring() == []
    assert len(wakes) == 0


async def test_a_timer_that_rings_early_is_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), Bell(), Timers(monkeypatch)
    Wakes(clock, bell).set("conv_1", "op_1", NOW + 5000)
    clock.now += 4999
    timers.ring()
    assert bell.rung == []
    clock.now += 1
    assert timers.ring() == [0.001]
    assert bell.rung == [("conv_1", "op_1")]


async def test_a_clock_that_is_set_back_only_makes_it_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), Bell(), Timers(monkeypatch)
    Wakes(clock, bell).set("conv_1", "op_1", NOW + 1000)
    clock.now -= 60_000
    timers.ring()
    assert bell.rung == []
    assert timers.ring() == [LONGEST_S]
    assert bell.rung == []
    clock.now = NOW + 1000
    assert timers.ring() == [LONGEST_S]
    assert bell.rung == [("conv_1", "op_1")]


async def test_a_clock_that_jumps_ahead_is_noticed_within_the_longest_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, bell, timers = FakeClock(), Bell(), Timers(monkeypatch)
    Wakes(clock, bell).set("conv_1", "op_1", NOW + 30 * 86_400_000)
    assert timers.ring() == [LONGEST_S]
    assert bell.rung == []
    clock.now += 60 * 86_400_000
    assert timers.ring() == [LONGEST_S]
    assert bell.rung == [("conv_1", "op_1")]


async def test_what_is_due_already_is_due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), Bell(), Timers(monkeypatch)
    Wakes(clock, bell).set("conv_1", "op_1", NOW - 5000)
    assert timers.ring() == [0.0]
    assert bell.rung == [("conv_1", "op_1")]


async def test_setting_again_moves_it_and_zero_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), Bell(), Timers(monkeypatch)
    wakes = Wakes(clock, bell)
    wakes.set("conv_1", "op_1", NOW + 1000)
    wakes.set("conv_1", "op_1", NOW + 2000)
    wakes.set("conv_1", "op_2", NOW + 1000)
    wakes.set("conv_1", "op_2", 0)
    wakes.set("conv_1", "op_3", 0)
    clock.now += 1000
    assert timers.ring() == [1.0], "it looks, but at nothing"
    assert bell.rung == []
    clock.now += 1000
    assert timers.ring() == [1.0]
    assert bell.rung == [("conv_1", "op_1")]


async def test_an_actor_or_all_can_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), Bell(), Timers(monkeypatch)
    wakes = Wakes(clock, bell)
    for actor in ("conv_1", "conv_2"):
        wakes.set(actor, "op_1", NOW)
        wakes.set(actor, "op_2", NOW)
    wakes.forget("conv_1")
    assert len(wakes) == 2
    wakes.close()
    assert len(wakes) == 0
    assert timers.ring() == []
    assert bell.rung == []


async def test_all_of_them_are_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), Bell(), Timers(monkeypatch)
    wakes = Wakes(clock, bell)
    for number in range(1000):
        wakes.set(f"run_{number}", "op", NOW + 20_000 - number)
    assert sum(not handle.cancelled() for _, handle in timers.set) == 1
    clock.now += 20_000
    (delay,) = timers.ring()
    assert delay == pytest.approx(19.001)
    # What is due first comes first.
    assert bell.rung == [(f"run_{number}", "op") for number in reversed(range(1000))]
    assert len(wakes) == 0
    assert timers.ring() == []


async def test_what_is_forgotten_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), Bell(), Timers(monkeypatch)
    wakes = Wakes(clock, bell)
    wakes.set("run_0", "op", NOW + 1000)
    for number in range(20_000):
        wakes.set(f"run_{number}", "other", NOW + 5000)
        wakes.set(f"run_{number}", "other", 0)
    assert len(wakes) == 1
    assert len(wakes._heap) < 2000
    clock.now += 1000
    timers.ring()
    assert bell.rung == [("run_0", "op")]
    assert wakes._set == {}


async def test_what_is_woken_may_set_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, timers = FakeClock(), Timers(monkeypatch)
    rung: list[str] = []

    def ring(actor_id: str, operation_id: str) -> None:
        rung.append(operation_id)
        if operation_id == "op_1":
            wakes.set(actor_id, "op_2", clock.now + 1000)

    wakes = Wakes(clock, ring)
    wakes.set("run_1", "op_1", NOW + 1000)
    wakes.set("run_1", "op_3", NOW + 5000)
    clock.now += 1000
    assert timers.ring() == [1.0]
    clock.now += 1000
    assert timers.ring() == [1.0]
    assert rung == ["op_1", "op_2"]
    clock.now += 3000
    assert timers.ring() == [3.0]
    assert rung == ["op_1", "op_2", "op_3"]
