"""``ExecutorService.Work``: the stream of a remote worker.

One task reads the worker's messages and passes them to the pool; the call itself writes the pool's messages
to the worker. An answer that cannot be decoded (too large, too deep, an invalid number) fails its assignment
only. Bytes that are not a message end the stream, and so does any message that the protocol does not allow.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final, assert_never, cast

from wonder.v1 import executor_service_pb2 as pb
from wonder.v1 import task_pb2
from wonder_server.core.actor.commands import Scope
from wonder_server.core.actor.trace import traceparent
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.logs import logger
from wonder_server.rpc.server.call_pipeline import RequestStream
from wonder_server.rpc.server.decode_errors import text_at_path
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.faults import fault_from_proto, fault_to_proto
from wonder_server.rpc.shared.fields import bounded, map_fault_fields, required
from wonder_server.rpc.shared.names import NameResolver
from wonder_server.rpc.shared.payload import dict_to_struct, struct_to_dict
from wonder_server.rpc.shared.stream_frames import RECONNECT_AFTER_MS
from wonder_server.rpc.shared.times import to_timestamp
from wonder_server.services.workers import (
    AssignmentMessage,
    Cancelled,
    Draining,
    Progress,
    Registration,
    Settled,
    WorkerKind,
    WorkerMessage,
    WorkerPool,
    WorkerSession,
    check_registration,
)
from wonder_server.services.workers.registration import MAX_PROJECTS

_log = logger("rpc")

MAX_HEARTBEAT_LEASES: Final = 10_000
MAX_LEASE_ID_CHARS: Final = 100
_MESSAGE_CHARACTERS: Final = 2_000
_OUTPUT_CHARACTERS: Final = 64 * 1024
_METADATA_ENTRIES: Final = 16
_MAX_RETRY_AFTER_MS: Final = 3_600_000
_SERVER_REASONS: Final = frozenset(
    {
        Reason.INTERNAL,
        Reason.MALFORMED_REQUEST,
        Reason.NOT_IMPLEMENTED,
        Reason.SERVER_DRAINING,
        Reason.SLOW_READER,
        Reason.STORAGE_UNAVAILABLE,
    }
)
"""Reasons that a worker cannot report, because they blame this server.

The server reads an unknown or missing reason as INTERNAL.
"""


async def serve_worker(
    workers: WorkerPool, resolver: NameResolver, requests: RequestStream, context: CallContext
) -> None:
    """Serve one worker until it disconnects, is lost, or is rejected."""
    session = workers.join(await _read_registration(workers, resolver, requests))
    reader = asyncio.create_task(_read_messages(workers, session, requests))
    try:
        registered = pb.WorkerRegistered(
            worker_id=session.id,
            heartbeat_interval_ms=workers.heartbeat_interval_ms,
            lease_ms=workers.lease_ms,
        )
        await context.write(pb.WorkResponse(registered=registered).SerializeToString())
        while (message := await session.next_message()) is not None:
            try:
                response = _message_to_proto(message)
            except WonderError as problem:
                if isinstance(message, AssignmentMessage):
                    workers.unreadable(session, message.lease_id, problem.fault)
                    continue
                raise
            await context.write(response.SerializeToString())
    finally:
        reader.cancel()
        workers.disconnected(session)


# --- messages from the worker ------------------------------------------------------------------------


async def _read_registration(
    workers: WorkerPool, resolver: NameResolver, requests: RequestStream
) -> Registration:
    """Read the worker's first message, resolve its references and check it."""
    try:
        async with asyncio.timeout(workers.lease_ms / 1000):
            first = await anext(requests, None)
    except TimeoutError:
        raise error(
            Reason.TIMEOUT,
            f"The worker sent no `register` within {workers.lease_ms} ms.",
            timeout_ms=str(workers.lease_ms),
        ) from None
    if not isinstance(first, pb.WorkRequest) or not first.HasField("register"):
        raise error(
            Reason.FIELD_INVALID, "The first message of a worker must be `register`.", field="register"
        )
    given = first.register
    registration = Registration(
        name=given.name,
        kinds=tuple(
            _kind_from_proto(kind, f"register.kinds[{index}]") for index, kind in enumerate(given.kinds)
        ),
        max_concurrency=given.max_concurrency if given.HasField("max_concurrency") else 1,
        projects=frozenset(
            [await _resolve_project(resolver, key, at) for at, key in enumerate(given.project_ids)]
        ),
    )
    # Check in a thread: schemas can be large.
    await asyncio.to_thread(check_registration, registration, workers.reserved)
    return registration


def _kind_from_proto(given: pb.WorkerActionKind, path: str) -> WorkerKind:
    return WorkerKind(
        name=given.name,
        description=given.description,
        input_schema=struct_to_dict(given.input_schema, f"{path}.input_schema"),
        output_schema=struct_to_dict(given.output_schema, f"{path}.output_schema"),
        idempotent=given.idempotent,
        max_concurrency=given.max_concurrency,
    )


async def _resolve_project(resolver: NameResolver, key: str, index: int) -> str:
    field = f"register.project_ids[{index}]"
    if index >= MAX_PROJECTS:
        raise error(Reason.FIELD_INVALID, f"The worker names more than {MAX_PROJECTS} projects.", field=field)
    with map_fault_fields({"": field, "project_id": field}):
        return await resolver.project_id(required(key, "project_id"))


