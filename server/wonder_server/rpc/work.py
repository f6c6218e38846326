"""``ExecutorService.Work``: the stream of a remote worker (feature H4).

One task reads what the worker says and tells the pool; the call itself writes what the pool has for the
worker. An answer that cannot be read (too large, too deep, a number that is none) fails its assignment and
no other; bytes that are no message end the stream, and so does whatever a worker may not say.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final, assert_never

from wonder.v1 import executor_service_pb2 as pb
from wonder.v1 import task_pb2
from wonder_server.core.commands import Scope
from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.trace import traceparent
from wonder_server.logs import logger
from wonder_server.rpc.calls import Requests
from wonder_server.rpc.faults import fault_from_proto, fault_to_proto
from wonder_server.rpc.fields import bounded, renamed, required
from wonder_server.rpc.names import Names
from wonder_server.rpc.payload import dict_to_struct, struct_to_dict
from wonder_server.rpc.stream_words import RECONNECT_AFTER_MS
from wonder_server.rpc.times import to_timestamp
from wonder_server.rpc.wire import text_at
from wonder_server.services.workers import (
    Assigned,
    Cancelled,
    Draining,
    Progress,
    Registration,
    Seat,
    Settled,
    Word,
    WorkerKind,
    Workers,
    check_registration,
)
from wonder_server.services.workers.registration import MAX_PROJECTS

_log = logger("rpc")

MAX_LEASES_A_HEARTBEAT: Final = 10_000
MAX_LEASE_ID: Final = 100
_MESSAGE_CHARACTERS: Final = 2_000
_OUTPUT_CHARACTERS: Final = 64 * 1024
_METADATA_ENTRIES: Final = 16
_MOST_RETRY_AFTER_MS: Final = 3_600_000
_SERVERS_OWN: Final = frozenset(
    {
        Reason.INTERNAL,
        Reason.MALFORMED_REQUEST,
        Reason.NOT_IMPLEMENTED,
        Reason.SERVER_DRAINING,
        Reason.SLOW_READER,
        Reason.STORAGE_UNAVAILABLE,
    }
)
"""Reasons that a worker cannot give, as they would say that this server is at fault. One that is not known,
or not given, is read as INTERNAL."""


async def work(workers: Workers, names: Names, requests: Requests, context: Any) -> None:
    """Serve one worker until it has left, is lost, or is sent away."""
    seat = workers.join(await _registered(workers, names, requests))
    reader = asyncio.create_task(_listen(workers, seat, requests))
    try:
        registered = pb.WorkerRegistered(
            worker_id=seat.id,
            heartbeat_interval_ms=workers.heartbeat_interval_ms,
            lease_ms=workers.lease_ms,
        )
        await context.write(pb.WorkResponse(registered=registered).SerializeToString())
        while (word := await seat.take()) is not None:
            try:
                response = _word(word)
            except WonderError as problem:
                if isinstance(word, Assigned):
                    workers.refused(seat, word.lease_id, problem.fault)
                    continue
                raise
            await context.write(response.SerializeToString())
    finally:
        reader.cancel()
        workers.gone(seat)


# --- what the worker says ---------------------------------------------------------------------------


async def _registered(workers: Workers, names: Names, requests: Requests) -> Registration:
    """The first message, looked up and checked."""
    try:
        async with asyncio.timeout(workers.lease_ms / 1000):
            first = await anext(requests, None)
    except TimeoutError:
        raise error(
            Reason.TIMEOUT, f"No `register` came for {workers.lease_ms} ms.", timeout_ms=str(workers.lease_ms)
        ) from None
    if not isinstance(first, pb.WorkRequest) or not first.HasField("register"):
        raise error(Reason.FIELD_INVALID, "The first message of a worker is `register`.", field="register")
    given = first.register
    registration = Registration(
        name=given.name,
        kinds=tuple(_kind(kind, f"register.kinds[{index}]") for index, kind in enumerate(given.kinds)),
        max_concurrency=given.max_concurrency if given.HasField("max_concurrency") else 1,
        projects=frozenset([await _project(names, key, at) for at, key in enumerate(given.project_ids)]),
    )
    # In a thread: schemas can be large.
    await asyncio.to_thread(check_registration, registration, workers.reserved)
    return registration


def _kind(given: pb.WorkerActionKind, path: str) -> WorkerKind:
    return WorkerKind(
        name=given.name,
        description=given.description,
        input_schema=struct_to_dict(given.input_schema, f"{path}.input_schema"),
        output_schema=struct_to_dict(given.output_schema, f"{path}.output_schema"),
        idempotent=given.idempotent,
        max_concurrency=given.max_concurrency,
    )


async def _project(names: Names, key: str, index: int) -> str:
    field = f"register.project_ids[{index}]"
    if index >= MAX_PROJECTS:
        raise error(Reason.FIELD_INVALID, f"A worker names at most {MAX_PROJECTS} projects.", field=field)
    with renamed({"": field, "project_id": field}):
        return await names.project_id(required(key, "project_id"))


async def _listen(workers: Workers, seat: Seat, requests: Requests) -> None:
    """Take what the worker says, in order. A worker that says no more is gone: it can settle nothing."""
    try:
        while True:
            await seat.wait_for_room()
            try:
                request = await anext(requests)
            except StopAsyncIteration:
                break
            except WonderError as problem:
                _unreadable(workers, seat, requests.refused, problem)
                requests.note(problem)
            else:
                _obey(workers, seat, request)
    except WonderError as problem:
        seat.end(problem)
    except Exception:
        _log.exception("worker_stream_failed", worker=seat.name)
        seat.end(error(Reason.INTERNAL, "Something went wrong inside the server."))
    workers.gone(seat)


def _obey(workers: Workers, seat: Seat, request: Any) -> None:
    """One message. Raises what ends the stream."""
    workers.heard(seat)
    match request.WhichOneof("item"):
        case "heartbeat":
            lease_ids = request.heartbeat.lease_ids
            if len(lease_ids) > MAX_LEASES_A_HEARTBEAT:
                raise error(
                    Reason.FIELD_INVALID,
                    f"A heartbeat names at most {MAX_LEASES_A_HEARTBEAT} leases.",
                    field="heartbeat.lease_ids",
                )
            workers.extend(seat, lease_ids)
        case "progress":
            workers.progress(seat, request.progress.lease_id, _progress(request.progress.progress))
        case "completed" as item:
            output = struct_to_dict(request.completed.output, "output")
            workers.completed(seat, _lease_id(request.completed, item), output)
        case "failed" as item:
            workers.failed(seat, _lease_id(request.failed, item), _failure(request.failed))
        case "drain":
            workers.leave(seat)
        case item:
            raise error(
                Reason.FIELD_INVALID,
                "After `register`, which comes once, a worker sends `heartbeat`, `progress`, `completed`, "
                "`failed` or `drain`.",
                field=item or "item",
            )


def _unreadable(workers: Workers, seat: Seat, data: bytes, problem: WonderError) -> None:
    """A message cannot be read. If it settles something, that has failed; else the stream ends."""
    for number in (pb.WorkRequest.COMPLETED_FIELD_NUMBER, pb.WorkRequest.FAILED_FIELD_NUMBER):
        lease_id = text_at(data, number, pb.AssignmentCompleted.LEASE_ID_FIELD_NUMBER)
        if lease_id and len(lease_id) <= MAX_LEASE_ID:
            workers.heard(seat)
            workers.refused(seat, lease_id, problem.fault)
            return
    raise problem


def _lease_id(settling: pb.AssignmentCompleted | pb.AssignmentFailed, item: str) -> str:
    # It goes back in the answer, so it may not be of any size.
    return bounded(settling.lease_id, f"{item}.lease_id", MAX_LEASE_ID)


def _failure(failed: pb.AssignmentFailed) -> Fault:
    """Why an assignment failed, in the worker's words, cut to a size that can be kept."""
    fault = fault_from_proto(failed.error)
    after = fault.retry_after_ms
    return replace(
        fault,
        reason=Reason.TASK_FAILED if fault.reason in _SERVERS_OWN else fault.reason,
        message=_words(fault.message).strip() or "The worker gave no reason.",
        field=_words(fault.field),
        metadata={
            _words(key): _words(value) for key, value in list(fault.metadata.items())[:_METADATA_ENTRIES]
        },
        retry_after_ms=None if after is None else min(max(after, 0), _MOST_RETRY_AFTER_MS),
    )


