"""Timers of operations: never early, once, whatever the clock does."""

from __future__ import annotations

import pytest

from tests.actors.kit import FakeClock, FakeTimers
from tests.core.conversation.conversation_kit import NOW
from wonder_server.actors.runtime.timers import MAX_WAIT_S, Timers


class TimerLog:
    def __init__(self) -> None:
        self.fired: list[tuple[str, str]] = []

    def __call__(self, actor_id: str, operation_id: str) -> None:
        self.fired.append((actor_id, operation_id))


async def test_a_timer_fires_once_at_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log, fake_timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    timers = Timers(clock, log)
    timers.set("conv_1", "op_1", NOW + 5000)
    clock.now += 5000
    assert fake_timers.fire() == [5.0]
    assert log.fired == [("conv_1", "op_1")]
    assert fake_timers.fire() == []
    assert len(timers) == 0


async def test_a_timer_that_fires_early_is_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log, fake_timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    Timers(clock, log).set("conv_1", "op_1", NOW + 5000)
    clock.now += 4999
    fake_timers.fire()
    assert log.fired == []
    clock.now += 1
    assert fake_timers.fire() == [0.001]
    assert log.fired == [("conv_1", "op_1")]


async def test_a_timer_waits_longer_after_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log, fake_timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    Timers(clock, log).set("conv_1", "op_1", NOW + 1000)
    clock.now -= 60_000
    fake_timers.fire()
    assert log.fired == []
    assert fake_timers.fire() == [MAX_WAIT_S]
    assert log.fired == []
    clock.now = NOW + 1000
    assert fake_timers.fire() == [MAX_WAIT_S]
    assert log.fired == [("conv_1", "op_1")]


async def test_a_clock_that_jumps_ahead_is_noticed_within_the_longest_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, log, fake_timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    Timers(clock, log).set("conv_1", "op_1", NOW + 30 * 86_400_000)
    assert fake_timers.fire() == [MAX_WAIT_S]
    assert log.fired == []
    clock.now += 60 * 86_400_000
    assert fake_timers.fire() == [MAX_WAIT_S]
    assert log.fired == [("conv_1", "op_1")]


async def test_an_overdue_timer_fires_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log, fake_timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    Timers(clock, log).set("conv_1", "op_1", NOW - 5000)
    assert fake_timers.fire() == [0.0]
    assert log.fired == [("conv_1", "op_1")]


async def test_setting_again_moves_a_timer_and_zero_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log, fake_timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    timers = Timers(clock, log)
    timers.set("conv_1", "op_1", NOW + 1000)
    timers.set("conv_1", "op_1", NOW + 2000)
    timers.set("conv_1", "op_2", NOW + 1000)
    timers.set("conv_1", "op_2", 0)
    timers.set("conv_1", "op_3", 0)
    clock.now += 1000
    assert fake_timers.fire() == [1.0], "the check finds nothing"
    assert log.fired == []
    clock.now += 1000
    assert fake_timers.fire() == [1.0]
    assert log.fired == [("conv_1", "op_1")]


async def test_timers_of_one_actor_or_of_all_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log, fake_timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    timers = Timers(clock, log)
    for actor in ("conv_1", "conv_2"):
        timers.set(actor, "op_1", NOW)
        timers.set(actor, "op_2", NOW)
    timers.cancel_all("conv_1")
    assert len(timers) == 2
    timers.close()
    assert len(timers) == 0
    assert fake_timers.fire() == []
    assert log.fired == []


async def test_all_timers_share_one_timer_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log, fake_timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    timers = Timers(clock, log)
    for number in range(1000):
        timers.set(f"run_{number}", "op", NOW + 20_000 - number)
    assert sum(not handle.cancelled() for _, handle in fake_timers.set) == 1
    clock.now += 20_000
    (delay,) = fake_timers.fire()
    assert delay == pytest.approx(19.001)
    # Timers fire in the order of their times.
    assert log.fired == [(f"run_{number}", "op") for number in reversed(range(1000))]
    assert len(timers) == 0
    assert fake_timers.fire() == []


async def test_cancelled_timers_leave_the_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log, fake_timers = FakeClock(), TimerLog(), FakeTimers(monkeypatch)
    timers = Timers(clock, log)
    timers.set("run_0", "op", NOW + 1000)
    for number in range(20_000):
        timers.set(f"run_{number}", "other", NOW + 5000)
        timers.set(f"run_{number}", "other", 0)
    assert len(timers) == 1
    assert len(timers._heap) < 2000
    clock.now += 1000
    fake_timers.fire()
    assert log.fired == [("run_0", "op")]
    assert timers._timers == {}


async def test_a_fired_timer_may_set_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, fake_timers = FakeClock(), FakeTimers(monkeypatch)
    fired: list[str] = []

    def ring(actor_id: str, operation_id: str) -> None:
        fired.append(operation_id)
        if operation_id == "op_1":
            timers.set(actor_id, "op_2", clock.now + 1000)

    timers = Timers(clock, ring)
    timers.set("run_1", "op_1", NOW + 1000)
    timers.set("run_1", "op_3", NOW + 5000)
    clock.now += 1000
    assert fake_timers.fire() == [1.0]
    clock.now += 1000
    assert fake_timers.fire() == [1.0]
    assert fired == ["op_1", "op_2"]
    clock.now += 3000
    assert fake_timers.fire() == [3.0]
    assert fired == ["op_1", "op_2", "op_3"]
