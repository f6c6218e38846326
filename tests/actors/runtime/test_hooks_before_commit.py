"""Hooks start before their cause is on disk: they share its commit, or have no side effect until then."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.kit import (
    CONVERSATION_ID,
    Stage,
    TestJournal,
    assert_replays,
    error_reason,
    run_ready_tasks,
)
from tests.core.conversation.conversation_kit import agent, send, workflow
from tests.replacing import replace
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.core.actor.commands import CallModel, Command, RunTask, RunWorkflow, Stop
from wonder_server.core.definitions.specs import Node, Workflow
from wonder_server.core.errors import Reason
from wonder_server.ports.journal import Commit


class Hooked(Stage):
    """A stage whose runs start when they are dispatched.

    Tasks report at once unless ``by_hand`` is set. The test ends model calls.
    """

    def __init__(
        self, journal: TestJournal | None = None, *, by_hand: bool = False, action: str = "context"
    ) -> None:
        super().__init__(journal)
        self.by_hand = by_hand
        node = Node(id="n", task_id="t", output_mapping={"output.request": "result.request"})
        hook = replace(workflow(action=action), spec=Workflow(nodes=(node,), initial_node_id="n"))
        self.agent = replace(agent(extraction=False), assembly=hook)

    def _dispatch(self, actor_id: str, command: Command) -> None:
        super()._dispatch(actor_id, command)
        if isinstance(command, RunWorkflow):
            self.start(command, fresh=True)
        elif isinstance(command, RunTask) and not self.by_hand:
            self.finish(actor_id, command)

    def finish(self, actor_id: str, command: RunTask) -> None:
        self.loop.report_success(actor_id, command.operation_id, {"request": {"messages": []}})

    def send_in_background(self, seed: str = "seed") -> asyncio.Task[Outcome]:
        return self.ask_in_background(replace(send(seed), agent=self.agent))

    def transactions(self, since: int = 0) -> list[list[tuple[str, int]]]:
        """Return the actor and the number of entries of each commit."""
        return [
            [(each.actor_id, len(each.entries)) for each in group]
            for group in self.journal.transactions[since:]
        ]

    @property
    def run_id(self) -> str:
        (command,) = self.run_commands()
        return command.run_id


async def test_a_hook_that_ends_at_once_shares_its_parents_commit() -> None:
    stage = Hooked()
    await stage.open()
    before = len(stage.journal.transactions)
    stage.journal.hold()
    sending = stage.send_in_background()
    await run_ready_tasks()
    assert not sending.done() and not stage.model_calls(), "no caller gets an answer, and no model is called"
    stage.journal.release()
    await sending
    assert stage.transactions(before) == [[(stage.run_id, 2), (CONVERSATION_ID, 2)]]
    await run_ready_tasks()
    assert len(stage.model_calls()) == 1
    assert stage.loop.peek(stage.run_id) is None
    await assert_replays(stage)
    await assert_replays(stage, stage.run_id)


async def test_a_slow_hook_does_not_delay_its_parents_commit() -> None:
    stage = Hooked(by_hand=True)
    await stage.open()
    before = len(stage.journal.transactions)
    await stage.send_in_background()
    assert stage.transactions(before) == [[(CONVERSATION_ID, 1)]], (
        "the message is on disk, the run is at work"
    )
    ((task, run_id),) = [(command, stage.run_id) for command in stage.tasks()]
    stage.finish(run_id, task)
    await run_ready_tasks()
    assert stage.transactions(before)[1:] == [[(run_id, 2), (CONVERSATION_ID, 1)]]
    assert len(stage.model_calls()) == 1
    await assert_replays(stage)
    await assert_replays(stage, run_id)


async def test_a_command_with_side_effects_waits_for_its_commit() -> None:
    stage = Hooked(action="memory.write")
    await stage.open()
    before = len(stage.journal.transactions)
    stage.journal.hold()
    sending = stage.send_in_background()
    await run_ready_tasks()
    assert stage.run_commands() and not stage.tasks(), "the run has begun; its task would be seen outside"
    stage.journal.release()
    await sending
    await run_ready_tasks()
    assert stage.tasks() and stage.model_calls()
    # The run is never on disk without its cause.
    seen = [actor for group in stage.transactions(before) for actor, _ in group]
    assert seen.index(CONVERSATION_ID) < seen.index(stage.run_id)
    await assert_replays(stage)
    await assert_replays(stage, stage.run_id)


async def test_a_run_that_a_request_names_is_written_with_its_parent() -> None:
    stage = Hooked(by_hand=True)
    await stage.open()
    before = len(stage.journal.transactions)
    stage.journal.hold()
    sending = stage.send_in_background()
    await run_ready_tasks()
    looking = asyncio.ensure_future(stage.loop.flush(stage.run_id))
    await run_ready_tasks()
    assert not looking.done()
    stage.journal.release()
    await asyncio.gather(sending, looking)
    seen = [actor for group in stage.transactions(before) for actor, _ in group]
    assert seen.index(CONVERSATION_ID) < seen.index(stage.run_id)


async def test_a_run_is_never_on_disk_before_a_commit_that_still_waits_for_another() -> None:
    stage = Hooked(by_hand=True)
    await stage.open()
    before = len(stage.journal.transactions)
    stage.journal.hold()
    first = stage.send_in_background("first")
    await run_ready_tasks()
    second = stage.send_in_background("second")
    await run_ready_tasks()
    run_id = stage.run_commands()[-1].run_id
    looking = asyncio.ensure_future(stage.loop.flush(run_id))
    await run_ready_tasks()
    assert stage.journal.held == 1, "the run waits with its cause for the commit in flight"
    stage.journal.release()
    await asyncio.gather(first, second, looking)
    assert [actor for group in stage.transactions(before) for actor, _ in group] == [
        CONVERSATION_ID,
        CONVERSATION_ID,
        run_id,
    ]


@pytest.mark.parametrize("by_hand", [False, True], ids=["ended", "at work"])
async def test_a_failed_commit_undoes_its_early_run(by_hand: bool) -> None:
    stage = Hooked(by_hand=by_hand)
    await stage.open()
    shown = list(stage.events)
    stage.journal.fails = True
    sending = stage.send_in_background()
    assert await error_reason(sending) is Reason.STORAGE_UNAVAILABLE
    await run_ready_tasks()
    run_id = stage.run_id
    assert Stop(operation_id=stage.run_commands()[0].operation_id) in stage.commands
    assert run_id not in stage.journal.actors and stage.loop.peek(run_id) is None
    assert stage.events == shown and not stage.model_calls()
    for task in stage.tasks():
        stage.finish(run_id, task)  # It comes too late.
    await run_ready_tasks()
    stage.journal.fails = False
    stage.commands.clear()
    stage.by_hand = False
    await stage.send_in_background("again")
    await run_ready_tasks()
    assert len(stage.model_calls()) == 1
    assert run_id not in stage.journal.actors
    await assert_replays(stage)


async def test_many_turns_at_once_share_their_commits() -> None:
    stage = Hooked()
    await stage.open()
    before = len(stage.journal.transactions)
    await asyncio.gather(*(stage.send_in_background(f"seed {number}") for number in range(20)))
    await run_ready_tasks()
    assert len([command for command in stage.commands if isinstance(command, CallModel)]) == 20
    assert len(stage.journal.transactions) - before <= 3
    runs = {command.run_id for command in stage.run_commands()}
    assert len(runs) == 20 and runs <= set(stage.journal.actors)
    together: list[list[Commit]] = stage.journal.transactions[before:]
    for group in together:
        began = {each.actor_id for each in group}
        assert began <= runs | {CONVERSATION_ID}
    await assert_replays(stage)
