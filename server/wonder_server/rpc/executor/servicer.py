"""``wonder.v1.ExecutorService``: execution of tasks on demand.

::

    request -> TaskCall (task pinned, input checked, context resolved) -> Execution -> result

An execution without a ``request_id`` belongs to its caller and is cancelled when the caller leaves. With one
it runs to its end, so that a repeated request gets its result; `RecentRequests` limits the number of results
kept. Work, the stream of remote workers, is in `worker_stream`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from wonder.v1 import executor_service_pb2 as pb
from wonder.v1 import task_pb2
from wonder_server.core.access.permissions import EXECUTE_ANYTHING
from wonder_server.core.definitions.specs import PinnedTask
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.ids import is_id, random_id
from wonder_server.core.json_types import JsonDict
from wonder_server.core.paths import check_work_branch
from wonder_server.core.task import plan
from wonder_server.ports.access import ByPrincipal
from wonder_server.ports.clock import Clock
from wonder_server.rpc.executor.executions import Execution
from wonder_server.rpc.executor.worker_stream import serve_worker
from wonder_server.rpc.server.authorization import require_context, require_permission
from wonder_server.rpc.server.call_pipeline import RequestStream
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import bounded, map_fault_fields, required
from wonder_server.rpc.shared.names import NameResolver
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.payload import struct_to_dict
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import idempotency_key
from wonder_server.rpc.shared.task_codec import (
    kind_to_proto,
    progress_to_proto,
    remote_kind_to_proto,
    result_to_proto,
    with_timeout,
)
from wonder_server.rpc.shared.trace_context import trace_from_metadata
from wonder_server.services.actions import ACTIONS, ActionKind, ExecutionContext
from wonder_server.services.idempotency import RecentRequests
from wonder_server.services.paging import page
from wonder_server.services.tasks.executor import Executor, Progress
from wonder_server.services.workers import WorkerPools

_CONTEXT_FIELDS: Final = {
    "": "context",
    **{name: f"context.{name}" for name in ("project_id", "agent_id", "conversation_id")},
}


class TaskSource(Protocol):
    """A source of tasks; ``services.catalog.Library`` implements it."""

    async def pin_task(self, ref: str) -> PinnedTask:
        """Return the task of a reference with all its dependencies. Raises DEFINITION_NOT_FOUND."""
        ...


class ConversationLookup(Protocol):
    """A lookup of conversations; ``actors.conversation.Conversations`` implements it."""

    async def get(self, conversation_id: str) -> object:
        """Return the conversation. Raises CONVERSATION_NOT_FOUND."""
        ...


@dataclass(frozen=True, slots=True)
class RequestLookups:
    """Sources of the resources that a request names, for one access scope."""

    tasks: TaskSource
    resolver: NameResolver
    conversations: ConversationLookup


async def _no_unavailable_kinds() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class LocalKinds:
    """Action kinds that this server executes itself."""

    kinds: Mapping[str, ActionKind] = field(default_factory=lambda: ACTIONS)
    unavailable: Callable[[], Awaitable[Mapping[str, str]]] = _no_unavailable_kinds
    """Returns the reason by name for each kind that this machine cannot execute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    """A decoded request to run a task, with its references resolved and its input checked."""

    task: PinnedTask
    input: JsonDict
    context: ExecutionContext


