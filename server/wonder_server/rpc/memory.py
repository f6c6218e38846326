"""``wonder.v1.MemoryService``: what agents remember (features E1, E3, E4, E6).

A ``request_id`` is part of the key under which a memory is stored, so a write that is sent again, even
after a restart, answers what the first one wrote. Changes and deletions are recognised while the server
runs. SupersedeMemory is not there yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from wonder.v1 import memory_service_pb2 as pb
from wonder_server.core.errors import Reason, error
from wonder_server.core.ids import is_id
from wonder_server.rpc.fields import refuse_given, renamed, required
from wonder_server.rpc.memory_codec import (
    change_from_proto,
    draft_from_proto,
    hit_to_proto,
    memory_to_proto,
    weights_from_proto,
)
from wonder_server.rpc.names import Names
from wonder_server.rpc.once import Kept, Recent, once_of
from wonder_server.services.memory import MAX_BATCH, MemoryService
from wonder_server.services.paging import PageRequest

R = TypeVar("R")

MAX_QUERY_BYTES: Final = 64 * 1024

_IN_MEMORY: Final = {
    name: f"memory.{name}" for name in ("id", "etag", "type", "content", "significance", "metadata")
}
_IN_FILTER: Final = {"types": "filter.types"}


class MemoryServicer:
    """The methods of the service."""

    def __init__(self, memory: MemoryService, names: Names) -> None:
        self._memory = memory
        self._names = names
        self._recent = Recent[asyncio.Event]()
        self._acting: set[asyncio.Task[Any]] = set()

    async def write_memory(self, request: pb.WriteMemoryRequest, _context: Any) -> pb.WriteMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        draft = draft_from_proto(
            request.memory,
            method="WriteMemory",
            path="memory",
            idempotency_key=_key(request),
            unless_known=request.unless_known,
        )

        async def write() -> pb.WriteMemoryResponse:
            with renamed(_IN_MEMORY):
                memory = await self._memory.write(agent_id, draft)
            return pb.WriteMemoryResponse(memory=memory_to_proto(memory))

        return await self._once(request, write, write)

    async def batch_write_memories(
        self, request: pb.BatchWriteMemoriesRequest, _context: Any
    ) -> pb.BatchWriteMemoriesResponse:
        agent_id = await self._agent_id(request.agent_id)
        if len(request.memories) > MAX_BATCH:
            raise error(Reason.FIELD_INVALID, f"Give 1 to {MAX_BATCH} memories.", field="memories")
        key = _key(request)
        drafts = [
            draft_from_proto(
                memory,
                method="BatchWriteMemories",
                path=f"memories[{position}]",
                idempotency_key=f"{key}:{position}" if key else "",
                unless_known=request.unless_known,
            )
            for position, memory in enumerate(request.memories)
        ]

        async def write() -> pb.BatchWriteMemoriesResponse:
            written = await self._memory.write_all(agent_id, drafts)
            return pb.BatchWriteMemoriesResponse(memories=[memory_to_proto(memory) for memory in written])

        return await self._once(request, write, write)

    async def get_memory(self, request: pb.GetMemoryRequest, _context: Any) -> pb.GetMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        memory_id = _memory_id(request.memory_id, "memory_id")
        with renamed({"id": "memory_id"}):
            return pb.GetMemoryResponse(memory=memory_to_proto(await self._memory.get(agent_id, memory_id)))

    async def update_memory(self, request: pb.UpdateMemoryRequest, _context: Any) -> pb.UpdateMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        memory_id = _memory_id(request.memory.id, "memory.id")
        change = change_from_proto(request)

        async def update() -> pb.UpdateMemoryResponse:
            with renamed(_IN_MEMORY):
                memory = await self._memory.update(agent_id, memory_id, change, etag=request.memory.etag)
            return pb.UpdateMemoryResponse(memory=memory_to_proto(memory))

        async def read() -> pb.UpdateMemoryResponse:
            with renamed(_IN_MEMORY):
                memory = await self._memory.get(agent_id, memory_id)
            return pb.UpdateMemoryResponse(memory=memory_to_proto(memory))

        return await self._once(request, update, read)

    async def delete_memory(self, request: pb.DeleteMemoryRequest, _context: Any) -> pb.DeleteMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        memory_id = _memory_id(request.memory_id, "memory_id")

        async def delete() -> pb.DeleteMemoryResponse:
            with renamed({"id": "memory_id"}):
                await self._memory.delete(agent_id, memory_id, etag=request.etag)
            return pb.DeleteMemoryResponse()

        async def answer() -> pb.DeleteMemoryResponse:
            return pb.DeleteMemoryResponse()

        return await self._once(request, delete, answer)

    async def list_memories(self, request: pb.ListMemoriesRequest, _context: Any) -> pb.ListMemoriesResponse:
        agent_id = await self._agent_id(request.agent_id)
        types = _types("ListMemories", request.filter)
        with renamed(_IN_FILTER):
            page = await self._memory.page(
                agent_id, PageRequest(size=request.page_size, token=request.page_token), types=types
            )
        return pb.ListMemoriesResponse(
            memories=[memory_to_proto(memory) for memory in page.items],
            next_page_token=page.next_page_token,
        )

    async def search_memories(
        self, request: pb.SearchMemoriesRequest, _context: Any
    ) -> pb.SearchMemoriesResponse:
        refuse_given(
            "SearchMemories", {"across_agents": request.across_agents, "project_id": request.project_id}
        )
        agent_id = await self._agent_id(request.agent_id)
        types = _types("SearchMemories", request.filter)
        _check_search(request)
        with renamed(_IN_FILTER):
            hits = await self._memory.search(
                agent_id,
                request.query,
                limit=request.limit,
                types=types,
                weights=weights_from_proto(request.weights),
            )
        return pb.SearchMemoriesResponse(
            hits=[hit_to_proto(hit) for hit in hits if hit.score >= request.min_score]
        )

    async def _agent_id(self, key: str) -> str:
        with renamed({"": "agent_id"}):
            return await self._names.agent_id(required(key, "agent_id"))

    async def _once(
        self, request: Any, act: Callable[[], Awaitable[R]], again: Callable[[], Awaitable[R]]
    ) -> R:
        """``act`` for a new request; ``again`` for one that was carried out before.

        What has a ``request_id`` is carried out to its end even if the caller goes away.
        """
        once = once_of(request)
        if once is None:
            return await act()
        while (over := self._recent.find(once)) is not None:
            if over.is_set():
                return await again()
            await over.wait()
        over = asyncio.Event()
        kept = self._recent.keep(once, over)
        task = asyncio.create_task(_carry_out(act, over, kept))
        self._acting.add(task)
        task.add_done_callback(self._is_over)
        return await asyncio.shield(task)

    def _is_over(self, task: asyncio.Task[Any]) -> None:
        self._acting.discard(task)
        if not task.cancelled():
            task.exception()  # Seen, even if the caller is gone.


async def _carry_out(act: Callable[[], Awaitable[R]], over: asyncio.Event, kept: Kept[asyncio.Event]) -> R:
    try:
        answer = await act()
    except BaseException:
        kept.forget()
        raise
    else:
        kept.settle()
        return answer
    finally:
        over.set()


def _key(request: Any) -> str:
    """The idempotency key of a write. The fingerprint is part of it: another request that comes with the
    same ``request_id`` must not be answered with this one's memory."""
    once = once_of(request)
    return f"request:{once.request_id}:{once.fingerprint}" if once else ""


