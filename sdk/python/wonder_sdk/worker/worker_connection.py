"""One connection of a worker: its assignments and their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import betterproto2
import grpc.aio

from wonder_sdk._proto.google import protobuf
from wonder_sdk._proto.wonder import v1
from wonder_sdk.client import Client
from wonder_sdk.json_types import JsonDict
from wonder_sdk.transport.reconnect import Backoff
from wonder_sdk.transport.stream_queue import StreamQueue
from wonder_sdk.values import from_struct
from wonder_sdk.worker.action_error import ActionError
from wonder_sdk.worker.schemas import read, write
from wonder_sdk.worker.worker_files import WorkerFiles

_log = logging.getLogger("wonder_sdk.worker.worker")

OpenStream: TypeAlias = Callable[
    [AsyncIterator[v1.WorkRequest]], grpc.aio.StreamStreamCall[v1.WorkRequest, v1.WorkResponse]
]

# Default limit of a server. A larger message would break the stream.
_MAX_RESULT_BYTES = 4 * 1024 * 1024
# Maximum of unsent messages. Above it the worker drops progress.
_MAX_BACKLOG = 1_000
# Maximum wait for the actions that a lost connection cancels.
_STOP_SECONDS = 5.0


class WorkerContext:
    """The assignment of an action.

    ``operation_id`` is the same in every attempt: use it as the idempotency key of an effect. ``attempt``
    counts from 1. The server cancels the action at ``deadline``. The ids name the project, agent,
    conversation, turn and run that the action belongs to; an id is empty if there is none.
    """

    def __init__(
        self, assignment: v1.Assignment, send: Callable[[v1.WorkRequest], None], client: Client
    ) -> None:
        scope = assignment.context or v1.ExecutionContext()
        self.kind = assignment.kind
        self.operation_id = assignment.operation_id
        self.attempt = assignment.attempt
        self.deadline: datetime | None = assignment.deadline
        self.traceparent = assignment.traceparent
        self.project_id = scope.project_id
        self.agent_id = scope.agent_id
        self.conversation_id = scope.conversation_id
        self.turn_id = scope.turn_id
        self.run_id = scope.run_id
        self.cancelled = False
        """True if the server discards the result. The action is also cancelled at its next ``await``."""
        self._lease_id = assignment.lease_id
        self._send = send
        self._files = WorkerFiles(client, self.project_id, self.operation_id)

    def progress(self, message: str = "", fraction: float | None = None, output: str = "") -> None:
        """Report progress: ``fraction`` from 0 to 1, ``output`` as text to append to the output."""
        progress = v1.Progress(message=message, fraction=fraction, output=output)
        report = v1.AssignmentProgress(lease_id=self._lease_id, progress=progress)
        self._send(v1.WorkRequest(progress=report))

    async def read_file(self, file_id: str) -> bytes:
        """Return the content of a file of the assignment's project.

        Treat the content as hostile. Raises `ActionError` (FILE_NOT_FOUND) for a file that was deleted, or of
        another project: a model chose the id, and the worker may reach further projects.
        """
        return await self._files.read(file_id)

    async def store_file(self, content: bytes, *, name: str, media_type: str = "") -> JsonDict:
        """Store a file in the assignment's project; return ``{type, file_id, media_type, name, size_bytes}``.

        Put it anywhere in the result: an agent's model is shown the file. Without ``media_type`` the server
        finds the type in the content. A repeated attempt that stores the same content gets the same file.
        Raises `ActionError` for a type that is not the content's, and for a file that is too large.
        """
        return await self._files.store(content, name, media_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A function that executes a kind of action, with the type of its input."""

    kind: v1.WorkerActionKind
    handler: Callable[..., Awaitable[object]]
    input_type: object
    wants_context: bool