class ExecutorServicer:
    """Methods of the ExecutorService. Call `close` before the event loop ends."""

    def __init__(
        self,
        executor: Executor,
        lookups: ByPrincipal[RequestLookups],
        *,
        clock: Clock,
        local_kinds: LocalKinds | None = None,
        workers: WorkerPools | None = None,
    ) -> None:
        self._executor = executor
        self._lookups = lookups
        self._clock = clock
        self._local_kinds = local_kinds or LocalKinds()
        self._workers = workers
        self._recent = RecentRequests[Execution]()
        self._running: set[Execution] = set()

    @property
    def _own(self) -> RequestLookups:
        """The lookups for the principal of the call."""
        return self._lookups.of(current_principal.get())

    async def execute_task(
        self, request: pb.ExecuteTaskRequest, context: CallContext
    ) -> pb.ExecuteTaskResponse:
        if request.validate_only:
            call = await self._decode_call(request, idempotency_key(request))
            return pb.ExecuteTaskResponse(result=task_pb2.TaskResult(task=str(call.task.pin)))
        execution = await self._execution(request, trace_from_metadata(context))
        try:
            return pb.ExecuteTaskResponse(result=await execution.result())
        finally:
            execution.release()

    async def stream_task(
        self, request: pb.StreamTaskRequest, context: CallContext
    ) -> AsyncIterator[pb.StreamTaskResponse]:
        execution = await self._execution(request, trace_from_metadata(context))
        try:
            async for item in execution.steps():
                yield progress_to_proto(item)
            yield pb.StreamTaskResponse(result=await execution.result())
        finally:
            execution.release()

    async def list_action_kinds(
        self, request: pb.ListActionKindsRequest, _context: CallContext
    ) -> pb.ListActionKindsResponse:
        wanted = page_request(request)
        scope = ["action_kinds"]
        after, limit = wanted.cursor(scope, ""), wanted.limit()
        unavailable = await self._local_kinds.unavailable()
        kinds = sorted(
            (kind for kind in self.kinds(unavailable) if kind.name > after), key=lambda kind: kind.name
        )
        found = page(kinds[: limit + 1], limit, scope, lambda kind: kind.name)
        shown, token = await encode_page(found, lambda kind: kind)
        return pb.ListActionKindsResponse(action_kinds=shown, next_page_token=token)

    def kinds(self, unavailable: Mapping[str, str]) -> list[task_pb2.ActionKind]:
        """Return the action kinds of this server and its workers, unsorted.

        ``unavailable`` gives the reason by name for each kind that this machine cannot execute.
        """
        tenant = current_principal.get().tenant
        remote = self._workers.of(tenant).kinds() if self._workers is not None else []
        own = [
            kind_to_proto(kind, unavailable.get(kind.name, "")) for kind in self._local_kinds.kinds.values()
        ]
        return [*own, *map(remote_kind_to_proto, remote)]

    async def work(self, requests: RequestStream, context: CallContext) -> None:
        if self._workers is None:
            raise error(Reason.NOT_IMPLEMENTED, "This server does not accept workers.", method="Work")
        pool = self._workers.of(current_principal.get().tenant)
        await serve_worker(pool, self._own.resolver, requests, context)

    async def close(self) -> None:
        """Cancel the running executions, and wait until they have stopped."""
        await asyncio.gather(*(execution.cancel() for execution in self._running))

    async def _execution(
        self, request: pb.ExecuteTaskRequest | pb.StreamTaskRequest, trace_id: str
    ) -> Execution:
        """Return the execution of an earlier request with this key, or start one."""
        key = idempotency_key(request)
        if key is not None and (known := self._recent.find(key)) is not None:
            return known
        call = await self._decode_call(request, key)
        # The same request may have arrived during the lookup.
        if key is not None and (known := self._recent.find(key)) is not None:
            return known
        context = replace(call.context, trace_id=trace_id)
        return self._start_execution(dataclasses.replace(call, context=context), key)

    def _start_execution(self, call: TaskCall, key: IdempotencyKey | None) -> Execution:
        async def run(on_progress: Progress) -> task_pb2.TaskResult:
            began = self._clock.now_ms()
            outcome = await self._executor.execute(call.task, call.input, call.context, on_progress)
            return result_to_proto(call.task, outcome, max(self._clock.now_ms() - began, 0))

        if key is not None:
            self._recent.check_capacity()
        execution = Execution(run, outlives_callers=key is not None)
        if key is not None:
            execution.complete_slot_when_done(self._recent.reserve(key, execution))
        self._running.add(execution)
        execution.on_done(self._running.discard)
        return execution

    async def _decode_call(
        self, request: pb.ExecuteTaskRequest | pb.StreamTaskRequest, key: IdempotencyKey | None
    ) -> TaskCall:
        require_context(request.context)
        with map_fault_fields({"": "task_id"}):
            task = await self._own.tasks.pin_task(required(request.task_id, "task_id"))
        if step := deleting_step(task):
            require_permission(EXECUTE_ANYTHING, f"Step '{step}' of the task can delete.", "task_id")
        task = with_timeout(task, request.timeout_ms)
        input = struct_to_dict(request.input, "input")
        begun = plan.begin(task, input)
        if isinstance(begun, plan.Failed):
            raise WonderError(begun.fault)
        # A repeated request has the key of the first, also after a restart, so its effects happen once.
        operation_key = f"exec_{key.fingerprint}" if key else random_id("exec", self._clock.now_ms())
        return TaskCall(
            task=task, input=input, context=await self._decode_context(request.context, operation_key)
        )

    async def _decode_context(self, given: task_pb2.ExecutionContext, key: str) -> ExecutionContext:
        for prefix, value, path in (
            ("turn", given.turn_id, "context.turn_id"),
            ("run", given.run_id, "context.run_id"),
        ):
            if value and not is_id(prefix, value):
                raise error(
                    Reason.FIELD_INVALID, f"{path} '{value[:80]}' is not the id of a {prefix}.", field=path
                )
        with map_fault_fields(_CONTEXT_FIELDS):
            project_id = await self._own.resolver.project_id(bounded(given.project_id, "project_id"))
            agent_id = bounded(given.agent_id, "agent_id")
            if agent_id:
                agent_id = await self._own.resolver.agent_id(agent_id)
            if given.conversation_id:
                await self._own.conversations.get(bounded(given.conversation_id, "conversation_id"))
        return ExecutionContext(
            project_id=project_id,
            agent_id=agent_id,
            conversation_id=given.conversation_id,
            turn_id=given.turn_id,
            run_id=given.run_id,
            key=key,
            principal=current_principal.get().text,
            branch=check_work_branch(given.branch, "context.branch") if given.branch else "",
        )


def deleting_step(task: PinnedTask) -> str:
    """Return the id of the task's first step that can delete others' work, or ""."""
    for step in task.spec.steps:
        if step.action is None:
            continue
        has_delete = "delete" in step.action.config or "delete" in step.input_mapping
        if step.action.kind == "memory.delete" or (step.action.kind == "artifact.write" and has_delete):
            return step.id
    return ""
