"""WatchRun through a real server, a real loop and real stores. The tests end the tasks."""

from __future__ import annotations

from tests.actors.run_kit import RunStage
from tests.rpc.coordinator.coordinator_kit import gated, start, watched
from tests.rpc.rpc_kit import rejected
from wonder.v1 import coordinator_service_pb2 as pb
from wonder.v1 import run_pb2, task_pb2
from wonder.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from wonder_server.actors.streaming.items import NodeProgress
from wonder_server.rpc.coordinator.stream import stream_run
from wonder_server.services.tasks.executor import StepProgress, StepTrace

# --- WatchRun ---------------------------------------------------------------------------------------


async def test_every_event_is_sent_once_from_any_cursor(
    stage: RunStage, stub: CoordinatorServiceStub
) -> None:
    gate = await gated(stage, stub)
    frames = aiter(stub.WatchRun(pb.WatchRunRequest(run_id=gate.run_id)))
    live: list[run_pb2.RunEvent] = []
    while not live or live[-1].name != "gate.opened":
        live.append((await anext(frames)).event)
    await stub.ResolveGate(
        pb.ResolveGateRequest(
            gate_id=gate.id, decision=pb.GATE_DECISION_APPROVE, shown_hash=gate.shown_hash, user_id="ann"
        )
    )
    await stage.finish("b")
    live += [frame.event async for frame in frames if frame.HasField("event")]
    assert [event.sequence for event in live] == list(range(1, len(live) + 1))
    assert live[-1].name == "workflow_completed" and live[-1].workflow_completed.last_sequence == len(live)
    assert {"gate.opened", "gate.resolved"} <= {event.name for event in live}
    for after in (0, 1, len(live) - 1, len(live)):
        assert await watched(stub, gate.run_id, after) == live[after:]
        assert await watched(stub, gate.run_id, after, group_events=True) == live[after:]
    beyond = pb.WatchRunRequest(run_id=gate.run_id, after_sequence=len(live) + 1)
    assert await rejected(stub.WatchRun(beyond).read()) == ("CURSOR_OUT_OF_RANGE", ["after_sequence"])
    negative = pb.WatchRunRequest(run_id=gate.run_id, after_sequence=-1)
    assert await rejected(stub.WatchRun(negative).read()) == ("FIELD_INVALID", ["after_sequence"])
    assert stage.streams.count == 0


async def test_an_end_during_the_attach_is_sent(stage: RunStage) -> None:
    view = await stage.start()
    attachment = await stage.runs.attach(view.run.id, view.head.sequence)
    await stage.finish("a")
    ended = await stage.runs.lookup.snapshot(view.run.id)
    frames = [
        pb.WatchRunResponse.FromString(frame) async for frame in stream_run(attachment, ended.head.sequence)
    ]
    attachment.close()
    assert [word.event.sequence for word in frames[:-1]] == [3, 4, 5]
    assert frames[-2].event.name == "workflow_completed" and frames[-1].HasField("end")


async def test_progress_is_sent_on_request(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    run = await start(stub)
    plain = aiter(stub.WatchRun(pb.WatchRunRequest(run_id=run.id)))
    eager = aiter(stub.WatchRun(pb.WatchRunRequest(run_id=run.id, include_progress=True)))
    for frames in (plain, eager):
        while (await anext(frames)).event.sequence < run.last_sequence:
            pass
    began = StepTrace(step_id="s", kind="http", position=0, attempt=1, status="running")
    half = StepProgress(step_id="s", message="Half.", fraction=0.5, output="…")
    for item in (began, half):
        stage.streams.publish_progress(run.id, NodeProgress(node_id="a", execution_id="op_1", item=item))
    await stage.finish("a")
    assert all(not word.HasField("progress") for word in [word async for word in plain])
    first, second, *rest = [frame async for frame in eager]
    assert first.progress.step.status == task_pb2.STEP_STATUS_RUNNING
    assert (first.progress.node_id, first.progress.node_execution_id) == ("a", "op_1")
    assert second.progress.progress == task_pb2.Progress(message="Half.", fraction=0.5, output="…")
    assert rest and all(not word.HasField("progress") for word in rest)
