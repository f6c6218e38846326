"""Decoding of requests about runs: references resolved, values checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from wonder.v1 import coordinator_service_pb2 as pb
from wonder.v1 import run_pb2, task_pb2
from wonder_server.actors.archive.archiver import Archive
from wonder_server.actors.conversation.lookup import conversation_not_found, turn_not_found
from wonder_server.actors.runs.forks import ForkRequest
from wonder_server.actors.runs.lookup import RunView, run_not_found
from wonder_server.actors.runs.runs import Runs, StartRunRequest
from wonder_server.core import ids
from wonder_server.core.actor import trace
from wonder_server.core.actor.commands import Scope
from wonder_server.core.actor.gates import Gate, GateStatus, ResolveGate
from wonder_server.core.conversation.model.values import Conversation, Turn
from wonder_server.core.coordinator.model.inputs import ReceiveSignal
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace
from wonder_server.core.json_types import JsonValue
from wonder_server.core.paths import check_work_branch
from wonder_server.core.schema import payloads
from wonder_server.ports.records import Query
from wonder_server.rpc.server.authorization import resolve_user
from wonder_server.rpc.shared.common_codec import enum_names
from wonder_server.rpc.shared.fields import bounded, map_fault_fields, required
from wonder_server.rpc.shared.names import NameResolver
from wonder_server.rpc.shared.payload import struct_to_dict, value_to_json
from wonder_server.rpc.shared.times import from_timestamp
from wonder_server.services.catalog.agents import check_metadata
from wonder_server.services.paging import PageRequest

MAX_WAIT_MS: Final = 300_000
MAX_TIMEOUT_MS: Final = 100 * 365 * 24 * 3600 * 1000
MAX_PAYLOAD_BYTES: Final = 1 << 20
"""Maximum size of a signal's payload and of a gate's answer."""
MAX_COMMENT_CHARS: Final = 10_000
"""Maximum characters of a comment or a reason."""

_SIGNAL: Final = re.compile(r"[A-Za-z0-9_]{1,64}\Z")
_CONTEXT_FIELDS: Final = {
    name: f"context.{name}" for name in ("project_id", "agent_id", "conversation_id", "run_id")
}


class RunRequests:
    """Decodes requests whose references must be resolved."""

    def __init__(self, runs: Runs, resolver: NameResolver, archive: Archive) -> None:
        self._runs = runs
        self._records = runs.records
        self._resolver = resolver
        self._archive = archive

    async def start_request(self, request: pb.StartRunRequest, trace_id: str = "") -> StartRunRequest:
        """Decode a request to start a run.

        Raises FIELD_INVALID, PAYLOAD_TOO_LARGE, and …_NOT_FOUND for the resources that the context names.
        """
        metadata = struct_to_dict(request.metadata, "metadata")
        check_metadata(metadata, "metadata")
        return StartRunRequest(
            workflow=required(request.workflow_id, "workflow_id"),
            input=struct_to_dict(request.input, "input"),
            scope=await self._scope(request.context),
            metadata=metadata,
            timeout_ms=_milliseconds(request.timeout_ms, "timeout_ms", MAX_TIMEOUT_MS),
            trace_id=trace_id,
        )

    async def runs_query(self, request: pb.ListRunsRequest) -> Query:
        """Decode the filter of ListRuns. Raises DEFINITION_NOT_FOUND, PROJECT_NOT_FOUND or FIELD_INVALID."""
        fields: list[tuple[str, str]] = []
        if request.workflow_id:
            with map_fault_fields({"": "workflow_id"}):
                definition_id, pinned = await self._runs.resolve_workflow(
                    bounded(request.workflow_id, "workflow_id")
                )
            fields.append(("workflow_id", definition_id))
            if pinned:
                fields.append(("workflow_ref", pinned))
        if request.project_id:
            fields.append(("scope.project_id", await self._project(request.project_id)))
        parent = bounded(request.parent_run_id, "parent_run_id")
        if parent or not (request.include_children or request.conversation_id):
            fields.append(("parent.actor_id", parent))
        return Query(
            table="runs",
            parent=bounded(request.conversation_id, "conversation_id"),
            fields=tuple(fields),
            statuses=enum_names(run_pb2.RunStatus, "RUN_STATUS", request.statuses, "statuses"),
            start_ms=max(from_timestamp(request.start_time, "start_time"), 0),
            end_ms=_exclusive_end_ms(request.end_time, "end_time"),
        )

    async def find_runs(self, query: Query) -> list[RunView]:
        """Return the runs that match ``query``, those of an archived conversation too. Raises
        STORAGE_UNAVAILABLE."""
        if not query.parent:
            return await self._runs.lookup.views(query)
        async with self._archive.on_disk(query.parent):
            return await self._runs.lookup.views(query)

    async def gates_query(self, request: pb.ListGatesRequest) -> Query:
        """Decode the filter of ListGates.

        Raises RUN_NOT_FOUND, CONVERSATION_NOT_FOUND, PROJECT_NOT_FOUND or FIELD_INVALID.
        """
        actor_id = request.run_id
        if request.conversation_id:
            if request.run_id:
                raise error(
                    Reason.FIELD_INVALID,
                    "A gate belongs to a run or to a conversation. Set one of run_id and conversation_id.",
                    field="conversation_id",
                )
            actor_id = bounded(request.conversation_id, "conversation_id")
            if not ids.is_id("conv", actor_id) or not await self._records.get(
                "conversations", actor_id, actor_id
            ):
                raise conversation_not_found(actor_id)
        elif request.run_id:
            await self._runs.lookup.run(request.run_id)
        gate_id = bounded(request.gate_id, "gate_id")
        user_id = bounded(request.user_id, "user_id")
        statuses = enum_names(run_pb2.GateStatus, "GATE_STATUS", request.statuses, "statuses")
        return Query(
            table="gates",
            id=gate_id,
            actor=actor_id,
            parent=await self._project(request.project_id) if request.project_id else "",
            statuses=statuses or (() if gate_id else (GateStatus.PENDING.value,)),
            allowed=(("user_ids", user_id),) if user_id else (),
            newest_first=False,
        )

    async def find_gates(self, query: Query) -> list[Gate]:
        """Return the gates that match ``query``, those of an archived conversation too. Raises
        STORAGE_UNAVAILABLE."""
        if not query.actor.startswith("conv_"):
            return await self._runs.gates.find(query)
        async with self._archive.on_disk(query.actor):
            return await self._runs.gates.find(query)

    async def _project(self, key: str) -> str:
        return await self._resolver.project_id(bounded(key, "project_id"))

    # --- the context of a run -------------------------------------------------------------------

    async def _scope(self, context: task_pb2.ExecutionContext) -> Scope:
        """Resolve the resources that a context names.

        A context without a project takes that of its conversation or run. With a project, both must belong to
        it.
        """
        branch = check_work_branch(context.branch, "context.branch") if context.branch else ""
        agent_id, project_id = "", ""
        with map_fault_fields(_CONTEXT_FIELDS):
            if context.agent_id:
                agent_id = await self._resolver.agent_id(bounded(context.agent_id, "agent_id"))
            if context.project_id:
                project_id = await self._project(context.project_id)
            scope = Scope(project_id=project_id, agent_id=agent_id, branch=branch)
            if context.conversation_id or context.turn_id:
                scope = await self._in_conversation(scope, context)
            if context.run_id:
                run_scope = (await self._runs.lookup.run(context.run_id)).scope
                if scope.project_id not in ("", run_scope.project_id):
                    raise run_not_found(context.run_id)
                scope = replace(
                    scope, project_id=run_scope.project_id, trace_id=trace.scope_trace_id(run_scope)
                )
        return scope if scope.project_id else replace(scope, project_id=await self._resolver.project_id(""))

    async def _in_conversation(self, scope: Scope, context: task_pb2.ExecutionContext) -> Scope:
        conversation_id, turn_id = context.conversation_id, context.turn_id
        if turn_id:
            turn = await self._turn(turn_id, conversation_id)
            conversation_id, scope = turn.conversation_id, replace(scope, trace_id=turn.trace_id)
        found: Conversation | None = None
        if ids.is_id("conv", conversation_id):
            found = await self._records.get("conversations", conversation_id, conversation_id)
        if found is None or scope.project_id not in ("", found.project_id):
            raise conversation_not_found(conversation_id)
        return replace(scope, project_id=found.project_id, conversation_id=conversation_id, turn_id=turn_id)

    async def _turn(self, turn_id: str, conversation_id: str) -> Turn:
        found: Turn | None = None
        if ids.is_id("turn", turn_id) and (not conversation_id or ids.is_id("conv", conversation_id)):
            async with self._archive.on_disk(conversation_id):
                found = await self._records.get("turns", turn_id, conversation_id)
        if found is None:
            raise turn_not_found(turn_id, conversation_id, "context.turn_id")
        return found


# --- requests without references ------------------------------------------------------------------------


def wait_ms_of(request: pb.StartRunRequest) -> int:
    """Return the time to wait for the run's end, in milliseconds. Raises FIELD_INVALID."""
    return _milliseconds(request.wait_ms, "wait_ms", MAX_WAIT_MS)


