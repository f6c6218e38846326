"""``wonder.v1.MemoryService``: the memories of agents.

A ``request_id`` is part of the key under which a memory is stored, so a repeated write, even after a restart,
returns the memory that the first one wrote. Changes and deletions store it in their commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from wonder.v1 import memory_service_pb2 as pb
from wonder_server.core.access.permissions import SEARCH_ALL
from wonder_server.core.errors import Reason, error, not_found
from wonder_server.core.ids import is_id
from wonder_server.core.memory.blocks import Author, BlockKey
from wonder_server.core.memory.validation import SOURCE_TEXTS
from wonder_server.ports.access import ByPrincipal
from wonder_server.rpc.memory.block_codec import block_from_proto, block_to_proto, change_to_proto
from wonder_server.rpc.memory.codec import (
    change_from_proto,
    draft_from_proto,
    filter_from_proto,
    hit_to_proto,
    memory_to_proto,
    weights_from_proto,
)
from wonder_server.rpc.server.authorization import require_permission
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.fields import bounded, map_fault_fields, required
from wonder_server.rpc.shared.names import NameResolver
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import IdempotentRequest, idempotency_key
from wonder_server.rpc.shared.times import from_timestamp
from wonder_server.services.idempotency import RecentExecutions
from wonder_server.services.memory.blocks import MemoryBlockService
from wonder_server.services.memory.service import MAX_BATCH, MemoryService

MAX_QUERY_BYTES: Final = 64 * 1024
MAX_AGENTS: Final = 1_000
"""Maximum number of agents whose memories are searched together."""

_MEMORY_FIELDS: Final = {
    name: f"memory.{name}"
    for name in (
        *("id", "etag", "type", "content", "significance", "metadata", "contradicts_ids"),
        *("said_at", "subject"),
        *(f"source.{part}" for part in (*SOURCE_TEXTS, "ordinal", "role")),
    )
}
_SUPERSEDE_FIELDS: Final = _MEMORY_FIELDS | {"id": "memory_id", "etag": "etag"}
_FILTER_FIELDS: Final = {
    name: f"filter.{name}" for name in ("types", "metadata", "said_start_time", "said_end_time", "subject")
}


_BLOCK_FIELDS: Final = {
    name: f"block.{name}" for name in ("label", "subject", "description", "content", "max_characters", "etag")
}


class BlockRequest(Protocol):
    """A request that names a memory block."""

    agent_id: str
    label: str
    subject: str


class AgentResolver(NameResolver, Protocol):
    """Resolves names, and lists the agents of a project."""

    async def agent_ids(self, project: str, limit: int) -> list[str]:
        """Return the ids of up to ``limit`` agents, of a project (id or name) or of all.

        Raises PROJECT_NOT_FOUND.
        """
        ...


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Memories and names for one access scope."""

    memory: MemoryService
    names: AgentResolver
    blocks: MemoryBlockService


