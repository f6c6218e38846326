"""``wonder.v1.ExecutorService``: tasks on demand (document 5; features H1 to H4).

::

    request -> Call (task pinned, input checked, context resolved) -> Execution -> result

An execution without a ``request_id`` belongs to its caller: when the caller goes away it is cancelled.
With one it runs to its end, so that whoever asks again finds its result; `Recent` bounds how many are
kept. Work, the stream of remote workers, is in `rpc.work`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from wonder.v1 import executor_service_pb2 as pb
from wonder.v1 import task_pb2
from wonder_server.core.definitions.specs import PinnedTask
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace
from wonder_server.core.ids import is_id, random_id
from wonder_server.core.paths import check_work_branch
from wonder_server.core.task import plan
from wonder_server.ports.clock import Clock
from wonder_server.rpc.calls import Requests
from wonder_server.rpc.executions import Execution
from wonder_server.rpc.fields import bounded, renamed, required
from wonder_server.rpc.names import Names
from wonder_server.rpc.once import Recent, once_of
from wonder_server.rpc.pages import encoded
from wonder_server.rpc.payload import struct_to_dict
from wonder_server.rpc.rights import ADMIN, NO_RIGHTS, Rights
from wonder_server.rpc.task_codec import (
    kind_to_proto,
    remote_kind_to_proto,
    result_to_proto,
    told_to_proto,
    within,
)
from wonder_server.rpc.traces import brought
from wonder_server.rpc.work import work
from wonder_server.services.actions import ACTIONS, ActionKind, ExecutionContext
from wonder_server.services.catalog_writes import Once
from wonder_server.services.executor import Executor, Progress
from wonder_server.services.paging import PageRequest, page
from wonder_server.services.workers import Workers

_IN_CONTEXT: Final = {
    "": "context",
    **{name: f"context.{name}" for name in ("project_id", "agent_id", "conversation_id")},
}


class Tasks(Protocol):
    """Where tasks come from; ``services.library.Library`` is one."""

    async def pin_task(self, ref: str) -> PinnedTask:
        """The task that a reference leads to, with all that it needs. DEFINITION_NOT_FOUND."""
        ...


class Conversations(Protocol):
    """Knows which conversations there are; ``actors.conversations.Conversations`` is one."""

    async def get(self, conversation_id: str) -> object:
        """CONVERSATION_NOT_FOUND unless there is such a conversation."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is to be run: all that a request says, looked up and checked."""

    task: PinnedTask
    input: dict[str, Any]
    context: ExecutionContext