def comment_of(text: str, field: str) -> str:
    """Return a user's text. Raises FIELD_INVALID if it is too long."""
    return bounded(text, field, MAX_COMMENT_CHARS)


def signal_from_proto(request: pb.SignalRunRequest) -> ReceiveSignal:
    """Decode a signal. Raises FIELD_INVALID, PAYLOAD_TOO_LARGE or PERMISSION_DENIED."""
    given = request.signal
    if not _SIGNAL.match(given.name):
        raise error(
            Reason.FIELD_INVALID,
            f"signal.name '{given.name[:80]}' is not a valid name. Use 1 to 64 of a-z, A-Z, 0-9 and '_'.",
            field="signal.name",
        )
    payload = value_to_json(given.payload, "signal.payload")
    _check_size(payload, "signal.payload")
    return ReceiveSignal(name=given.name, payload=payload, user_id=_user(given.user_id, "signal.user_id"))


def decision_from_proto(request: pb.ResolveGateRequest) -> ResolveGate:
    """Decode the decision on a gate. Raises FIELD_INVALID, PAYLOAD_TOO_LARGE or PERMISSION_DENIED."""
    if request.decision == pb.GATE_DECISION_UNSPECIFIED:
        raise error(Reason.FIELD_INVALID, "decision is required. Use APPROVE or REJECT.", field="decision")
    answer = struct_to_dict(request.answer, "answer") if request.HasField("answer") else None
    _check_size(answer, "answer")
    return ResolveGate(
        gate_id=required(request.gate_id, "gate_id"),
        approve=request.decision == pb.GATE_DECISION_APPROVE,
        shown_hash=required(request.shown_hash, "shown_hash"),
        answer=answer,
        comment=comment_of(request.comment, "comment"),
        user_id=_user(request.user_id, "user_id"),
    )