class MemoryServicer:
    """Methods of the MemoryService."""

    def __init__(self, parts: ByPrincipal[MemoryParts]) -> None:
        self._parts = parts
        self._executions = RecentExecutions()

    @property
    def _memory(self) -> MemoryService:
        """The memories for the principal of the call."""
        return self._parts.of(current_principal.get()).memory

    @property
    def _blocks(self) -> MemoryBlockService:
        """The memory blocks for the principal of the call."""
        return self._parts.of(current_principal.get()).blocks

    @property
    def _names(self) -> AgentResolver:
        """The names for the principal of the call."""
        return self._parts.of(current_principal.get()).names

    async def write_memory(
        self, request: pb.WriteMemoryRequest, _context: CallContext
    ) -> pb.WriteMemoryResponse:
        draft = draft_from_proto(
            request.memory,
            path="memory",
            idempotency_key=_write_key(request),
            unless_known=request.unless_known,
        )
        key = idempotency_key(request)

        async def write() -> pb.WriteMemoryResponse:
            earlier = await self._memory.written_before(key, [draft])
            if earlier is not None:
                return pb.WriteMemoryResponse(memory=memory_to_proto(earlier[0]))
            agent_id = await self._agent_id(request.agent_id)
            with map_fault_fields(_MEMORY_FIELDS):
                memory = await self._memory.write(agent_id, draft, request=key)
            return pb.WriteMemoryResponse(memory=memory_to_proto(memory))

        return await self._executions.execute(key, write, write)

    async def batch_write_memories(
        self, request: pb.BatchWriteMemoriesRequest, _context: CallContext
    ) -> pb.BatchWriteMemoriesResponse:
        if len(request.memories) > MAX_BATCH:
            raise error(
                Reason.FIELD_INVALID,
                f"The request has {len(request.memories)} memories. Send 1 to {MAX_BATCH}.",
                field="memories",
            )
        key, write_key = idempotency_key(request), _write_key(request)
        drafts = [
            draft_from_proto(
                memory,
                path=f"memories[{position}]",
                idempotency_key=f"{write_key}:{position}" if write_key else "",
                unless_known=request.unless_known,
            )
            for position, memory in enumerate(request.memories)
        ]

        async def write() -> pb.BatchWriteMemoriesResponse:
            written = await self._memory.written_before(key, drafts)
            if written is None:
                agent_id = await self._agent_id(request.agent_id)
                written = await self._memory.write_all(agent_id, drafts, request=key)
            return pb.BatchWriteMemoriesResponse(memories=[memory_to_proto(memory) for memory in written])

        return await self._executions.execute(key, write, write)

    async def get_memory(self, request: pb.GetMemoryRequest, _context: CallContext) -> pb.GetMemoryResponse:
        agent_id = await self._agent_id(request.agent_id)
        memory_id = _memory_id(request.memory_id, "memory_id", agent_id)
        with map_fault_fields({"id": "memory_id"}):
            return pb.GetMemoryResponse(memory=memory_to_proto(await self._memory.get(agent_id, memory_id)))

    async def update_memory(
        self, request: pb.UpdateMemoryRequest, _context: CallContext
    ) -> pb.UpdateMemoryResponse:
        key = idempotency_key(request)

        async def update() -> pb.UpdateMemoryResponse:
            answered = await self._memory.answered(key)
            if answered is not None:
                change = change_from_proto(request)
                memory = await self._memory.changed_before(answered, request.memory.id, change)
            else:
                agent_id = await self._agent_id(request.agent_id)
                memory_id = _memory_id(request.memory.id, "memory.id", agent_id)
                change = change_from_proto(request)
                with map_fault_fields(_MEMORY_FIELDS):
                    memory = await self._memory.update(
                        agent_id, memory_id, change, etag=request.memory.etag, request=key
                    )
            return pb.UpdateMemoryResponse(memory=memory_to_proto(memory))

        return await self._executions.execute(key, update, update)

    async def delete_memory(
        self, request: pb.DeleteMemoryRequest, _context: CallContext
    ) -> pb.DeleteMemoryResponse:
        key = idempotency_key(request)

        async def delete() -> pb.DeleteMemoryResponse:
            if not await self._memory.has_executed(key):
                agent_id = await self._agent_id(request.agent_id)
                memory_id = _memory_id(request.memory_id, "memory_id", agent_id)
                with map_fault_fields({"id": "memory_id"}):
                    await self._memory.delete(agent_id, memory_id, etag=request.etag, request=key)
            return pb.DeleteMemoryResponse()

        async def answer() -> pb.DeleteMemoryResponse:
            return pb.DeleteMemoryResponse()

        return await self._executions.execute(key, delete, answer)

    async def supersede_memory(
        self, request: pb.SupersedeMemoryRequest, _context: CallContext
    ) -> pb.SupersedeMemoryResponse:
        key = idempotency_key(request)

        async def supersede() -> pb.SupersedeMemoryResponse:
            draft = draft_from_proto(request.memory, path="memory")
            replaced = await self._memory.superseded_before(key, request.memory_id, draft)
            if replaced is None:
                agent_id = await self._agent_id(request.agent_id)
                memory_id = _memory_id(request.memory_id, "memory_id", agent_id)
                with map_fault_fields(_SUPERSEDE_FIELDS):
                    replaced = await self._memory.supersede(
                        agent_id, memory_id, draft, etag=request.etag, request=key
                    )
            new, old = replaced
            return pb.SupersedeMemoryResponse(memory=memory_to_proto(new), superseded=memory_to_proto(old))

        return await self._executions.execute(key, supersede, supersede)

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
                now_ms=from_timestamp(request.now, "now") if request.HasField("now") else None,
            )
        return pb.SearchMemoriesResponse(
            hits=[
                hit_to_proto(hit)
                for hit in hits
                if hit.score >= request.min_score and hit.relevance >= request.min_relevance
            ]
        )

    async def get_memory_block(
        self, request: pb.GetMemoryBlockRequest, _context: CallContext
    ) -> pb.GetMemoryBlockResponse:
        block = await self._blocks.get(await self._block_key(request))
        return pb.GetMemoryBlockResponse(block=block_to_proto(block))

    async def list_memory_blocks(
        self, request: pb.ListMemoryBlocksRequest, _context: CallContext
    ) -> pb.ListMemoryBlocksResponse:
        agent_id = await self._agent_id(request.agent_id)
        wanted = page_request(request)
        subject = bounded(request.subject, "subject") if request.HasField("subject") else None
        page = await self._blocks.page(agent_id, wanted, subject)
        found, token = await encode_page(page, block_to_proto)
        return pb.ListMemoryBlocksResponse(blocks=found, next_page_token=token)

    async def set_memory_block(
        self, request: pb.SetMemoryBlockRequest, _context: CallContext
    ) -> pb.SetMemoryBlockResponse:
        key, author = idempotency_key(request), Author(principal=current_principal.get().text)

        async def store() -> pb.SetMemoryBlockResponse:
            answered = await self._memory.answered(key)
            with map_fault_fields(_BLOCK_FIELDS):
                if answered is not None:
                    wanted = block_from_proto(request.block, answered.agent_id)
                    stored = await self._blocks.set_before(answered, wanted)
                else:
                    agent_id = await self._agent_id(request.agent_id)
                    required(request.block.label, "block.label")
                    wanted = block_from_proto(request.block, agent_id)
                    stored = await self._blocks.set(wanted, author, etag=request.block.etag, request=key)
            return pb.SetMemoryBlockResponse(block=block_to_proto(stored))

        return await self._executions.execute(key, store, store)

    async def delete_memory_block(
        self, request: pb.DeleteMemoryBlockRequest, _context: CallContext
    ) -> pb.DeleteMemoryBlockResponse:
        key, author = idempotency_key(request), Author(principal=current_principal.get().text)

        async def delete() -> pb.DeleteMemoryBlockResponse:
            if not await self._memory.has_executed(key):
                block_key = await self._block_key(request)
                await self._blocks.delete(block_key, author, etag=request.etag, request=key)
            return pb.DeleteMemoryBlockResponse()

        return await self._executions.execute(key, delete, delete)

    async def list_memory_block_changes(
        self, request: pb.ListMemoryBlockChangesRequest, _context: CallContext
    ) -> pb.ListMemoryBlockChangesResponse:
        page = await self._blocks.changes(await self._block_key(request), page_request(request))
        found, token = await encode_page(page, change_to_proto)
        return pb.ListMemoryBlockChangesResponse(changes=found, next_page_token=token)

    async def _block_key(self, request: BlockRequest) -> BlockKey:
        agent_id, label = await self._agent_id(request.agent_id), required(request.label, "label")
        return BlockKey(agent_id=agent_id, label=label, subject=request.subject)

    async def _searched_agents(self, request: pb.SearchMemoriesRequest) -> list[str]:
        """Return the agents whose memories are searched."""
        if not request.across_agents:
            if request.project_id:
                raise error(Reason.FIELD_INVALID, "project_id requires across_agents.", field="project_id")
            return [await self._agent_id(request.agent_id)]
        require_permission(SEARCH_ALL)
        if request.agent_id:
            raise error(
                Reason.FIELD_INVALID,
                "agent_id and across_agents exclude each other. Set one of them.",
                field="agent_id",
            )
        with map_fault_fields({"": "project_id"}):
            ids = await self._names.agent_ids(request.project_id, MAX_AGENTS + 1)
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
            return await self._names.agent_id(required(key, "agent_id"))


def _write_key(request: IdempotentRequest) -> str:
    """Return the idempotency key of a write.

    The key contains the fingerprint, which covers the caller: a different request with the same
    ``request_id`` must not get this one's memory.
    """
    key = idempotency_key(request)
    return f"request:{request.request_id}:{key.fingerprint}" if key else ""


def _memory_id(value: str, field: str, agent_id: str) -> str:
    if not is_id("mem", required(value, field)):
        raise not_found(Reason.MEMORY_NOT_FOUND, value, field=field, place=f" of the agent '{agent_id}'")
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
    for name, value in (("min_score", request.min_score), ("min_relevance", request.min_relevance)):
        if not 0.0 <= value <= 1.0:  # Also rejects NaN.
            raise error(
                Reason.FIELD_INVALID, f"{name} is {value!r}. Use a number between 0 and 1.", field=name
            )