async def _read_messages(workers: WorkerPool, session: WorkerSession, requests: RequestStream) -> None:
    """Handle the worker's messages in order. After the last message the worker counts as disconnected."""
    try:
        while True:
            await session.wait_for_capacity()
            try:
                request = cast(pb.WorkRequest, await anext(requests))
            except StopAsyncIteration:
                break
            except WonderError as problem:
                _reject_unreadable(workers, session, requests.rejected, problem)
                requests.log_rejection(problem)
            else:
                _handle_message(workers, session, request)
    except WonderError as problem:
        session.end(problem)
    except Exception:
        _log.exception("worker_stream_failed", worker=session.name)
        session.end(error(Reason.INTERNAL, "Internal error. See the server log."))
    workers.disconnected(session)


def _handle_message(workers: WorkerPool, session: WorkerSession, request: pb.WorkRequest) -> None:
    """Handle one message. Raises the error that ends the stream."""
    workers.record_heartbeat(session)
    match request.WhichOneof("item"):
        case "heartbeat":
            lease_ids = request.heartbeat.lease_ids
            if len(lease_ids) > MAX_HEARTBEAT_LEASES:
                raise error(
                    Reason.FIELD_INVALID,
                    f"The heartbeat names {len(lease_ids)} leases; the maximum is {MAX_HEARTBEAT_LEASES}.",
                    field="heartbeat.lease_ids",
                )
            workers.extend(session, lease_ids)
        case "progress":
            workers.progress(
                session, request.progress.lease_id, _progress_from_proto(request.progress.progress)
            )
        case "completed" as item:
            output = struct_to_dict(request.completed.output, "output")
            workers.completed(session, _lease_id(request.completed, item), output)
        case "failed" as item:
            workers.failed(session, _lease_id(request.failed, item), _fault_from_proto(request.failed))
        case "drain":
            workers.drain_worker(session)
        case item:
            raise error(
                Reason.FIELD_INVALID,
                f"A worker cannot send `{item or 'an empty message'}` after `register`. Use `heartbeat`, "
                "`progress`, `completed`, `failed` or `drain`.",
                field=item or "item",
            )


def _reject_unreadable(
    workers: WorkerPool, session: WorkerSession, data: bytes, problem: WonderError
) -> None:
    """Fail the assignment that an undecodable message settles, or raise ``problem`` to end the stream."""
    for number in (pb.WorkRequest.COMPLETED_FIELD_NUMBER, pb.WorkRequest.FAILED_FIELD_NUMBER):
        lease_id = text_at_path(data, number, pb.AssignmentCompleted.LEASE_ID_FIELD_NUMBER)
        if lease_id and len(lease_id) <= MAX_LEASE_ID_CHARS:
            workers.record_heartbeat(session)
            workers.unreadable(session, lease_id, problem.fault)
            return
    raise problem


def _lease_id(settling: pb.AssignmentCompleted | pb.AssignmentFailed, item: str) -> str:
    # The answer repeats the id, so its size is limited.
    return bounded(settling.lease_id, f"{item}.lease_id", MAX_LEASE_ID_CHARS)


def _fault_from_proto(failed: pb.AssignmentFailed) -> Fault:
    """Decode the reason of a failed assignment, cut to a size that can be stored."""
    fault = fault_from_proto(failed.error)
    after = fault.retry_after_ms
    return replace(
        fault,
        reason=Reason.TASK_FAILED if fault.reason in _SERVER_REASONS else fault.reason,
        message=_clean_text(fault.message).strip() or "The worker gave no reason.",
        field=_clean_text(fault.field),
        metadata={
            _clean_text(key): _clean_text(value)
            for key, value in list(fault.metadata.items())[:_METADATA_ENTRIES]
        },
        retry_after_ms=None if after is None else min(max(after, 0), _MAX_RETRY_AFTER_MS),
    )


def _clean_text(text: str) -> str:
    """Return a worker's text in a form that can be stored and shown."""
    return text[:_MESSAGE_CHARACTERS].replace("\0", "")


def _progress_from_proto(given: task_pb2.Progress) -> Progress:
    # Both comparisons are false for NaN, which counts as unknown.
    is_known = given.HasField("fraction") and 0 <= given.fraction <= 1
    return Progress(
        message=given.message[:_MESSAGE_CHARACTERS],
        fraction=given.fraction if is_known else None,
        output=given.output[:_OUTPUT_CHARACTERS],
    )


# --- messages to the worker -------------------------------------------------------------------------


def _message_to_proto(message: WorkerMessage) -> pb.WorkResponse:
    match message:
        case AssignmentMessage():
            return pb.WorkResponse(assignment=_assignment_to_proto(message))
        case Cancelled():
            cancelled = pb.AssignmentCancelled(lease_id=message.lease_id, error=fault_to_proto(message.fault))
            return pb.WorkResponse(cancelled=cancelled)
        case Settled():
            settled = pb.AssignmentSettled(
                lease_id=message.lease_id,
                accepted=message.accepted,
                error=fault_to_proto(message.fault) if message.fault is not None else None,
            )
            return pb.WorkResponse(settled=settled)
        case Draining():
            draining = pb.WorkDraining(grace_ms=message.grace_ms, reconnect_after_ms=RECONNECT_AFTER_MS)
            return pb.WorkResponse(draining=draining)
        case _:
            assert_never(message)


def _assignment_to_proto(message: AssignmentMessage) -> pb.Assignment:
    job = message.job
    return pb.Assignment(
        lease_id=message.lease_id,
        operation_id=job.operation_id,
        attempt=message.attempt,
        kind=job.kind,
        input=dict_to_struct(job.input),
        context=_context_to_proto(job.context),
        deadline=to_timestamp(message.deadline_ms),
        traceparent=traceparent(job.context),
    )


def _context_to_proto(scope: Scope) -> task_pb2.ExecutionContext:
    return task_pb2.ExecutionContext(
        project_id=scope.project_id,
        agent_id=scope.agent_id,
        conversation_id=scope.conversation_id,
        turn_id=scope.turn_id,
        run_id=scope.run_id,
    )