def fork_request_from_proto(request: pb.ForkRunRequest) -> ForkRequest:
    """Decode a request to fork a run. Raises FIELD_INVALID or CURSOR_OUT_OF_RANGE."""
    point = request.WhichOneof("point")
    if point is None:
        raise error(
            Reason.FIELD_INVALID,
            "The fork point is missing. Set after_sequence or before_node_execution.",
            field="after_sequence",
        )
    position = getattr(request, point)
    if position < 0:
        raise error(Reason.FIELD_INVALID, f"{point} is {position}. It must not be negative.", field=point)
    if position == 0 and point == "before_node_execution":
        raise error(
            Reason.FIELD_INVALID, f"{point} is 0. Ordinals of node executions begin at 1.", field=point
        )
    if position == 0:
        raise error(Reason.CURSOR_OUT_OF_RANGE, f"{point} is 0. The events of a run begin at 1.", field=point)
    if request.workflow_revision < 0:
        raise error(
            Reason.FIELD_INVALID,
            f"workflow_revision is {request.workflow_revision}. It must not be negative.",
            field="workflow_revision",
        )
    return ForkRequest(
        run_id=request.run_id,
        after_sequence=request.after_sequence,
        before_execution=request.before_node_execution,
        input=struct_to_dict(request.input, "input") if request.HasField("input") else None,
        state=struct_to_dict(request.state, "state") if request.HasField("state") else None,
        revision=request.workflow_revision,
    )


def row_cursor(wanted: PageRequest, scope: Sequence[object]) -> tuple[int, str] | None:
    """Return the time and the id of the row after which the page begins. Raises PAGE_TOKEN_INVALID."""
    match wanted.cursor(scope, []):
        case []:
            return None
        case [int(at_ms), str(row_id)]:
            return at_ms, row_id
        case _:
            raise error(
                Reason.PAGE_TOKEN_INVALID,
                "page_token is not valid. Use the next_page_token of an earlier answer.",
                field="page_token",
            )


def _user(given: str, field: str) -> str:
    """Return the named user, or else the caller. Raises FIELD_INVALID or PERMISSION_DENIED."""
    return resolve_user(bounded(given, field), field)


def _check_size(payload: JsonValue, field: str) -> None:
    fault = payloads.check(payload, field=field, max_bytes=MAX_PAYLOAD_BYTES)
    if fault is not None:
        raise WonderError(fault)


def _milliseconds(given: int, field: str, max_ms: int) -> int:
    if not 0 <= given <= max_ms:
        raise error(
            Reason.FIELD_INVALID, f"{field} is {given}. Use a number between 0 and {max_ms}.", field=field
        )
    return given


def _exclusive_end_ms(timestamp: Timestamp, field: str) -> int:
    """Return an exclusive upper bound; 0 means none.

    A time before 1970 becomes the first millisecond of 1970, which is before all runs.
    """
    found = from_timestamp(timestamp, field)
    return found if found >= 0 else 1