class ExecutorServicer:
    """The methods of the service. `close` it before the loop ends."""

    def __init__(
        self,
        executor: Executor,
        *,
        tasks: Tasks,
        names: Names,
        conversations: Conversations,
        clock: Clock,
        kinds: Mapping[str, ActionKind] = ACTIONS,
        workers: Workers | None = None,
        missing: Callable[[], Awaitable[Mapping[str, str]]] | None = None,
        rights: Rights = NO_RIGHTS,
    ) -> None:
        """``missing`` says of which kinds this server cannot carry out, by name, why that is."""
        self._executor = executor
        self._tasks = tasks
        self._names = names
        self._conversations = conversations
        self._clock = clock
        self._kinds = list(kinds.values())
        self._workers = workers
        self._missing = missing
        self._rights = rights
        self._recent = Recent[Execution]()
        self._running: set[Execution] = set()

    async def execute_task(self, request: pb.ExecuteTaskRequest, context: Any) -> pb.ExecuteTaskResponse:
        if request.validate_only:
            call = await self._call(request, once_of(request))
            return pb.ExecuteTaskResponse(result=task_pb2.TaskResult(task=str(call.task.pin)))
        execution = await self._execution(request, brought(context))
        try:
            return pb.ExecuteTaskResponse(result=await execution.result())
        finally:
            execution.leave()

    async def stream_task(
        self, request: pb.StreamTaskRequest, context: Any
    ) -> AsyncIterator[pb.StreamTaskResponse]:
        execution = await self._execution(request, brought(context))
        try:
            async for told in execution.steps():
                yield told_to_proto(told)
            yield pb.StreamTaskResponse(result=await execution.result())
        finally:
            execution.leave()

    async def list_action_kinds(
        self, request: pb.ListActionKindsRequest, _context: Any
    ) -> pb.ListActionKindsResponse:
        asked = PageRequest(size=request.page_size, token=request.page_token)
        scope = ["action_kinds"]
        after, limit = asked.cursor(scope, ""), asked.limit()
        missing = await self._missing() if self._missing is not None else {}
        kinds = sorted(
            (kind for kind in self.kinds(missing) if kind.name > after), key=lambda kind: kind.name
        )
        found = page(kinds[: limit + 1], limit, scope, lambda kind: kind.name)
        shown, token = await encoded(found, lambda kind: kind)
        return pb.ListActionKindsResponse(action_kinds=shown, next_page_token=token)

    def kinds(self, missing: Mapping[str, str]) -> list[task_pb2.ActionKind]:
        """The action kinds that steps can use, in no particular order; ``missing`` ones not now."""
        remote = self._workers.kinds() if self._workers is not None else []
        own = [kind_to_proto(kind, missing.get(kind.name, "")) for kind in self._kinds]
        return [*own, *map(remote_kind_to_proto, remote)]

    async def work(self, requests: Requests, context: Any) -> None:
        if self._workers is None:
            raise error(Reason.NOT_IMPLEMENTED, "This server takes no workers.", method="Work")
        await work(self._workers, self._names, requests, context)

    async def close(self) -> None:
        """Cancel what still runs, and wait until it has stopped."""
        await asyncio.gather(*(execution.cancel() for execution in self._running))

    async def _execution(
        self, request: pb.ExecuteTaskRequest | pb.StreamTaskRequest, trace_id: str
    ) -> Execution:
        """A new execution, or that of the same request before."""
        once = once_of(request)
        if once is not None and (known := self._recent.find(once)) is not None:
            return known
        call = await self._call(request, once)
        # Looking up took time: it may have come again.
        if once is not None and (known := self._recent.find(once)) is not None:
            return known
        context = replace(call.context, trace_id=trace_id)
        return self._begin(dataclasses.replace(call, context=context), once)

    def _begin(self, call: Call, once: Once | None) -> Execution:
        async def run(on_progress: Progress) -> task_pb2.TaskResult:
            began = self._clock.now_ms()
            outcome = await self._executor.execute(call.task, call.input, call.context, on_progress)
            return result_to_proto(call.task, outcome, max(self._clock.now_ms() - began, 0))

        if once is not None:
            self._recent.make_room()
        execution = Execution(run, outlives_callers=once is not None)
        if once is not None:
            execution.keep(self._recent.keep(once, execution))
        self._running.add(execution)
        execution.when_over(self._running.discard)
        return execution

    async def _call(self, request: pb.ExecuteTaskRequest | pb.StreamTaskRequest, once: Once | None) -> Call:
        self._rights.context(request.context)
        with renamed({"": "task_id"}):
            task = await self._tasks.pin_task(required(request.task_id, "task_id"))
        if step := deleting_step(task):
            self._rights.demand(ADMIN, f"Step '{step}' of the task deletes.", "task_id")
        task = within(task, request.timeout_ms)
        input = struct_to_dict(request.input, "input")
        begun = plan.begin(task, input)
        if isinstance(begun, plan.Failed):
            raise WonderError(begun.fault)
        # A request that is sent again, even after a restart, has the effects of the first one.
        key = f"exec_{once.fingerprint}" if once else random_id("exec", self._clock.now_ms())
        return Call(task=task, input=input, context=await self._context(request.context, key))

    async def _context(self, given: task_pb2.ExecutionContext, key: str) -> ExecutionContext:
        for prefix, value, field in (
            ("turn", given.turn_id, "context.turn_id"),
            ("run", given.run_id, "context.run_id"),
        ):
            if value and not is_id(prefix, value):
                raise error(Reason.FIELD_INVALID, f"{field} is no id of a {prefix}.", field=field)
        with renamed(_IN_CONTEXT):
            project_id = await self._names.project_id(bounded(given.project_id, "project_id"))
            agent_id = bounded(given.agent_id, "agent_id")
            if agent_id:
                agent_id = await self._names.agent_id(agent_id)
            if given.conversation_id:
                await self._conversations.get(bounded(given.conversation_id, "conversation_id"))
        return ExecutionContext(
            project_id=project_id,
            agent_id=agent_id,
            conversation_id=given.conversation_id,
            turn_id=given.turn_id,
            run_id=given.run_id,
            key=key,
            branch=check_work_branch(given.branch, "context.branch") if given.branch else "",
        )


def deleting_step(task: PinnedTask) -> str:
    """Return the id of the task's first step that can delete what others wrote; "" if there is none."""
    for step in task.spec.steps:
        if step.action is None:
            continue
        says_delete = "delete" in step.action.config or "delete" in step.input_mapping
        if step.action.kind == "memory.delete" or (step.action.kind == "artifact.write" and says_delete):
            return step.id
    return ""
