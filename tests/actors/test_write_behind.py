"""Write-behind: what may be repeated goes ahead of the disk, nothing else does, and no crash shows it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.actors.kit import Stage, TestJournal, rest
from tests.actors.toy import TOY, Begin, Done, Note, Step, ToyRun
from wonder_server.actors import crew, scribe
from wonder_server.actors import loop as loops
from wonder_server.actors.replay import replay
from wonder_server.core.commands import Command, RunTask, RunWorkflow, Stop
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.core.planner import Planner

RUN = "run_a"


@pytest.fixture(autouse=True)
def _at_once_and_quietly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scribe, "RELOAD_AFTER_S", 0.0)
    # How far a stretch gets must not depend on how busy the machine is.
    monkeypatch.setattr(crew, "STRETCH_S", 60.0)
    with capture_logs():
        yield


class World(Stage):
    """Does what the handlers do. ``by_hand``: tasks by these names wait for `finish`; others answer at once,
    from within their dispatch."""

    def __init__(self, journal: TestJournal | None = None, *, by_hand: str = "", run: Planner = TOY) -> None:
        super().__init__(journal, run=run, idle_limit=0)
        self.by_hand = by_hand
        self.effects: Counter[str] = Counter()
        """How often each task was done, by its key."""
        self.waiting: dict[str, tuple[str, str]] = {}
        """Tasks by hand: name -> actor and operation."""
        self.stopped: list[str] = []

    def _dispatch(self, actor_id: str, command: Command) -> None:
        super()._dispatch(actor_id, command)
        if isinstance(command, RunWorkflow):
            if command.fresh:
                self.loop.new(command.run_id)
            steps, parent = command.input["steps"], command.parent
            self.loop.tell(
                command.run_id, Begin(run_id=command.run_id, steps=steps, parent=parent, volatile=True)
            )
        elif isinstance(command, RunTask):
            self.effects[command.scope.key] += 1
            self.waiting[command.input["name"]] = actor_id, command.operation_id
            if command.input["name"] not in self.by_hand:
                self.finish(command.input["name"])
        elif isinstance(command, Stop):
            self.stopped.append(command.operation_id)

    def finish(self, name: str, output: Any = "ok") -> None:
        """The task comes to its end."""
        self.loop.succeeded(*self.waiting.pop(name), output)

    def begin(self, *steps: Step, run_id: str = RUN) -> asyncio.Task[Any]:
        self.loop.new(run_id)
        return self.asking(Begin(run_id=run_id, steps=steps), actor=run_id)

    def run_on_disk(self, run_id: str = RUN) -> ToyRun | None:
        written = self.journal.written.get(run_id)
        put = None if written is None else written.table("runs").get(run_id)
        return None if put is None else put.value

    async def replays(self, run_id: str = RUN) -> None:
        verdict = replay(TOY, await self.journal.entries(run_id, TOY, 0, 1000))
        assert verdict.difference is None
        assert verdict.steps


def early(*names: str) -> tuple[Step, ...]:
    return tuple(("early", name) for name in names)


# --- ahead of the disk ------------------------------------------------------------------------------


async def test_a_run_of_work_that_answers_at_once_is_one_commit() -> None:
    world = World()
    outcome = await world.begin(*early(*"abcdefghij"))
    assert outcome.decisions
    assert world.journal.commits == 1
    run = world.run_on_disk()
    assert run is not None and run.ended and len(run.output) == 10
    assert world.loop.live == 0
    assert world.sequences(RUN) == list(range(1, len(world.events) + 1))
    await world.replays()


async def test_repeatable_work_begins_before_the_commit_and_is_planned_on_while_it_is_under_way() -> None:
    world = World(by_hand="abc")
    world.journal.hold()
    beginning = world.begin(*early("a", "b", "c"))
    await rest()
    assert list(world.waiting) == ["a"] and world.journal.held == 1
    world.finish("a")
    await rest()
    world.finish("b")
    await rest()
    assert list(world.waiting) == ["c"], "two steps further"
    assert world.journal.held == 1, "and what gathered waits for its turn"
    assert not beginning.done() and world.events == []
    world.journal.release(1)
    await rest()
    assert beginning.done()
    assert world.names(RUN) == ["workflow_started", "node.started"], (
        "the events of what is on disk, and no others"
    )
    assert world.journal.held == 1
    world.journal.release()
    await rest()
    assert [len(commit.entries) for (commit,) in world.journal.together] == [1, 2]
    assert world.names(RUN)[2:] == ["node.completed", "node.started"] * 2
    await world.replays()


async def test_what_may_not_be_repeated_waits_for_all_that_led_to_it() -> None:
    world = World(by_hand="a")
    world.journal.hold()
    world.begin(("early", "a"), ("held", "b"))
    await rest()
    world.finish("a")
    await rest()
    assert not world.effects["run_a/b"]
    world.journal.release(1)
    await rest()
    assert not world.effects["run_a/b"], "its own commit is under way"
    world.journal.release()
    await rest()
    assert world.effects["run_a/b"] == 1
    run = world.run_on_disk()
    assert run is not None and run.ended


async def test_a_refusal_and_an_answer_wait_for_what_they_rest_on() -> None:
    world = World(by_hand="a")
    await world.begin(*early("a"))
    world.journal.hold()
    noting = world.asking(Note(text="1"), actor=RUN)
    await rest()
    refused = world.asking(Note(text="2", refuse=True), actor=RUN)
    await rest()
    assert world.journal.held == 1 and not refused.done()
    world.journal.release()
    await rest()
    assert noting.done()
    with pytest.raises(WonderError):
        await refused


async def test_a_child_begins_when_its_parent_is_on_disk_and_its_answer_travels() -> None:
    world = World()
    world.journal.hold()
    world.begin(("early", "a"), ("child", "c", early("x", "y")), ("early", "b"))
    await rest()
    assert not world.effects["run_c/x"]
    world.journal.release()
    await rest()
    run = world.run_on_disk()
    assert run is not None and run.output == {"a": "ok", "b": "ok", "c": {"x": "ok", "y": "ok"}}
    assert [[each.actor_id for each in together] for together in world.journal.together] == [
        [RUN],
        ["run_c", RUN],
    ]
    await world.replays("run_c")


async def test_others_have_their_turn_while_a_long_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "STRETCH_S", -1.0)
    world = World()
    turns: list[int] = []

    def look() -> None:
        turns.append(world.effects.total())
        if turns[-1] < 50:
            asyncio.get_running_loop().call_soon(look)

    look()
    await world.begin(*early(*(f"s{number}" for number in range(50))))
    await rest()
    assert len(turns) >= 50


async def test_a_long_stretch_does_not_wait_for_all_that_is_to_be_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crew, "STRETCH_S", -1.0)
    world = World()
    for number in range(20):
        world.begin(*early("a"), run_id=f"run_{number}")
    handed_out = []
    while world.effects.total() < 20:
        await asyncio.sleep(0)
        handed_out.append(world.effects.total())
    assert len(set(handed_out)) >= 20, "one after the other, and everybody else in between"


async def test_a_long_run_is_written_in_parts() -> None:
    world = World()
    world.begin(*early(*(f"s{number}" for number in range(3 * loops.ROUND))))
    await rest()
    run = world.run_on_disk()
    assert run is not None and run.ended
    sizes = [len(commit.entries) for (commit,) in world.journal.together]
    assert max(sizes) <= loops.ROUND and len(sizes) <= 6
    await world.replays()


async def test_a_volatile_run_that_goes_on_and_on_is_written_all_the_same() -> None:
    world = World()
    steps = early(*(f"s{number}" for number in range(2 * loops.ROUND)))
    world.begin(("child", "c", steps), ("early", "b"))
    await rest()
    run = world.run_on_disk()
    assert run is not None and run.ended
    assert ["run_c"] in [[each.actor_id for each in together] for together in world.journal.together]


# --- parents before children ------------------------------------------------------------------------

NESTED = (("early", "a"), ("child", "v", (("early", "x"), ("child", "g", (("held", "h"), ("early", "i"))))))


async def test_a_volatile_parent_is_written_ahead_of_its_child() -> None:
    world = World(by_hand="h")
    world.begin(*NESTED)
    await rest()
    together = [[each.actor_id for each in commits] for commits in world.journal.together]
    assert together == [[RUN], ["run_v", "run_g"]]
    world.finish("h")
    await rest()
    run = world.run_on_disk()
    assert run is not None and run.ended
    for each in (RUN, "run_v", "run_g"):
        await world.replays(each)


async def test_a_crash_after_the_grandchilds_first_commit_does_nothing_twice() -> None:
    journal = TestJournal()
    world = World(journal, by_hand="h")
    world.begin(*NESTED)
    await rest()
    assert world.effects["run_g/h"] == 1
    again = World(journal, by_hand="h")
    assert sorted(await journal.unfinished()) == [RUN, "run_g", "run_v"]
    again.loop.resume(await journal.unfinished())
    await rest()
    again.finish("h")
    await rest()
    run = again.run_on_disk()
    assert run is not None and run.output == {"a": "ok", "v": {"x": "ok", "g": {"h": "ok", "i": "ok"}}}
    assert not again.effects["run_v/x"], "it was on disk"
    for each in (RUN, "run_v", "run_g"):
        await again.replays(each)


async def test_a_child_waits_while_its_parents_first_commit_is_under_way() -> None:
    world = World(by_hand="h")
    world.begin(
        *NESTED[:1], ("child", "v", (("child", "g", (("early", "y"), ("held", "h"))), ("early", "z")))
    )
    world.by_hand = "yh"
    await rest()
    assert list(world.waiting) == ["y"]
    # Somebody asks the volatile parent something: it is written for that.
    world.journal.hold()
    world.asking(Note(text="?"), actor="run_v")
    await rest()
    world.finish("y")
    await rest()
    assert world.journal.held == 1, "the child's commit is not even submitted"
    world.journal.release(1)
    await rest()
    assert world.journal.held == 1
    world.journal.release()
    await rest()
    assert list(world.waiting) == ["h"]


async def test_when_the_joint_first_commit_fails_both_begin_again() -> None:
    world = World(by_hand="x")
    world.begin(*NESTED)
    await rest()
    world.journal.broken_for = "run_v"
    world.finish("x")
    await rest()
    assert not world.effects["run_g/h"]
    assert world.loop.peek("run_g") is None, "it was begun by what is not on disk"
    world.journal.broken_for = ""
    await rest()
    assert world.effects["run_v/x"] == 2
    world.finish("x")
    await rest()
    assert world.effects["run_g/h"] == 1
    run = world.run_on_disk()
    assert run is not None and run.ended
    await world.replays("run_g")


# --- failures ---------------------------------------------------------------------------------------


async def test_early_work_of_a_commit_that_failed_is_stopped_and_forgotten() -> None:
    world = World(by_hand="ab")
    world.journal.hold()
    beginning = world.begin(*early("a", "b"))
    await rest()
    world.finish("a")
    await rest()
    world.journal.broken = True
    world.journal.release()
    with pytest.raises(WonderError) as failed:
        await beginning
    assert failed.value.fault.reason is Reason.STORAGE_UNAVAILABLE
    await rest()
    assert "op_1_run_a" in world.stopped
    world.journal.broken = False
    world.finish("b")
    await rest()
    assert world.run_on_disk() is None and world.events == [], "a result of what never was changes nothing"
    assert world.loop.live == 0
    await world.begin(*early("c"))
    assert world.sequences(RUN) == list(range(1, len(world.events) + 1))


async def test_a_run_on_disk_begins_its_early_work_again_after_a_failed_commit() -> None:
    world = World(by_hand="abc")
    await world.begin(*early("a", "b", "c"))
    world.journal.hold()
    world.finish("a", 1)
    await rest()
    world.finish("b", 2)
    await rest()
    assert list(world.waiting) == ["c"]
    world.journal.broken = True
    world.journal.release()
    await rest()
    world.journal.broken = False
    await rest()
    # The result of `a` was of what is on disk: it is told again. That of `b` was not: it is done again.
    assert world.effects == {"run_a/a": 1, "run_a/b": 2, "run_a/c": 1}
    world.finish("b", 3)
    await rest()
    world.finish("c")
    await rest()
    run = world.run_on_disk()
    assert run is not None and run.output == {"a": 1, "b": 3, "c": "ok"}
    await world.replays()


async def test_one_result_that_cannot_be_written_fails_alone() -> None:
    world = World(by_hand="b")
    world.journal.poison = "poison"
    beginning = world.begin(*early("a", "b", "c"))
    await rest()
    world.finish("b", "poison")
    await rest()
    await beginning
    run = world.run_on_disk()
    assert run is not None and run.output == {"a": "ok", "b": "INTERNAL", "c": "ok"}
    await world.replays()


async def test_who_began_a_run_in_the_same_commit_as_what_cannot_be_written_is_not_to_blame() -> None:
    world = World(by_hand="b")
    world.journal.poison = "poison"
    world.journal.hold()
    first = world.begin(("early", "a"))
    await rest()
    other = world.asking(Note(text="!"), actor=RUN)
    world.journal.release()
    await first
    await other
    world.journal.hold()
    beginning = world.begin(*early("b"), run_id="run_b")
    await rest()
    world.finish("b", "poison")
    world.asking(Note(text="?"), actor="run_b")
    await rest()
    world.journal.release()
    await beginning
    await rest()
    run = world.run_on_disk("run_b")
    assert run is not None and run.output == {"b": "INTERNAL"}
    assert world.names("run_b").count("noted") == 1
    await world.replays("run_b")


async def test_an_input_that_breaks_the_planner_leaves_the_others_of_its_commit_alone() -> None:
    def plan(state: Any, event: Any, now_ms: int) -> Any:
        if isinstance(event, Done) and event.output == "break":
            raise ZeroDivisionError
        return TOY.plan(state, event, now_ms)

    world = World(by_hand="b", run=replace(TOY, plan=plan))
    world.journal.hold()
    beginning = world.begin(*early("a", "b", "c"))
    await rest()
    noting = world.asking(Note(text="!"), actor=RUN)
    world.finish("b", "break")
    await rest()
    assert not beginning.done()
    world.journal.release()
    await beginning
    await noting
    await rest()
    run = world.run_on_disk()
    assert run is not None and run.output == {"a": "ok", "b": "INTERNAL", "c": "ok"}
    await world.replays()


async def test_a_store_that_refuses_at_once_is_a_commit_that_fails() -> None:
    world = World()

    def closed(commits: Any) -> Any:
        raise WonderError(Fault(reason=Reason.STORAGE_UNAVAILABLE, message=".", transient=True))

    world.journal.submit = closed  # type: ignore[method-assign]
    with pytest.raises(WonderError):
        await world.begin(*early("a"))
    await rest()
    assert world.loop.live == 0


# --- parked -----------------------------------------------------------------------------------------


async def test_a_run_that_only_waits_leaves_memory_and_comes_back_for_its_answer() -> None:
    world = World()
    at = world.clock.now + 60_000
    await world.begin(("early", "a"), ("wait", "w", at), ("early", "b"))
    await rest()
    assert world.loop.live == 0
    assert len(world.loop._wakes) == 1, "but it is woken when its time has come"
    world.loop.succeeded(RUN, "op_1_run_a", "answered")
    await rest()
    run = world.run_on_disk()
    assert run is not None and run.output == {"a": "ok", "w": "answered", "b": "ok"}
    assert len(world.loop._wakes) == 0
    await world.replays()


async def test_a_volatile_run_that_waits_stays_until_it_is_written() -> None:
    world = World()
    await world.begin(("child", "c", (("wait", "w", 0),)))
    await rest()
    assert world.loop.peek("run_c") is not None
    world.loop.succeeded("run_c", "op_0_run_c", "answered")
    await rest()
    run = world.run_on_disk()
    assert run is not None and run.output == {"c": {"w": "answered"}}


# --- stop -------------------------------------------------------------------------------------------


async def test_stop_waits_for_what_gathered_behind_a_commit() -> None:
    world = World(by_hand="ab")
    world.journal.hold()
    beginning = world.begin(*early("a", "b"))
    await rest()
    world.finish("a")
    await rest()
    stopping = asyncio.get_running_loop().create_task(world.loop.stop())
    await rest()
    assert not stopping.done()
    world.journal.release(1)
    await rest()
    assert not stopping.done()
    world.journal.release()
    await stopping
    await beginning
    assert len(world.journal.together) == 2


async def crash_and_finish(journal: TestJournal, effects: Counter[str]) -> World:
    """A new server over what is on disk, until everything has ended."""
    world = World(journal)
    world.effects = effects
    world.loop.resume(await journal.unfinished())
    for _ in range(5):
        await rest()
    return world


@pytest.mark.parametrize("released", range(12))
async def test_a_crash_at_any_commit_loses_nothing_that_was_told(released: int) -> None:
    """The same run, cut off after each number of commits: nothing that may not be repeated is done without
    its cause on disk, and the end is the same."""
    steps = (("early", "a"), ("held", "b"), *NESTED[1:], ("early", "c"), ("held", "d"))
    journal = TestJournal()
    world = World(journal)
    journal.hold()
    beginning = world.begin(*steps)
    for _ in range(released):
        await rest()
        journal.release(1)
    await rest()
    told, done = beginning.done(), Counter(world.effects)
    shown = list(world.events)
    beginning.cancel()
    after = TestJournal()
    after.written = journal.written
    again = await crash_and_finish(after, world.effects)
    run = again.run_on_disk()
    if not told:
        assert run is None and done.keys() <= {"run_a/a"}
        return
    assert run is not None and run.ended
    assert run.output == {
        "a": "ok", "b": "ok", "v": {"x": "ok", "g": {"h": "ok", "i": "ok"}}, "c": "ok", "d": "ok",
    }  # fmt: skip
    for each in (RUN, "run_v", "run_g"):
        await again.replays(each)
        written = [event.emit for event in journal.written[each].events]
        assert [event.emit for event in shown if event.actor_id == each] == written[
            : len([event for event in shown if event.actor_id == each])
        ]
