"""The CoordinatorService: decode, call the actors, encode."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

from wonder.v1 import coordinator_service_pb2 as pb
from wonder_server.actors.archive.archiver import Archive
from wonder_server.actors.runs.lookup import RunView
from wonder_server.actors.runs.runs import Runs
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.access import ByPrincipal
from wonder_server.ports.scoped import ScopedAccounts
from wonder_server.rpc.coordinator import codec
from wonder_server.rpc.coordinator.requests import (
    RunRequests,
    comment_of,
    decision_from_proto,
    fork_request_from_proto,
    row_cursor,
    signal_from_proto,
    wait_ms_of,
)
from wonder_server.rpc.coordinator.stream import stream_run
from wonder_server.rpc.server.authorization import require_context
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import bounded
from wonder_server.rpc.shared.names import NameResolver
from wonder_server.rpc.shared.pages import PAGE_BYTES, page_from_rows, page_request
from wonder_server.rpc.shared.payload import json_to_value
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import call_origin, message_origin
from wonder_server.rpc.shared.task_codec import gate_to_proto
from wonder_server.rpc.shared.trace_context import trace_from_metadata

MAX_DECISION_CHARS = 20_000
"""Maximum characters of a decision that a replay shows."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunParts:
    """Entry points of the actors that the CoordinatorService calls, names and the usage of runs, for one
    access scope."""

    runs: Runs
    names: NameResolver
    archive: Archive
    accounts: ScopedAccounts | None = None


class CoordinatorServicer:
    """Methods of the CoordinatorService; see ``coordinator_service.proto``."""

    def __init__(self, parts: ByPrincipal[RunParts]) -> None:
        self._parts = parts

    @property
    def _runs(self) -> Runs:
        """The entry points for the principal of the call."""
        return self._parts.of(current_principal.get()).runs

    @property
    def _requests(self) -> RunRequests:
        """The decoding of requests for the principal of the call."""
        own = self._parts.of(current_principal.get())
        return RunRequests(own.runs, own.names, own.archive)

    # --- start ----------------------------------------------------------------------------------

    async def start_run(self, request: pb.StartRunRequest, context: CallContext) -> pb.StartRunResponse:
        wait_ms = wait_ms_of(request)
        require_context(request.context)
        origin = message_origin(request)
        try:
            starting = await self._requests.start_request(request, trace_from_metadata(context))
        except WonderError:
            # What the request names may have been deleted since it was sent first.
            view = None if request.validate_only else await self._runs.started_before(origin, wait_ms=wait_ms)
            if view is None:
                raise
            return pb.StartRunResponse(run=codec.run_to_proto(view))
        if request.validate_only:
            await self._runs.check_start(starting, origin)
            return pb.StartRunResponse()
        view = await self._runs.start(starting, origin, wait_ms=wait_ms)
        return pb.StartRunResponse(run=codec.run_to_proto(view))

    async def fork_run(self, request: pb.ForkRunRequest, _context: CallContext) -> pb.ForkRunResponse:
        view = await self._runs.forks.fork(fork_request_from_proto(request), call_origin(request.request_id))
        return pb.ForkRunResponse(run=codec.run_to_proto(view))

    # --- reading --------------------------------------------------------------------------------

    async def get_run(self, request: pb.GetRunRequest, _context: CallContext) -> pb.GetRunResponse:
        lookup = self._runs.lookup
        view = await lookup.with_details(request.run_id)
        message = codec.run_to_proto(view)
        accounts = self._parts.of(current_principal.get()).accounts
        if accounts is not None:
            found = await accounts.accounts([request.run_id])
            codec.set_run_usage(message, found.get(request.run_id))
        page = view.details.executions if view.details is not None else []
        while page and codec.add_executions(message, page):
            page = await lookup.executions(request.run_id, page[-1].ordinal)
        return pb.GetRunResponse(run=message)

    async def list_runs(self, request: pb.ListRunsRequest, _context: CallContext) -> pb.ListRunsResponse:
        wanted = page_request(request)
        requests = self._requests
        query = await requests.runs_query(request)
        scope, limit = ["runs", repr(query)], wanted.limit()
        query = dataclasses.replace(
            query, after=row_cursor(wanted, scope), limit=limit + 1, max_bytes=PAGE_BYTES
        )
        found = await requests.find_runs(query)
        runs, token = await page_from_rows(found, limit, scope, _row_position, codec.run_to_proto)
        return pb.ListRunsResponse(runs=runs, next_page_token=token)

    async def watch_run(self, request: pb.WatchRunRequest, _context: CallContext) -> AsyncIterator[bytes]:
        if request.after_sequence < 0:
            raise error(
                Reason.FIELD_INVALID,
                f"after_sequence is {request.after_sequence}. It must not be negative.",
                field="after_sequence",
            )
        attachment = await self._runs.attach(
            request.run_id, request.after_sequence, wants_progress=request.include_progress
        )
        try:
            # Read the run after attaching: an end between the two would be missed otherwise.
            view = await self._runs.lookup.snapshot(request.run_id)
            end_sequence = view.head.sequence if view.has_ended else 0
            async for frame in stream_run(attachment, end_sequence, grouping=request.group_events):
                yield frame
        finally:
            attachment.close()

    # --- control --------------------------------------------------------------------------------

    async def cancel_run(self, request: pb.CancelRunRequest, _context: CallContext) -> pb.CancelRunResponse:
        reason = comment_of(request.reason, "reason")
        view = await self._runs.cancel(
            request.run_id, reason, bounded(request.etag, "etag"), call_origin(request.request_id)
        )
        return pb.CancelRunResponse(run=codec.run_to_proto(view))

    async def signal_run(self, request: pb.SignalRunRequest, _context: CallContext) -> pb.SignalRunResponse:
        sequence = await self._runs.signal(
            request.run_id, signal_from_proto(request), call_origin(request.request_id)
        )
        return pb.SignalRunResponse(sequence=sequence)

    async def list_gates(self, request: pb.ListGatesRequest, _context: CallContext) -> pb.ListGatesResponse:
        wanted = page_request(request)
        requests = self._requests
        query = await requests.gates_query(request)
        scope, limit = ["gates", repr(query)], wanted.limit()
        query = dataclasses.replace(
            query, after=row_cursor(wanted, scope), limit=limit + 1, max_bytes=PAGE_BYTES
        )
        found = await requests.find_gates(query)
        gates, token = await page_from_rows(
            found, limit, scope, lambda gate: [gate.created_ms, gate.id], gate_to_proto
        )
        return pb.ListGatesResponse(gates=gates, next_page_token=token)

    async def resolve_gate(
        self, request: pb.ResolveGateRequest, _context: CallContext
    ) -> pb.ResolveGateResponse:
        gate = await self._runs.gates.resolve(decision_from_proto(request), call_origin(request.request_id))
        return pb.ResolveGateResponse(gate=gate_to_proto(gate))

    # --- replay ---------------------------------------------------------------------------------

    async def replay_run(self, request: pb.ReplayRunRequest, _context: CallContext) -> pb.ReplayRunResponse:
        result = await self._runs.replay(request.run_id)
        response = pb.ReplayRunResponse(identical=result.difference is None, step_count=result.steps)
        if result.difference is not None:
            found = result.difference
            response.first_difference.step = found.step
            response.first_difference.input = found.input
            for side, decisions in (("recorded", found.recorded), ("planned", found.planned)):
                listed = getattr(response.first_difference, side)
                listed.values.extend(json_to_value(text[:MAX_DECISION_CHARS]) for text in decisions)
        return response


def _row_position(view: RunView) -> list[int | str]:
    return [view.run.created_ms, view.run.id]