class WorkerConnection:
    """One Work stream, from ``register`` to its end."""

    def __init__(
        self,
        registration: v1.RegisterWorker,
        actions: Mapping[str, Action],
        backoff: Backoff,
        client: Client,
    ) -> None:
        self.reconnect_after_ms = 0
        self._registration = registration
        self._actions = actions
        self._backoff = backoff
        self._client = client
        self._outgoing: StreamQueue[v1.WorkRequest] = StreamQueue()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._contexts: dict[str, WorkerContext] = {}
        # The server does not count cancelled actions that are still stopping.
        self._slots = asyncio.Semaphore(registration.max_concurrency or 1)

    async def run(self, open_: OpenStream) -> None:
        """Execute assignments until the stream ends. After `drain` it ends with the last assignment.

        Raises `WonderError`.
        """
        self._outgoing.put(v1.WorkRequest(register=self._registration))
        call = open_(self._send())
        heartbeats: asyncio.Task[None] | None = None
        try:
            async for response in call:
                match betterproto2.which_one_of(response, "item"):
                    case "registered", v1.WorkerRegistered() as registered:
                        self._backoff.reset()
                        _log.info("worker %s registered as %s", self._registration.name, registered.worker_id)
                        heartbeats = asyncio.create_task(
                            self._heartbeat(registered.heartbeat_interval_ms / 1000)
                        )
                    case "assignment", v1.Assignment() as assignment:
                        self._begin(assignment)
                    case "cancelled", v1.AssignmentCancelled(lease_id=lease_id):
                        self._cancel(lease_id)
                    case "settled", v1.AssignmentSettled(accepted=False) as refused:
                        reason = refused.error.message if refused.error else "no reason given"
                        _log.warning("the server rejected a result: %s", reason)
                    case "draining", v1.WorkDraining(reconnect_after_ms=self.reconnect_after_ms):
                        pass
                    case _:
                        pass
        finally:
            if heartbeats is not None:
                heartbeats.cancel()
            await self._cancel_all()
            self._outgoing.end()
            call.cancel()

    def drain(self) -> None:
        """Stop accepting assignments. The server ends the stream after the last one."""
        self._outgoing.put(v1.WorkRequest(drain=v1.DrainWorker()))

    async def _send(self) -> AsyncIterator[v1.WorkRequest]:
        while True:
            try:
                request = await self._outgoing.get()
            except StopAsyncIteration:
                return
            yield request

    async def _heartbeat(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            heartbeat = v1.WorkHeartbeat(lease_ids=list(self._running))
            self._outgoing.put(v1.WorkRequest(heartbeat=heartbeat))

    # --- assignments ------------------------------------------------------------------------------

    def _begin(self, assignment: v1.Assignment) -> None:
        lease_id = assignment.lease_id
        context = WorkerContext(assignment, self._send_progress, self._client)
        self._contexts[lease_id] = context
        task = asyncio.create_task(self._execute(assignment, context), name=f"{assignment.kind} {lease_id}")
        self._running[lease_id] = task
        task.add_done_callback(lambda _: self._remove(lease_id))

    def _remove(self, lease_id: str) -> None:
        self._running.pop(lease_id, None)
        self._contexts.pop(lease_id, None)

    def _cancel(self, lease_id: str) -> None:
        task = self._running.get(lease_id)
        if task is not None:
            self._contexts[lease_id].cancelled = True
            task.cancel()

    async def _cancel_all(self) -> None:
        """Cancel all actions. Their leases ended with the stream, so the server discards their results."""
        tasks = list(self._running.values())
        for lease_id in list(self._running):
            self._cancel(lease_id)
        if tasks and (await asyncio.wait(tasks, timeout=_STOP_SECONDS))[1]:
            _log.warning(
                "actions still run %g s after their cancellation; their results are discarded", _STOP_SECONDS
            )

    async def _execute(self, assignment: v1.Assignment, context: WorkerContext) -> None:
        lease_id = assignment.lease_id
        try:
            async with self._slots:
                answer = _completed(lease_id, await self._run_action(assignment, context))
        except ActionError as problem:
            answer = _failed(lease_id, problem.fault)
        except asyncio.CancelledError:
            if context.cancelled:
                raise
            # The server did not cancel it. The action, or code that it awaited, raised the error.
            answer = _failed(lease_id, _unexpected_fault(assignment.kind))
        except Exception:
            _log.exception("the action %s failed (%s)", assignment.kind, assignment.operation_id)
            answer = _failed(lease_id, _unexpected_fault(assignment.kind))
        if not context.cancelled:
            self._outgoing.put(answer)

    async def _run_action(self, assignment: v1.Assignment, context: WorkerContext) -> object:
        action = self._actions.get(assignment.kind)
        if action is None:
            raise ActionError(
                f"This worker has no action '{assignment.kind}'. Register it or check its name."
            )
        given = read(action.input_type, from_struct(assignment.input))
        arguments = (given, context) if action.wants_context else (given,)
        return await action.handler(*arguments)

    def _send_progress(self, request: v1.WorkRequest) -> None:
        if len(self._outgoing) < _MAX_BACKLOG:
            self._outgoing.put(request)


def _completed(lease_id: str, result: object) -> v1.WorkRequest:
    """Return the message with an action's result. None becomes an empty object. Raises `ActionError`."""
    output = write({} if result is None else result)
    if not isinstance(output, dict):
        raise ActionError(f"The action returned {type(result).__name__}. It must return an object or None.")
    try:
        request = v1.WorkRequest(
            completed=v1.AssignmentCompleted(lease_id=lease_id, output=protobuf.Struct.from_dict(output))
        )
        size = len(bytes(request))
    except Exception:  # the library raises errors of many classes
        raise ActionError("The action returned a value that JSON cannot represent.") from None
    if size > _MAX_RESULT_BYTES:
        raise ActionError(
            f"The output has {size} bytes; the maximum is {_MAX_RESULT_BYTES}.",
            reason=v1.ErrorReason.PAYLOAD_TOO_LARGE,
        )
    return request


def _failed(lease_id: str, fault: v1.Fault) -> v1.WorkRequest:
    return v1.WorkRequest(failed=v1.AssignmentFailed(lease_id=lease_id, error=fault))


def _unexpected_fault(kind: str) -> v1.Fault:
    """Return the fault of an exception, without its text, which only the worker's log contains."""
    return v1.Fault(
        reason=v1.ErrorReason.TASK_FAILED,
        message=f"The action '{kind}' failed unexpectedly. See the worker's log.",
    )