def _words(text: str) -> str:
    """Text of a worker that can be kept and shown."""
    return text[:_MESSAGE_CHARACTERS].replace("\0", "")


def _progress(given: task_pb2.Progress) -> Progress:
    # Neither comparison holds for NaN, which says as little as nothing.
    is_known = given.HasField("fraction") and 0 <= given.fraction <= 1
    return Progress(
        message=given.message[:_MESSAGE_CHARACTERS],
        fraction=given.fraction if is_known else None,
        output=given.output[:_OUTPUT_CHARACTERS],
    )


# --- what the worker is told ------------------------------------------------------------------------


def _word(word: Word) -> pb.WorkResponse:
    match word:
        case Assigned():
            return pb.WorkResponse(assignment=_assignment(word))
        case Cancelled():
            cancelled = pb.AssignmentCancelled(lease_id=word.lease_id, error=fault_to_proto(word.fault))
            return pb.WorkResponse(cancelled=cancelled)
        case Settled():
            settled = pb.AssignmentSettled(
                lease_id=word.lease_id,
                accepted=word.accepted,
                error=fault_to_proto(word.fault) if word.fault is not None else None,
            )
            return pb.WorkResponse(settled=settled)
        case Draining():
            draining = pb.WorkDraining(grace_ms=word.grace_ms, reconnect_after_ms=RECONNECT_AFTER_MS)
            return pb.WorkResponse(draining=draining)
        case _:
            assert_never(word)


def _assignment(word: Assigned) -> pb.Assignment:
    job = word.job
    return pb.Assignment(
        lease_id=word.lease_id,
        operation_id=job.operation_id,
        attempt=word.attempt,
        kind=job.kind,
        input=dict_to_struct(job.input),
        context=_context(job.context),
        deadline=to_timestamp(word.deadline_ms),
        traceparent=traceparent(job.context),
    )


def _context(scope: Scope) -> task_pb2.ExecutionContext:
    return task_pb2.ExecutionContext(
        project_id=scope.project_id,
        agent_id=scope.agent_id,
        conversation_id=scope.conversation_id,
        turn_id=scope.turn_id,
        run_id=scope.run_id,
    )
