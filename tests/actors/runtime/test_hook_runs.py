"""Runs of hooks: their commits, their answers, and their failures."""

from __future__ import annotations

from typing import Any

from tests.actors.kit import (
    CONVERSATION_ID,
    Stage,
    TestJournal,
    assert_replays,
    run_ready_tasks,
)
from tests.conformance.ports.journal_subjects import unfinished
from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    agent,
    send,
    workflow,
)
from tests.replacing import replace
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.values import TurnStatus
from wonder_server.core.coordinator.model.inputs import CancelRun
from wonder_server.core.frozen import replace as changed


async def test_a_volatile_run_is_written_in_its_parents_commit() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    commits = stage.journal.commits
    (command,) = stage.run_commands()
    stage.start(command)
    await run_ready_tasks()
    (task,) = stage.tasks()
    assert stage.journal.commits == commits
    assert stage.sequences(command.run_id) == [], "its events are not on disk yet"
    stage.loop.report_success(command.run_id, task.operation_id, {})
    await run_ready_tasks()
    # One transaction holds the run's entries and the conversation's.
    assert stage.journal.commits == commits + 1
    written = stage.journal.transactions[-1]
    assert [each.actor_id for each in written] == [command.run_id, CONVERSATION_ID]
    assert [each.root for each in written] == [CONVERSATION_ID, CONVERSATION_ID]
    assert len(written[0].entries) == 2
    assert written[0].compact, "no request read the run"
    assert len(stage.recorded(command.run_id)) == 5
    assert stage.loop.peek(command.run_id) is None, "an ended run leaves memory"
    await assert_replays(stage, command.run_id)


async def test_a_turn_takes_two_commits_to_its_first_model_call() -> None:
    stage = Stage()
    await stage.open()
    before = stage.journal.commits
    chosen = replace(agent(), assembly=with_output("assembly"))
    await stage.loop.ask(CONVERSATION_ID, replace(send(), agent=chosen))
    stage.start(stage.run_commands()[0])
    await run_ready_tasks()
    task = stage.tasks()[0]
    stage.loop.report_success(stage.run_commands()[0].run_id, task.operation_id, ASSEMBLED)
    await run_ready_tasks()
    assert len(stage.model_calls()) == 1
    assert stage.journal.commits == before + 2


def with_output(name: str, action: str = "context") -> Any:
    """Return a workflow whose output is its task's request."""
    flow = workflow(name, action)
    return replace(flow, spec=replace(flow.spec, output_mapping={"request": "state.n.request"}))


async def test_a_volatile_run_is_written_before_an_operation_that_is_not_repeatable() -> None:
    stage = Stage()
    await stage.open()
    chosen = replace(agent(), assembly=with_output("assembly", action="shell"))
    await stage.loop.ask(CONVERSATION_ID, replace(send(), agent=chosen))
    (command,) = stage.run_commands()
    stage.journal.hold()
    stage.start(command)
    await run_ready_tasks()
    assert stage.tasks() == []
    stage.journal.release()
    await run_ready_tasks()
    (task,) = stage.tasks()
    assert [each.actor_id for each in stage.journal.transactions[-1]] == [command.run_id]
    commits = stage.journal.commits
    stage.loop.report_success(command.run_id, task.operation_id, ASSEMBLED)
    await run_ready_tasks()
    # The run's result is committed before its parent receives it, so that a crash cannot lose it.
    assert stage.journal.commits == commits + 2
    assert len(stage.model_calls()) == 1
    await assert_replays(stage, command.run_id)


async def test_a_volatile_run_that_could_not_be_written_starts_again() -> None:
    stage = Stage()
    await stage.open()
    chosen = replace(agent(), assembly=with_output("assembly", action="shell"))
    await stage.loop.ask(CONVERSATION_ID, replace(send(), agent=chosen))
    (command,) = stage.run_commands()
    stage.journal.fails = True
    stage.start(command)
    await run_ready_tasks()
    assert stage.tasks() == []
    stage.journal.fails = False
    await run_ready_tasks()
    (task,) = stage.tasks()
    stage.loop.report_success(command.run_id, task.operation_id, ASSEMBLED)
    await run_ready_tasks()
    assert len(stage.model_calls()) == 1


async def test_a_timed_out_attempt_of_a_hook_does_not_end_the_turn() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    (first,) = stage.run_commands()
    stage.start(first)
    await run_ready_tasks()
    operation = stage.state().operations[first.operation_id]
    stage.clock.now = operation.wake_ms
    stage.loop.tell(CONVERSATION_ID, inputs.TimerFired(operation_id=operation.id))
    await run_ready_tasks()
    # Cancel the run, as the handler does for the Stop command.
    stage.loop.tell(first.run_id, CancelRun(reason="The hook timed out."))
    await run_ready_tasks()
    assert stage.state().active_turns()
    assert stage.names().count("context_assembly.failed") == 0
    assert stage.recorded(first.run_id)[-1] == "workflow.cancelled", "the cancelled run is recorded"


async def test_a_lost_answer_is_repeated() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    await stage.open()
    chosen = replace(agent(), assembly=with_output("assembly", action="shell"))
    await stage.loop.ask(CONVERSATION_ID, replace(send(), agent=chosen))
    (command,) = stage.run_commands()
    stage.start(command)
    await run_ready_tasks()
    journal.fails_for = CONVERSATION_ID
    stage.loop.report_success(command.run_id, stage.tasks()[0].operation_id, ASSEMBLED)
    await run_ready_tasks()
    await stage.loop.stop()
    # The server stops after the run's end is on disk and before its parent received it.
    assert await unfinished(journal) == [CONVERSATION_ID]
    journal.fails_for = ""
    restarted = Stage(journal)
    await restarted.loop.resume()
    await run_ready_tasks()
    (repeated,) = restarted.run_commands()
    assert repeated == changed(command, fresh=False)
    restarted.start(repeated)
    await run_ready_tasks()
    assert restarted.tasks() == []
    assert len(restarted.model_calls()) == 1
    await restarted.loop.stop()


async def test_a_run_that_cannot_start_fails_its_parents_operation() -> None:
    stage = Stage()
    await stage.open()
    await stage.send()
    (command,) = stage.run_commands()
    broken = replace(command.workflow, spec=replace(command.workflow.spec, nodes=()))
    stage.start(changed(command, workflow=broken))
    await run_ready_tasks()
    (turn,) = stage.state().turns.values()
    assert turn.status is TurnStatus.FAILED