def _memory_id(value: str, field: str) -> str:
    if not is_id("mem", required(value, field)):
        raise error(Reason.MEMORY_NOT_FOUND, "The agent has no memory with this id.", field=field, id=value)
    return value


def _types(method: str, wanted: pb.MemoryFilter) -> list[str]:
    """The filter's types; its other fields are refused. Nothing is superseded or archived yet, so
    ``include_superseded`` leaves nothing out."""
    refuse_given(
        method,
        {
            "filter.metadata": wanted.HasField("metadata"),
            "filter.conversation_id": wanted.conversation_id,
            "filter.turn_id": wanted.turn_id,
            "filter.start_time": wanted.HasField("start_time"),
            "filter.end_time": wanted.HasField("end_time"),
        },
    )
    return list(wanted.types)


def _check_search(request: pb.SearchMemoriesRequest) -> None:
    size = len(request.query.encode())
    if size > MAX_QUERY_BYTES:
        raise error(
            Reason.PAYLOAD_TOO_LARGE,
            f"query has {size} bytes; at most {MAX_QUERY_BYTES} are taken.",
            field="query",
            limit=str(MAX_QUERY_BYTES),
        )
    if not 0.0 <= request.min_score <= 1.0:  # Also refuses NaN.
        raise error(Reason.FIELD_INVALID, "min_score lies between 0 and 1.", field="min_score")
