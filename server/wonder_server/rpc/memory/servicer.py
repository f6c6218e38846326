"""``wonder.v1.MemoryService``: the memories of agents.

A ``request_id`` is part of the key under which a memory is stored, so a repeated write, even after a restart,
returns the memory that the first one wrote. Changes and deletions store it in their commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from wonder.v1 import memory_service_pb2 as pb
from wonder_server.core.errors import Reason, error
from wonder_server.core.ids import is_id
from wonder_server.ports.memories import Request
from wonder_server.rpc.memory.codec import (
    change_from_proto,
    draft_from_proto,
    filter_from_proto,
    hit_to_proto,
    memory_to_proto,
    weights_from_proto,
)
from wonder_server.rpc.server.authorization import SEARCH_ALL, ScopeGrants
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import map_fault_fields, required
from wonder_server.rpc.shared.names import NameResolver
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import (
    IdempotentRequest,
    RecentRequests,
    RequestSlot,
    idempotency_key,
)
from wonder_server.services.memory.service import MAX_BATCH, MemoryService

R = TypeVar("R")

MAX_QUERY_BYTES: Final = 64 * 1024
MAX_AGENTS: Final = 1_000
"""Maximum number of agents whose memories are searched together."""

_MEMORY_FIELDS: Final = {
    name: f"memory.{name}"
    for name in (
        *("id", "etag", "type", "content", "significance", "metadata", "contradicts_ids"),
        *(
            f"source.{part}"
            for part in ("conversation_id", "turn_id", "move_id", "run_id", "speaker", "ordinal")
        ),
    )
}
_SUPERSEDE_FIELDS: Final = _MEMORY_FIELDS | {"id": "memory_id", "etag": "etag"}
_FILTER_FIELDS: Final = {"types": "filter.types", "metadata": "filter.metadata"}


class AgentResolver(NameResolver, Protocol):
    """Resolves names, and lists the agents of a project."""

    async def agent_ids(self, project: str, limit: int) -> list[str]:
        """Return the ids of up to ``limit`` agents, of a project (id or name) or of all.

        Raises PROJECT_NOT_FOUND.
        """
        ...


class MemoryServicer:
    """Methods of the MemoryService."""

    def __init__(self, memory: MemoryService, resolver: AgentResolver, grants: ScopeGrants) -> None:
        self._memory = memory
        self._resolver = resolver
        self._grants = grants
        self._recent = RecentRequests[asyncio.Event]()
        self._running: set[asyncio.Task[object]] = set()

    async def write_memory(
        self, request: pb.WriteMemoryRequest, _context: CallContext
    ) -> pb.WriteMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        draft = draft_from_proto(
            request.memory,
            path="memory",
            idempotency_key=_write_key(request),
            unless_known=request.unless_known,
        )

        async def write() -> pb.WriteMemoryResponse:
            with map_fault_fields(_MEMORY_FIELDS):
                memory = await self._memory.write(agent_id, draft)
            return pb.WriteMemoryResponse(memory=memory_to_proto(memory))

        return await self._execute_once(request, write, write)

    async def batch_write_memories(
        self, request: pb.BatchWriteMemoriesRequest, _context: CallContext
    ) -> pb.BatchWriteMemoriesResponse:
        agent_id = await self._agent_id(request.agent_id)
        if len(request.memories) > MAX_BATCH:
            raise error(
                Reason.FIELD_INVALID,
                f"The request has {len(request.memories)} memories. Send 1 to {MAX_BATCH}.",
                field="memories",
            )
        key = _write_key(request)
        drafts = [
            draft_from_proto(
                memory,
                path=f"memories[{position}]",
                idempotency_key=f"{key}:{position}" if key else "",
                unless_known=request.unless_known,
            )
            for position, memory in enumerate(request.memories)
        ]

        async def write() -> pb.BatchWriteMemoriesResponse:
            written = await self._memory.write_all(agent_id, drafts)
            return pb.BatchWriteMemoriesResponse(memories=[memory_to_proto(memory) for memory in written])

        return await self._execute_once(request, write, write)

    async def get_memory(self, request: pb.GetMemoryRequest, _context: CallContext) -> pb.GetMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        memory_id = _memory_id(request.memory_id, "memory_id")
        with map_fault_fields({"id": "memory_id"}):
            return pb.GetMemoryResponse(memory=memory_to_proto(await self._memory.get(agent_id, memory_id)))

    async def update_memory(
        self, request: pb.UpdateMemoryRequest, _context: CallContext
    ) -> pb.UpdateMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        memory_id = _memory_id(request.memory.id, "memory.id")
        change, change_request = change_from_proto(request), _change_request(request)

        async def update() -> pb.UpdateMemoryResponse:
            with map_fault_fields(_MEMORY_FIELDS):
                memory = await self._memory.update(
                    agent_id, memory_id, change, etag=request.memory.etag, request=change_request
                )
            return pb.UpdateMemoryResponse(memory=memory_to_proto(memory))

        async def read() -> pb.UpdateMemoryResponse:
            with map_fault_fields(_MEMORY_FIELDS):
                memory = await self._memory.get(agent_id, memory_id)
            return pb.UpdateMemoryResponse(memory=memory_to_proto(memory))

        return await self._execute_once(request, update, read)

    async def delete_memory(
        self, request: pb.DeleteMemoryRequest, _context: CallContext
    ) -> pb.DeleteMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        memory_id = _memory_id(request.memory_id, "memory_id")

        async def delete() -> pb.DeleteMemoryResponse:
            with map_fault_fields({"id": "memory_id"}):
                await self._memory.delete(
                    agent_id, memory_id, etag=request.etag, request=_change_request(request)
                )
            return pb.DeleteMemoryResponse()

        async def answer() -> pb.DeleteMemoryResponse:
            return pb.DeleteMemoryResponse()

        return await self._execute_once(request, delete, answer)

    async def supersede_memory(
        self, request: pb.SupersedeMemoryRequest, _context: CallContext
    ) -> pb.SupersedeMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        memory_id = _memory_id(request.memory_id, "memory_id")
        draft, change_request = draft_from_proto(request.memory, path="memory"), _change_request(request)

        async def supersede() -> pb.SupersedeMemoryResponse:
            with map_fault_fields(_SUPERSEDE_FIELDS):
                new, old = await self._memory.supersede(
                    agent_id, memory_id, draft, etag=request.etag, request=change_request
                )
            return pb.SupersedeMemoryResponse(memory=memory_to_proto(new), superseded=memory_to_proto(old))

        return await self._execute_once(request, supersede, supersede)

    async def list_memories(
        self, request: pb.ListMemoriesRequest, _context: CallContext
    ) -> pb.ListMemoriesResponse:
        agent_id = await self._agent_id(request.agent_id)
        wanted = page_request(request)
        with map_fault_fields(_FILTER_FIELDS):
            page = await self._memory.page(agent_id, wanted, filter_from_proto(request.filter))
        found, token = await encode_page(page, memory_to_proto)
        return pb.ListMemoriesResponse(memories=found, next_page_token=token)

    async def search_memories(
        self, request: pb.SearchMemoriesRequest, _context: CallContext
    ) -> pb.SearchMemoriesResponse:
        agent_ids = await self._searched_agents(request)
        _check_search(request)
        with map_fault_fields(_FILTER_FIELDS):
            hits = await self._memory.search_all(
                agent_ids,
                request.query,
                limit=request.limit,
                wanted=filter_from_proto(request.filter),
                weights=weights_from_proto(request.weights),
            )
        return pb.SearchMemoriesResponse(
            hits=[hit_to_proto(hit) for hit in hits if hit.score >= request.min_score]
        )

    async def _searched_agents(self, request: pb.SearchMemoriesRequest) -> list[str]:
        """Return the agents whose memories are searched."""
        if not request.across_agents:
            if request.project_id:
                raise error(Reason.FIELD_INVALID, "project_id requires across_agents.", field="project_id")
            return [await self._agent_id(request.agent_id)]
        self._grants.require(SEARCH_ALL)
        if request.agent_id:
            raise error(
                Reason.FIELD_INVALID,
                "agent_id and across_agents exclude each other. Set one of them.",
                field="agent_id",
            )
        with map_fault_fields({"": "project_id"}):
            ids = await self._resolver.agent_ids(request.project_id, MAX_AGENTS + 1)
        if len(ids) > MAX_AGENTS:
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"The search covers more than {MAX_AGENTS} agents. Set project_id to one project.",
                field="project_id",
                limit=str(MAX_AGENTS),
            )
        return ids

    async def _agent_id(self, key: str) -> str:
        with map_fault_fields({"": "agent_id"}):
            return await self._resolver.agent_id(required(key, "agent_id"))

    async def _execute_once(
        self,
        request: IdempotentRequest,
        execute: Callable[[], Awaitable[R]],
        repeat: Callable[[], Awaitable[R]],
    ) -> R:
        """Call ``execute`` for a new request, or ``repeat`` for one that was executed before.

        A request with a ``request_id`` is executed to its end even if the caller leaves.
        """
        key = idempotency_key(request)
        if key is None:
            return await execute()
        while (done := self._recent.find(key)) is not None:
            if done.is_set():
                return await repeat()
            await done.wait()
        done = asyncio.Event()
        slot = self._recent.reserve(key, done)
        task = asyncio.create_task(_execute(execute, done, slot))
        self._running.add(task)
        task.add_done_callback(self._on_done)
        return await asyncio.shield(task)

    def _on_done(self, task: asyncio.Task[R]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Marks the exception as retrieved; asyncio logs it otherwise.


async def _execute(
    execute: Callable[[], Awaitable[R]], done: asyncio.Event, slot: RequestSlot[asyncio.Event]
) -> R:
    try:
        answer = await execute()
    except BaseException:
        slot.discard()
        raise
    else:
        slot.complete()
        return answer
    finally:
        done.set()


def _write_key(request: IdempotentRequest) -> str:
    """Return the idempotency key of a write.

    The key contains the fingerprint, which covers the caller: a different request with the same
    ``request_id`` must not get this one's memory.
    """
    key = idempotency_key(request)
    return f"request:{request.request_id}:{key.fingerprint}" if key else ""


def _change_request(request: IdempotentRequest) -> Request | None:
    """Return the ``request_id`` of a change, separate for each caller."""
    key = idempotency_key(request)
    if key is None:
        return None
    # The store has always kept "caller/id", also for the empty caller of a server without tokens.
    stored_id = key.request_id if current_principal.get() else f"/{key.request_id}"
    return Request(id=stored_id, fingerprint=key.fingerprint)


def _memory_id(value: str, field: str) -> str:
    if not is_id("mem", required(value, field)):
        raise error(
            Reason.MEMORY_NOT_FOUND, f"The agent has no memory '{value[:80]}'.", field=field, id=value
        )
    return value


def _check_search(request: pb.SearchMemoriesRequest) -> None:
    size = len(request.query.encode())
    if size > MAX_QUERY_BYTES:
        raise error(
            Reason.PAYLOAD_TOO_LARGE,
            f"query has {size} bytes; the maximum is {MAX_QUERY_BYTES}.",
            field="query",
            limit=str(MAX_QUERY_BYTES),
        )
    if not 0.0 <= request.min_score <= 1.0:  # Also rejects NaN.
        raise error(
            Reason.FIELD_INVALID,
            f"min_score is {request.min_score:g}. Use a number between 0 and 1.",
            field="min_score",
        )
