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
from tests.core.conversation.conversation_kit import call, text_answer
from wonder_server.core.conversation.model import inputs
from wonder_server.core.conversation.model.values import OperationKind
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.frozen import replace as changed


async def test_a_retry_delay_continues_after_a_restart() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    operation_id = await wait_for_assembly(stage)
    busy = Fault(reason=Reason.MODEL_UNAVAILABLE, message="Busy.", transient=True)
    stage.loop.report_failure(CONVERSATION_ID, operation_id, busy)
    await run_ready_tasks()
    await stage.loop.stop()
    again = Stage(journal)
    again.loop.resume(await journal.unfinished())
    await run_ready_tasks()
    assert again.model_calls() == []
    assert again.loop.timer_count == 1
    again.clock.now = again.state().operations[operation_id].wake_ms
    again.loop.tell(CONVERSATION_ID, inputs.TimerFired(operation_id=operation_id))
    await run_ready_tasks()
    assert len(again.model_calls()) == 1
    await again.loop.stop()


async def test_a_store_that_cannot_be_read_at_the_start_is_read_later() -> None:
    journal = TestJournal()
    stage = Stage(journal)
    await wait_for_assembly(stage)
    await stage.loop.stop()
    again = Stage(journal)
    journal.loads_fail = True
    again.loop.resume([CONVERSATION_ID])
    await run_ready_tasks()
    assert again.model_calls() == []
    journal.loads_fail = False
    await run_ready_tasks()
    assert len(again.model_calls()) == 1
    assert OperationKind.MODEL in {op.kind for op in again.state().operations.values()}


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
    again = Stage(journal)
    assert sorted(await journal.unfinished()) == sorted([CONVERSATION_ID, flow.run_id])
    again.loop.resume(await journal.unfinished())
    await run_ready_tasks()
    (repeated,), (task,) = again.run_commands(), again.tasks()
    assert repeated == changed(flow, fresh=False)
    again.start(repeated)
    again.loop.report_success(flow.run_id, task.operation_id, {"x": 1})
    await run_ready_tasks()
    assert len(again.model_calls()) == 1
    await assert_replays(again, flow.run_id)
    await again.loop.stop()
