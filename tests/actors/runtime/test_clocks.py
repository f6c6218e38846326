"""Steps of the wall clock: timers, the order of records and durations do not follow them."""

from __future__ import annotations

import pytest

from tests.actors.kit import CONVERSATION_ID, FakeTimers, Stage, TestJournal, run_ready_tasks
from tests.actors.runtime.test_timers import TimerLog
from tests.core.conversation.conversation_kit import ASSEMBLED, NOW
from wonder_server.actors.runtime.timers import Timers
from wonder_server.compose.clock import SystemClock
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Fault, Reason

SECOND = 1_000_000_000
DAY_S = 86_400


class FakeClocks:
    """A machine's two clocks: ``pass_s`` moves both, ``set_s`` moves the wall clock alone."""

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
    hands, bell, timers = FakeClocks(), TimerLog(), FakeTimers(monkeypatch)
    hands.clock.now_ms()
    wakes = Timers(hands.clock, bell)
    wakes.set("conv_1", "op_1", hands.clock.now_ms() + 4000)
    hands.set_s(step_s)
    hands.advance_s(3.9)
    timers.fire()
    assert bell.rung == []
    hands.advance_s(0.15)
    timers.fire()
    assert bell.rung == [("conv_1", "op_1")]


async def test_a_timer_that_is_set_after_a_clock_jump_fires_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hands, bell, timers = FakeClocks(), TimerLog(), FakeTimers(monkeypatch)
    wakes = Timers(hands.clock, bell)
    wakes.set("conv_1", "old", hands.clock.now_ms() + 60_000)
    hands.advance_s(1)
    hands.set_s(DAY_S)
    wakes.set("conv_1", "new", hands.clock.now_ms() + 50)
    assert min(delay for delay, handle in timers.set if not handle.cancelled()) == pytest.approx(0.05)


async def test_a_timer_that_is_set_after_a_suspension_fires_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hands, bell, timers = FakeClocks(), TimerLog(), FakeTimers(monkeypatch)
    wakes = Timers(hands.clock, bell)
    wakes.set("conv_1", "old", hands.clock.now_ms() + 60_000)
    hands.advance_s(3600)
    wakes.set("conv_1", "new", hands.clock.now_ms() + 50)
    (delay,) = timers.fire()
    assert delay == 0.0
    assert bell.rung == [("conv_1", "old")]


def test_server_time_never_goes_backwards() -> None:
    hands = FakeClocks()
    seen = [hands.clock.now_ms()]
    for step in (-DAY_S, 30, -5, DAY_S, -2 * DAY_S):
        hands.set_s(step)
        for _ in range(50):
            hands.advance_s(0.1)
            seen.append(hands.clock.now_ms())
    assert seen == sorted(seen)


@pytest.mark.parametrize("step_s", [-10, 10])
def test_server_time_follows_the_wall_clock_slowly(step_s: int) -> None:
    hands = FakeClocks()
    hands.set_s(step_s)
    for _ in range(500):
        hands.advance_s(1)
        hands.clock.now_ms()
    assert abs(hands.clock.now_ms() - hands.wall_ns // 1_000_000) == pytest.approx(5000, abs=50)
    for _ in range(600):
        hands.advance_s(1)
        hands.clock.now_ms()
    assert hands.clock.now_ms() == hands.wall_ns // 1_000_000


def test_a_long_time_without_a_reading_does_not_overshoot() -> None:
    hands = FakeClocks()
    hands.set_s(2)
    hands.advance_s(1)
    hands.clock.now_ms()
    hands.advance_s(DAY_S)
    hands.clock.now_ms()
    assert hands.clock.now_ms() == hands.wall_ns // 1_000_000


@pytest.mark.parametrize("back_ms", [0, 500, DAY_S * 1000])
async def test_a_clock_that_was_set_back_over_a_restart_keeps_the_remaining_time_of_a_timer(
    back_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, timers = TestJournal(), FakeTimers(monkeypatch)
    first = Stage(journal)
    await retry_with_backoff(first)
    wake_ms = min(operation.wake_ms for operation in first.state().operations.values())
    left_ms = wake_ms - first.clock.now
    assert left_ms > 0
    await first.loop.stop()

    again = Stage(journal)
    again.clock.now = first.clock.now - back_ms
    again.loop.resume(await journal.unfinished())
    await run_ready_tasks()
    assert again.model_calls() == []
    again.clock.now += left_ms - 1
    timers.fire()
    await run_ready_tasks()
    assert again.model_calls() == []
    again.clock.now += 1
    timers.fire()
    await run_ready_tasks()
    assert len(again.model_calls()) == 1
    times = [entry.at_ms for entry in journal.actors[CONVERSATION_ID].entries]
    assert times == sorted(times)


async def test_an_actor_that_leaves_memory_after_the_clock_was_set_back_does_not_wait_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal, timers = TestJournal(), FakeTimers(monkeypatch)
    first = Stage(journal)
    await retry_with_backoff(first)
    wake_ms = min(operation.wake_ms for operation in first.state().operations.values())
    left_ms = wake_ms - first.clock.now
    await first.loop.stop()
    again = Stage(journal)
    again.clock.now = first.clock.now - DAY_S * 1000
    again.loop.resume(await journal.unfinished())
    await run_ready_tasks()
    again.clock.now += left_ms - 1
    assert again.loop.evict(CONVERSATION_ID)
    again.loop.tell(CONVERSATION_ID, CONVERSATION.timer_fired(""))
    await run_ready_tasks()
    timers.fire()
    await run_ready_tasks()
    assert again.model_calls() == []
    again.clock.now += 1
    timers.fire()
    await run_ready_tasks()
    assert len(again.model_calls()) == 1


async def retry_with_backoff(stage: Stage) -> None:
    """A conversation whose model call failed and waits to be tried again."""
    await stage.open()
    await stage.send()
    stage.loop.report_success(CONVERSATION_ID, stage.run_commands()[-1].operation_id, ASSEMBLED)
    await run_ready_tasks()
    busy = Fault(reason=Reason.MODEL_UNAVAILABLE, message="Busy.", transient=True)
    stage.loop.report_failure(CONVERSATION_ID, stage.model_calls()[-1].operation_id, busy)
    await run_ready_tasks()


@pytest.mark.parametrize("wall_s", [-(2**31), -1, 0, 1])
def test_a_wall_clock_before_1970_gives_times_that_are_times(wall_s: int) -> None:
    clock = SystemClock(lambda: wall_s * SECOND, lambda: 5 * SECOND)
    assert clock.now_ms() > 0
