"""Steps of the wall clock: fake_timers, the order of records and durations do not follow them."""

from __future__ import annotations

import pytest

from tests.actors.kit import CONVERSATION_ID, FakeTimers, Stage, TestJournal, run_ready_tasks
from tests.actors.runtime.test_timers import TimerLog
from tests.core.conversation.conversation_kit import ASSEMBLED, NOW
from wonder_server.actors.runtime.timers import Timers
from wonder_server.compose.clock import SystemClock
from wonder_server.core.actor.queries import Forget
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Fault, Reason

SECOND = 1_000_000_000
DAY_S = 86_400


class FakeClocks:
    """The two clocks of a machine. ``advance_s`` moves both; ``set_s`` moves the wall clock alone."""

    def __init__(self) -> None:
        self.wall_ns = NOW * 1_000_000
        self.steady_ns = 5 * SECOND
        self.clock = SystemClock(lambda: self.wall_ns, lambda: self.steady_ns)

    def advance_s(self, seconds: float) -> None:
        self.wall_ns += int(seconds * SECOND)
        self.steady_ns += int(seconds * SECOND)

    def set_s(self, seconds: float) -> None:
        self.wall_ns += int(seconds * SECOND)


@pytest.mark.parametrize("step_s", [-DAY_S, -1, 0, 1, 60, DAY_S])
async def test_a_timer_of_four_seconds_takes_four_seconds_whatever_the_wall_clock_does(
    step_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks, log, fake_timers = FakeClocks(), TimerLog(), FakeTimers(monkeypatch)
    clocks.clock.now_ms()
    timers = Timers(clocks.clock, log)
    timers.set("conv_1", "op_1", clocks.clock.now_ms() + 4000)
    clocks.set_s(step_s)
    clocks.advance_s(3.9)
    fake_timers.fire()
    assert log.fired == []
    clocks.advance_s(0.15)
    fake_timers.fire()
    assert log.fired == [("conv_1", "op_1")]


async def test_a_timer_that_is_set_after_a_clock_jump_fires_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, log, fake_timers = FakeClocks(), TimerLog(), FakeTimers(monkeypatch)
    timers = Timers(clocks.clock, log)
    timers.set("conv_1", "old", clocks.clock.now_ms() + 60_000)
    clocks.advance_s(1)
    clocks.set_s(DAY_S)
    timers.set("conv_1", "new", clocks.clock.now_ms() + 50)
    assert min(delay for delay, handle in fake_timers.set if not handle.cancelled()) == pytest.approx(0.05)


async def test_a_timer_that_is_set_after_a_suspension_fires_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, log, fake_timers = FakeClocks(), TimerLog(), FakeTimers(monkeypatch)
    timers = Timers(clocks.clock, log)
    timers.set("conv_1", "old", clocks.clock.now_ms() + 60_000)
    clocks.advance_s(3600)
    timers.set("conv_1", "new", clocks.clock.now_ms() + 50)
    (delay,) = fake_timers.fire()
    assert delay == 0.0
    assert log.fired == [("conv_1", "old")]


def test_server_time_never_goes_backwards() -> None:
    clocks = FakeClocks()
    seen = [clocks.clock.now_ms()]
    for step in (-DAY_S, 30, -5, DAY_S, -2 * DAY_S):
        clocks.set_s(step)
        for _ in range(50):
            clocks.advance_s(0.1)
            seen.append(clocks.clock.now_ms())
    assert seen == sorted(seen)


@pytest.mark.parametrize("step_s", [-10, 10])
def test_server_time_follows_the_wall_clock_slowly(step_s: int) -> None:
    clocks = FakeClocks()
    clocks.set_s(step_s)
    for _ in range(500):
        clocks.advance_s(1)
        clocks.clock.now_ms()
    assert abs(clocks.clock.now_ms() - clocks.wall_ns // 1_000_000) == pytest.approx(5000, abs=50)
    for _ in range(600):
        clocks.advance_s(1)
        clocks.clock.now_ms()
    assert clocks.clock.now_ms() == clocks.wall_ns // 1_000_000


def test_a_long_time_without_a_reading_does_not_overshoot() -> None:
    clocks = FakeClocks()
    clocks.set_s(2)
    clocks.advance_s(1)
    clocks.clock.now_ms()
    clocks.advance_s(DAY_S)
    clocks.clock.now_ms()
    assert clocks.clock.now_ms() == clocks.wall_ns // 1_000_000


@pytest.mark.parametrize("back_ms", [0, 500, DAY_S * 1000])
async def test_a_clock_that_was_set_back_over_a_restart_keeps_the_remaining_time_of_a_timer(
    back_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, fake_timers = TestJournal(), FakeTimers(monkeypatch)
    first = Stage(journal)
    await retry_with_backoff(first)
    wake_ms = min(operation.wake_ms for operation in first.state().operations.values())
    left_ms = wake_ms - first.clock.now
    assert left_ms > 0
    await first.loop.stop()

    restarted = Stage(journal)
    restarted.clock.now = first.clock.now - back_ms
    await restarted.loop.resume()
    await run_ready_tasks()
    assert restarted.model_calls() == []
    restarted.clock.now += left_ms - 1
    fake_timers.fire()
    await run_ready_tasks()
    assert restarted.model_calls() == []
    restarted.clock.now += 1
    fake_timers.fire()
    await run_ready_tasks()
    assert len(restarted.model_calls()) == 1
    times = [entry.at_ms for entry in journal.actors[CONVERSATION_ID].entries]
    assert times == sorted(times)


async def test_an_actor_that_leaves_memory_after_the_clock_was_set_back_does_not_wait_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal, fake_timers = TestJournal(), FakeTimers(monkeypatch)
    first = Stage(journal)
    await retry_with_backoff(first)
    wake_ms = min(operation.wake_ms for operation in first.state().operations.values())
    left_ms = wake_ms - first.clock.now
    await first.loop.stop()
    restarted = Stage(journal)
    restarted.clock.now = first.clock.now - DAY_S * 1000
    await restarted.loop.resume()
    await run_ready_tasks()
    restarted.clock.now += left_ms - 1
    assert restarted.loop.query(CONVERSATION_ID, Forget())
    restarted.loop.tell(CONVERSATION_ID, CONVERSATION.timer_fired(""))
    await run_ready_tasks()
    fake_timers.fire()
    await run_ready_tasks()
    assert restarted.model_calls() == []
    restarted.clock.now += 1
    fake_timers.fire()
    await run_ready_tasks()
    assert len(restarted.model_calls()) == 1


async def retry_with_backoff(stage: Stage) -> None:
    """Start a conversation whose model call failed and waits for its retry."""
    await stage.open()
    await stage.send()
    stage.loop.report_success(CONVERSATION_ID, stage.run_commands()[-1].operation_id, ASSEMBLED)
    await run_ready_tasks()
    busy = Fault(reason=Reason.MODEL_UNAVAILABLE, message="Busy.", transient=True)
    stage.loop.report_failure(CONVERSATION_ID, stage.model_calls()[-1].operation_id, busy)
    await run_ready_tasks()


@pytest.mark.parametrize("wall_s", [-(2**31), -1, 0, 1])
def test_a_wall_clock_before_1970_gives_positive_times(wall_s: int) -> None:
    clock = SystemClock(lambda: wall_s * SECOND, lambda: 5 * SECOND)
    assert clock.now_ms() > 0
