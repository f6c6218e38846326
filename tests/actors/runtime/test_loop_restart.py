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
    restarted = Stage(journal)
    restarted.loop.resume(await journal.unfinished())
    await run_ready_tasks()
    assert restarted.model_calls() == []
    assert restarted.loop.timer_count == 1
    restarted.clock.now = restarted.state().operations[operation_id].wake_ms
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
    restarted.loop.resume([CONVERSATION_ID])
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
    assert sorted(await journal.unfinished()) == sorted([CONVERSATION_ID, flow.run_id])
    restarted.loop.resume(await journal.unfinished())
    await run_ready_tasks()
    (repeated,), (task,) = restarted.run_commands(), restarted.tasks()
    assert repeated == changed(flow, fresh=False)
    restarted.start(repeated)
    restarted.loop.report_success(flow.run_id, task.operation_id, {"x": 1})
    await run_ready_tasks()
    assert len(restarted.model_calls()) == 1
    await assert_replays(restarted, flow.run_id)
    await restarted.loop.stop()
