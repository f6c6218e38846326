"""Timers of operations: never early, once, whatever the clock does."""

from __future__ import annotations

import pytest

from tests.actors.kit import FakeClock, FakeTimers
from tests.core.conversation.conversation_kit import NOW
from wonder_server.actors.runtime.timers import MAX_WAIT_S, Timers


class TimerLog:
    def __init__(self) -> None:
        self.rung: list[tuple[str, str]] = []

    def __call__(self, actor_id: str, operation_id: str) -> None:
        self.rung.append((actor_id, operation_id))


async def test_a_timer_fires_once_at_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    wakes = Timers(clock, bell)
    wakes.set("conv_1", "op_1", NOW + 5000)
    clock.now += 5000
    assert timers.fire() == [5.0]
    assert bell.rung == [("conv_1", "op_1")]
    assert timers.fire() == []
    assert len(wakes) == 0


async def test_a_timer_that_fires_early_is_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    Timers(clock, bell).set("conv_1", "op_1", NOW + 5000)
    clock.now += 4999
    timers.fire()
    assert bell.rung == []
    clock.now += 1
    assert timers.fire() == [0.001]
    assert bell.rung == [("conv_1", "op_1")]


async def test_a_clock_that_is_set_back_only_makes_it_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    Timers(clock, bell).set("conv_1", "op_1", NOW + 1000)
    clock.now -= 60_000
    timers.fire()
    assert bell.rung == []
    assert timers.fire() == [MAX_WAIT_S]
    assert bell.rung == []
    clock.now = NOW + 1000
    assert timers.fire() == [MAX_WAIT_S]
    assert bell.rung == [("conv_1", "op_1")]


async def test_a_clock_that_jumps_ahead_is_noticed_within_the_longest_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, bell, timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    Timers(clock, bell).set("conv_1", "op_1", NOW + 30 * 86_400_000)
    assert timers.fire() == [MAX_WAIT_S]
    assert bell.rung == []
    clock.now += 60 * 86_400_000
    assert timers.fire() == [MAX_WAIT_S]
    assert bell.rung == [("conv_1", "op_1")]


async def test_an_overdue_timer_fires_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    Timers(clock, bell).set("conv_1", "op_1", NOW - 5000)
    assert timers.fire() == [0.0]
    assert bell.rung == [("conv_1", "op_1")]


async def test_setting_again_moves_a_timer_and_zero_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    wakes = Timers(clock, bell)
    wakes.set("conv_1", "op_1", NOW + 1000)
    wakes.set("conv_1", "op_1", NOW + 2000)
    wakes.set("conv_1", "op_2", NOW + 1000)
    wakes.set("conv_1", "op_2", 0)
    wakes.set("conv_1", "op_3", 0)
    clock.now += 1000
    assert timers.fire() == [1.0], "it looks, but at nothing"
    assert bell.rung == []
    clock.now += 1000
    assert timers.fire() == [1.0]
    assert bell.rung == [("conv_1", "op_1")]


async def test_timers_of_one_actor_or_of_all_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    wakes = Timers(clock, bell)
    for actor in ("conv_1", "conv_2"):
        wakes.set(actor, "op_1", NOW)
        wakes.set(actor, "op_2", NOW)
    wakes.cancel_all("conv_1")
    assert len(wakes) == 2
    wakes.close()
    assert len(wakes) == 0
    assert timers.fire() == []
    assert bell.rung == []


async def test_all_timers_share_one_timer_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    wakes = Timers(clock, bell)
    for number in range(1000):
        wakes.set(f"run_{number}", "op", NOW + 20_000 - number)
    assert sum(not handle.cancelled() for _, handle in timers.set) == 1
    clock.now += 20_000
    (delay,) = timers.fire()
    assert delay == pytest.approx(19.001)
    # What is due first comes first.
    assert bell.rung == [(f"run_{number}", "op") for number in reversed(range(1000))]
    assert len(wakes) == 0
    assert timers.fire() == []


async def test_cancelled_timers_leave_the_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bell, timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    wakes = Timers(clock, bell)
    wakes.set("run_0", "op", NOW + 1000)
    for number in range(20_000):
        wakes.set(f"run_{number}", "other", NOW + 5000)
        wakes.set(f"run_{number}", "other", 0)
    assert len(wakes) == 1
    assert len(wakes._heap) < 2000
    clock.now += 1000
    timers.fire()
    assert bell.rung == [("run_0", "op")]
    assert wakes._timers == {}


async def test_a_fired_timer_may_set_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, timers = FakeClock(), FakeTimers(monkeypatch)
    rung: list[str] = []

    def ring(actor_id: str, operation_id: str) -> None:
        rung.append(operation_id)
        if operation_id == "op_1":
            wakes.set(actor_id, "op_2", clock.now + 1000)

    wakes = Timers(clock, ring)
    wakes.set("run_1", "op_1", NOW + 1000)
    wakes.set("run_1", "op_3", NOW + 5000)
    clock.now += 1000
    assert timers.fire() == [1.0]
    clock.now += 1000
    assert timers.fire() == [1.0]
    assert rung == ["op_1", "op_2"]
    clock.now += 3000
    assert timers.fire() == [3.0]
    assert rung == ["op_1", "op_2", "op_3"]
