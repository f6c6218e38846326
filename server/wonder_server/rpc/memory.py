"""``wonder.v1.MemoryService``: what agents remember (features E1, E3, E4, E6).

A ``request_id`` is part of the key under which a memory is stored, so a write that is sent again, even
after a restart, answers what the first one wrote. Changes and deletions are noted with it in their own
commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from wonder.v1 import memory_service_pb2 as pb
from wonder_server.core.errors import Reason, error
from wonder_server.core.ids import is_id
from wonder_server.ports.memories import Request
from wonder_server.rpc.fields import renamed, required
from wonder_server.rpc.memory_codec import (
    change_from_proto,
    draft_from_proto,
    filter_from_proto,
    hit_to_proto,
    memory_to_proto,
    weights_from_proto,
)
from wonder_server.rpc.names import Names
from wonder_server.rpc.once import Kept, Recent, once_of
from wonder_server.rpc.pages import encoded
from wonder_server.rpc.principal import caller
from wonder_server.rpc.rights import SEARCH_ALL, Rights
from wonder_server.services.memory import MAX_BATCH, MemoryService
from wonder_server.services.paging import PageRequest

R = TypeVar("R")

MAX_QUERY_BYTES: Final = 64 * 1024
MAX_AGENTS: Final = 1_000
"""Agents whose memories are searched together."""

_IN_MEMORY: Final = {
    name: f"memory.{name}"
    for name in (
        *("id", "etag", "type", "content", "significance", "metadata", "contradicts_ids"),
        *(
            f"source.{part}"
            for part in ("conversation_id", "turn_id", "move_id", "run_id", "speaker", "ordinal")
        ),
    )
}
_IN_SUPERSEDE: Final = _IN_MEMORY | {"id": "memory_id", "etag": "etag"}
_IN_FILTER: Final = {"types": "filter.types", "metadata": "filter.metadata"}


class AgentNames(Names, Protocol):
    """What is needed of the library besides."""

    async def agent_ids(self, project: str, limit: int) -> list[str]:
        """Ids of up to ``limit`` agents, of a project (id or name) or of all. PROJECT_NOT_FOUND."""
        ...


class MemoryServicer:
    """The methods of the service."""

    def __init__(self, memory: MemoryService, names: AgentNames, rights: Rights) -> None:
        self._memory = memory
        self._names = names
        self._rights = rights
        self._recent = Recent[asyncio.Event]()
        self._acting: set[asyncio.Task[Any]] = set()

    async def write_memory(self, request: pb.WriteMemoryRequest, _context: Any) -> pb.WriteMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        draft = draft_from_proto(
            request.memory, path="memory", idempotency_key=_key(request), unless_known=request.unless_known
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
        change, asked = change_from_proto(request), _asked(request)

        async def update() -> pb.UpdateMemoryResponse:
            with renamed(_IN_MEMORY):
                memory = await self._memory.update(
                    agent_id, memory_id, change, etag=request.memory.etag, request=asked
                )
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
                await self._memory.delete(agent_id, memory_id, etag=request.etag, request=_asked(request))
            return pb.DeleteMemoryResponse()

        async def answer() -> pb.DeleteMemoryResponse:
            return pb.DeleteMemoryResponse()

        return await self._once(request, delete, answer)

    async def supersede_memory(
        self, request: pb.SupersedeMemoryRequest, _context: Any
    ) -> pb.SupersedeMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        memory_id = _memory_id(request.memory_id, "memory_id")
        draft, asked = draft_from_proto(request.memory, path="memory"), _asked(request)

        async def supersede() -> pb.SupersedeMemoryResponse:
            with renamed(_IN_SUPERSEDE):
                new, old = await self._memory.supersede(
                    agent_id, memory_id, draft, etag=request.etag, request=asked
                )
            return pb.SupersedeMemoryResponse(memory=memory_to_proto(new), superseded=memory_to_proto(old))

        return await self._once(request, supersede, supersede)

    async def list_memories(self, request: pb.ListMemoriesRequest, _context: Any) -> pb.ListMemoriesResponse:
        agent_id = await self._agent_id(request.agent_id)
        asked = PageRequest(size=request.page_size, token=request.page_token)
        with renamed(_IN_FILTER):
            page = await self._memory.page(agent_id, asked, filter_from_proto(request.filter))
        found, token = await encoded(page, memory_to_proto)
        return pb.ListMemoriesResponse(memories=found, next_page_token=token)

    async def search_memories(
        self, request: pb.SearchMemoriesRequest, _context: Any
    ) -> pb.SearchMemoriesResponse:
        agent_ids = await self._searched(request)
        _check_search(request)
        with renamed(_IN_FILTER):
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

    async def _searched(self, request: pb.SearchMemoriesRequest) -> list[str]:
        """The agents whose memories are searched."""
        if not request.across_agents:
            if request.project_id:
                raise error(Reason.FIELD_INVALID, "project_id goes with across_agents.", field="project_id")
            return [await self._agent_id(request.agent_id)]
        self._rights.demand(SEARCH_ALL)
        if request.agent_id:
            raise error(
                Reason.FIELD_INVALID,
                "Give an agent_id, or across_agents for the agents of a project or all.",
                field="agent_id",
            )
        with renamed({"": "project_id"}):
            ids = await self._names.agent_ids(request.project_id, MAX_AGENTS + 1)
        if len(ids) > MAX_AGENTS:
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"At most {MAX_AGENTS} agents are searched at once; name a project.",
                field="project_id",
                limit=str(MAX_AGENTS),
            )
        return ids

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
    """The idempotency key of a write. The fingerprint, which covers the caller, is part of it: another
    request that comes with the same ``request_id`` must not be answered with this one's memory."""
    once = once_of(request)
    return f"request:{request.request_id}:{once.fingerprint}" if once else ""


def _asked(request: Any) -> Request | None:
    """A change's ``request_id``, each caller's by themselves."""
    once = once_of(request)
    if once is None:
        return None
    # Stored with the caller's name before it, an empty one without tokens.
    key = once.request_id if caller.get() else f"/{once.request_id}"
    return Request(id=key, fingerprint=once.fingerprint)


def _memory_id(value: str, field: str) -> str:
    if not is_id("mem", required(value, field)):
        raise error(Reason.MEMORY_NOT_FOUND, "The agent has no memory with this id.", field=field, id=value)
    return value


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
