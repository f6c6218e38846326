"""Ids and short calls, shared by the tests of CoordinatorService."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import ParseDict

from tests.actors.run_kit import RunStage
from tests.rpc.rpc_kit import FakeNameResolver
from wonder.v1 import conversation_service_pb2, run_pb2
from wonder.v1 import coordinator_service_pb2 as pb
from wonder.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub

SERVICE = "wonder.v1.CoordinatorService"
SOON = 60_000
ABSENT = "run_01HF7YAT0000000000000000A1"
CONVERSATION = "conv_01HF7YAT000000000000000010"
TURN = "turn_01HF7YAT000000000000000010"


class TwoProjects(FakeNameResolver):
    """A catalog that also has the project ``other``, whose id is ``proj_other``."""

    async def project_id(self, key: str) -> str:
        return "proj_other" if key in ("other", "proj_other") else await super().project_id(key)


def ask(request: Any, **fields: object) -> Any:
    """Return the request with these fields; payloads are plain JSON."""
    return ParseDict(fields, request())


async def start(stub: CoordinatorServiceStub, workflow: str = "team/one", **fields: object) -> run_pb2.Run:
    answer = await stub.StartRun(ask(pb.StartRunRequest, workflow_id=workflow, **fields))
    return answer.run  # type: ignore[no-any-return]


async def get(stub: CoordinatorServiceStub, run_id: str) -> run_pb2.Run:
    answer = await stub.GetRun(pb.GetRunRequest(run_id=run_id))
    return answer.run  # type: ignore[no-any-return]


async def gated(stage: RunStage, stub: CoordinatorServiceStub, **fields: object) -> run_pb2.Gate:
    stage.clock.now += 1000
    run = await start(stub, "team/gate", **fields)
    await stage.finish("a", {"diff": "+1"}, run_id=run.id)
    (gate,) = (await get(stub, run.id)).pending_gates
    return gate  # type: ignore[no-any-return]


async def listed(stub: CoordinatorServiceStub, **fields: object) -> list[str]:
    """Return the ids of all runs of a list, page by page."""
    ids: list[str] = []
    token = ""
    while True:
        page = await stub.ListRuns(ask(pb.ListRunsRequest, page_size=2, page_token=token, **fields))
        ids += [run.id for run in page.runs]
        token = page.next_page_token
        if not token:
            return ids


async def watched(
    stub: CoordinatorServiceStub, run_id: str, after: int = 0, *, group_events: bool = False
) -> list[run_pb2.RunEvent]:
    """Return the events that WatchRun sends for a run that has ended."""
    request = pb.WatchRunRequest(run_id=run_id, after_sequence=after, group_events=group_events)
    frames = [frame async for frame in stub.WatchRun(request)]
    assert frames[-1].end.reason == conversation_service_pb2.STREAM_END_REASON_COMPLETED
    if group_events:
        assert len(frames) <= 2, "all of the past is one message"
        return [event for word in frames[:-1] for event in word.events.events or [word.event]]
    return [word.event for word in frames[:-1]]
