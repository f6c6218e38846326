"""A stage whose runs are those of `tests.actors.toy`."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from tests.actors.kit import LIMITS, Stage, TestJournal
from tests.actors.toy import TOY, StartRun, Step, ToyRun
from wonder_server.actors.runs.replay import replay
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.actors.runtime.limits import LoopLimits
from wonder_server.core.actor.commands import Command, RunTask, RunWorkflow, Stop
from wonder_server.core.actor.planner import Planner
from wonder_server.core.json_types import JsonValue

RUN = "run_a0"


class ToyStage(Stage):
    """A stage that executes commands like the handlers.

    Tasks whose names are in ``by_hand`` wait for `finish`; others report at once, within their dispatch.
    """

    def __init__(
        self,
        journal: TestJournal | None = None,
        *,
        by_hand: str = "",
        run: Planner = TOY,
        limits: LoopLimits = LIMITS,
    ) -> None:
        super().__init__(journal, run=run, limits=replace(limits, idle_actors=0))
        self.by_hand = by_hand
        self.effects: Counter[str] = Counter()
        """Number of executions of each task, by its key."""
        self.waiting: dict[str, tuple[str, str]] = {}
        """Waiting tasks: actor and operation by name."""
        self.stopped: list[str] = []

    def _dispatch(self, actor_id: str, command: Command) -> None:
        super()._dispatch(actor_id, command)
        if isinstance(command, RunWorkflow):
            steps, parent = command.input["steps"], command.parent
            start = StartRun(run_id=command.run_id, steps=steps, parent=parent, volatile=True)
            self.loop.tell(command.run_id, start, fresh=command.fresh)
        elif isinstance(command, RunTask):
            self.effects[command.scope.key] += 1
            self.waiting[command.input["name"]] = actor_id, command.operation_id
            if command.input["name"] not in self.by_hand:
                self.finish(command.input["name"])
        elif isinstance(command, Stop):
            self.stopped.append(command.operation_id)

    def finish(self, name: str, output: JsonValue = "ok") -> None:
        """Report the output of a waiting task."""
        self.loop.report_success(*self.waiting.pop(name), output)

    def begin(self, *steps: Step, run_id: str = RUN, caller: str = "") -> asyncio.Task[Outcome]:
        start = StartRun(run_id=run_id, steps=steps)
        return self.ask_in_background(start, actor=run_id, caller=caller, fresh=True)

    def committed_run(self, run_id: str = RUN) -> ToyRun | None:
        written = self.journal.actors.get(run_id)
        put = None if written is None else written.table("runs").get(run_id)
        return None if put is None else put.value

    async def assert_replays(self, run_id: str = RUN) -> None:
        result = replay(TOY, await self.journal.entries(run_id, 0, 1000))
        assert result.difference is None
        assert result.steps


def early(*names: str) -> tuple[Step, ...]:
    return tuple(("early", name) for name in names)


NESTED = (("early", "a"), ("child", "v", (("early", "x"), ("child", "g", (("held", "h"), ("early", "i"))))))
