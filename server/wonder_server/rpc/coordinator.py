"""The CoordinatorService: decode, ask the actors, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from wonder.v1 import conversation_service_pb2, task_pb2
from wonder.v1 import coordinator_service_pb2 as pb
from wonder_server.actors.attachment import Attachment, CaughtUp
from wonder_server.actors.replay import replay
from wonder_server.actors.runs import Runs
from wonder_server.actors.streams import Closed, Quiet
from wonder_server.core.commands import Scope
from wonder_server.core.errors import Reason, error
from wonder_server.ports.journal import Event
from wonder_server.rpc import run_codec as codec
from wonder_server.rpc.names import Names
from wonder_server.rpc.payload import json_to_value, struct_to_dict
from wonder_server.rpc.stream_words import draining, heartbeat, slow_reader


class CoordinatorServicer:
    """See ``coordinator_service.proto``. RPCs that are not here answer NOT_IMPLEMENTED."""

    def __init__(self, runs: Runs, names: Names) -> None:
        self._runs = runs
        self._names = names

    async def start_run(self, request: pb.StartRunRequest, _context: Any) -> pb.StartRunResponse:
        if not request.workflow_id:
            raise error(Reason.FIELD_INVALID, "Name the workflow.", field="workflow_id")
        if request.timeout_ms:
            raise error(
                Reason.NOT_IMPLEMENTED, "Timeouts of runs are not implemented yet.", field="timeout_ms"
            )
        if request.HasField("metadata"):
            raise error(Reason.NOT_IMPLEMENTED, "Metadata of runs is not implemented yet.", field="metadata")
        scope = await self._scope(request.context)
        run_input = struct_to_dict(request.input, "input")
        if request.validate_only:
            await self._runs.check(request.workflow_id, run_input)
            return pb.StartRunResponse()
        run = await self._runs.start(request.workflow_id, run_input, scope, request.request_id)
        return pb.StartRunResponse(run=codec.run(run))

    async def get_run(self, request: pb.GetRunRequest, _context: Any) -> pb.GetRunResponse:
        view = await self._runs.view(request.run_id)
        return pb.GetRunResponse(run=codec.run(view.run, view))

    async def cancel_run(self, request: pb.CancelRunRequest, _context: Any) -> pb.CancelRunResponse:
        run = await self._runs.cancel(request.run_id, request.reason, request.etag, request.request_id)
        return pb.CancelRunResponse(run=codec.run(run))

    async def watch_run(self, request: pb.WatchRunRequest, _context: Any) -> AsyncIterator[bytes]:
        if request.after_sequence < 0:
            raise error(Reason.FIELD_INVALID, "A sequence is not negative.", field="after_sequence")
        attachment = await self._runs.attach(request.run_id, request.after_sequence)
        try:
            async for word in _said(attachment, await self._has_ended(request.run_id)):
                yield word
        finally:
            attachment.close()

    async def replay_run(self, request: pb.ReplayRunRequest, _context: Any) -> pb.ReplayRunResponse:
        entries = await self._runs.entries(request.run_id)
        verdict = replay(self._runs.planner, entries)
        answer = pb.ReplayRunResponse(identical=verdict.difference is None, step_count=verdict.steps)
        if verdict.difference is not None:
            found = verdict.difference
            answer.first_difference.step = found.step
            answer.first_difference.input = found.input
            for side, decided in (("recorded", found.recorded), ("planned", found.planned)):
                listed = getattr(answer.first_difference, side)
                listed.values.extend(json_to_value(text) for text in decided)
        return answer

    async def _has_ended(self, run_id: str) -> bool:
        return (await self._runs.get(run_id)).completed_ms > 0

    async def _scope(self, context: task_pb2.ExecutionContext) -> Scope:
        agent_id = await self._names.agent_id(context.agent_id) if context.agent_id else ""
        for field in ("conversation_id", "turn_id", "run_id", "branch"):
            if getattr(context, field):
                raise error(
                    Reason.NOT_IMPLEMENTED,
                    f"`{field}` is not implemented yet.",
                    field=f"context.{field}",
                )
        return Scope(project_id=await self._names.project_id(context.project_id), agent_id=agent_id)


async def _said(attachment: Attachment, ended: bool) -> AsyncIterator[bytes]:
    """Everything that a watcher is sent, encoded, up to the last word. Raises SLOW_READER."""
    async for item in attachment.items():
        if isinstance(item, Event):
            if item.wire is None:
                item.wire = pb.WatchRunResponse(event=codec.event(item)).SerializeToString()
            yield item.wire
            if item.emit.kind == "run_ended":
                yield _end(attachment, conversation_service_pb2.END_REASON_COMPLETED)
                return
        elif isinstance(item, CaughtUp):
            if ended:
                # The client has seen the end already; there is nothing to wait for.
                yield _end(attachment, conversation_service_pb2.END_REASON_COMPLETED)
                return
        elif isinstance(item, Quiet):
            alive = heartbeat(attachment.sequence)
            yield pb.WatchRunResponse(heartbeat=alive).SerializeToString()
        elif isinstance(item, Closed):
            if item.why == "slow":
                raise slow_reader(attachment.sequence)
            yield pb.WatchRunResponse(draining=draining("runs")).SerializeToString()
            yield _end(attachment, conversation_service_pb2.END_REASON_DRAINING)


def _end(attachment: Attachment, reason: Any) -> bytes:
    end = conversation_service_pb2.End(reason=reason, last_sequence=attachment.sequence)
    return pb.WatchRunResponse(end=end).SerializeToString()
