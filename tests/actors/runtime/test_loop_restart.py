"""The loop after a restart: timers, stores that cannot be read at first, runs and their parents."""

from __future__ import annotations

from tests.actors.kit import (
    CONVERSATION_ID,
    Stage,
    TestJournal,
    assert_replays,
    run_ready_tasks,
    wait_for_assembly,
)
from tests.conformance.ports.journal_subjects import unfinished
from tests.core.conversation.conversation_kit import call, text_answer
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.values import OperationKind
from wonder_server.core.errors import Fault, Reason


async def test_a_retry_delay_continues_after_a_restart() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    operation_id = await wait_for_assembly(stage)
    busy = Fault(reason=Reason.MODEL_UNAVAILABLE, message="Busy.", transient=True)
    stage.loop.report_failure(CONVERSATION_ID, operation_id, busy)
    await run_ready_tasks()
    await stage.loop.stop()
    restarted = Stage(journal)
    await restarted.loop.resume()
    await run_ready_tasks()
    assert restarted.model_calls() == []
    assert (restarted.loop.timer_count, restarted.loop.actor_count) == (1, 0)
    restarted.clock.now = journal.actors[CONVERSATION_ID].table("operations")[operation_id].ordinal
    restarted.loop.tell(CONVERSATION_ID, inputs.TimerFired(operation_id=operation_id))
    await run_ready_tasks()
    assert len(restarted.model_calls()) == 1
    await restarted.loop.stop()


async def test_a_store_that_cannot_be_read_at_the_start_is_read_later() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    await wait_for_assembly(stage)
    await stage.loop.stop()
    restarted = Stage(journal)
    journal.loads_fail = True
    await restarted.loop.resume()
    await run_ready_tasks()
    assert restarted.model_calls() == []
    journal.loads_fail = False
    await run_ready_tasks()
    assert len(restarted.model_calls()) == 1
    assert OperationKind.MODEL in {op.kind for op in restarted.state().operations.values()}


async def test_a_resumed_run_and_its_parent_find_each_other() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    operation_id = await wait_for_assembly(stage)
    result = text_answer("", call("flow"))
    stage.loop.tell(CONVERSATION_ID, inputs.ModelAnswered(operation_id=operation_id, result=result))
    await run_ready_tasks()
    flow = stage.run_commands()[-1]
    assert not flow.volatile
    stage.start(flow)
    await run_ready_tasks()
    await stage.loop.stop()
    restarted = Stage(journal)
    assert sorted(await unfinished(journal)) == sorted([CONVERSATION_ID, flow.run_id])
    await restarted.loop.resume()
    await run_ready_tasks()
    (task,) = restarted.tasks()
    assert restarted.run_commands() == []
    assert restarted.loop.peek(CONVERSATION_ID) is None, "the conversation waits on disk for its run"
    restarted.loop.report_success(flow.run_id, task.operation_id, {"x": 1})
    await run_ready_tasks()
    assert len(restarted.model_calls()) == 1
    await assert_replays(restarted, flow.run_id)
    await restarted.loop.stop()
