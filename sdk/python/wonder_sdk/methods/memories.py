"""Client methods for the memories of agents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.values import to_struct

_PAGE = 200


class MemoryOptions(TypedDict, total=False):
    """Options of a memory to write."""

    type: str
    """Type of the memory, as the library defines it; default ``fact``."""
    significance: float
    """Significance of the memory, from 0 to 1; default 0.5."""
    metadata: Mapping[str, Any]
    """JSON to store with the memory; filters match its fields."""
    conversation: str
    """Id of the conversation that the memory comes from."""
    turn: str
    """Id of the turn that the memory comes from."""
    speaker: str
    """Name of the speaker."""
    ordinal: int
    """Position of the message in its conversation, from 1."""
    contradicts: Iterable[str]
    """Ids of memories that this one contradicts."""


class MemoryFilters(TypedDict, total=False):
    """Filter of a list or a search. An omitted condition matches every memory."""

    types: Iterable[str]
    """Only these types."""
    metadata: Mapping[str, Any]
    """Only memories whose metadata has all of these fields with these values."""
    conversation: str
    """Only memories from this conversation."""
    turn: str
    """Only memories from this turn."""
    since: datetime
    """Only memories written at this time or later."""
    until: datetime
    """Only memories written before this time."""
    everything: bool
    """Superseded and archived memories too."""


class MemoryMethods:
    """Methods of `Client` for memories. ``agent`` is an agent's id or name."""

    memory: stubs.MemoryServiceStub

    async def remember(
        self,
        content: str,
        *,
        agent: str = "assistant",
        unless_known: bool = False,
        request_id: str = "",
        **options: Unpack[MemoryOptions],
    ) -> v1.Memory:
        """Write a memory of an agent, at most 1 MiB long.

        With ``unless_known``, the server returns an existing memory of the same type and content and writes
        nothing. Case and white space make no difference.
        Requests with the same ``request_id`` write one memory. Raises NotFoundError, InvalidArgumentError,
        UnavailableError.
        """
        response = await self.memory.write_memory(
            v1.WriteMemoryRequest(
                agent_id=agent,
                memory=_memory(content, options, "fact"),
                unless_known=unless_known,
                request_id=request_id,
            )
        )
        return _require_memory(response.memory)

    async def recall(
        self,
        query: str,
        *,
        agent: str = "assistant",
        limit: int = 10,
        min_score: float = 0.0,
        **filters: Unpack[MemoryFilters],
    ) -> list[v1.SearchHit]:
        """Search an agent's memories for ``query``, a text in plain words. Return the best hits first.

        Each hit has the parts of its score. Raises NotFoundError, InvalidArgumentError.
        """
        response = await self.memory.search_memories(
            v1.SearchMemoriesRequest(
                agent_id=agent, query=query, limit=limit, min_score=min_score, filter=_filter(filters)
            )
        )
        return response.hits

    async def list_memories(
        self, *, agent: str = "assistant", **filters: Unpack[MemoryFilters]
    ) -> AsyncGenerator[v1.Memory, None]:
        """Yield an agent's memories, newest first, page by page. Raises NotFoundError."""
        request = v1.ListMemoriesRequest(agent_id=agent, filter=_filter(filters), page_size=_PAGE)
        while True:
            page = await self.memory.list_memories(request)
            for memory in page.memories:
                yield memory
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def get_memory(self, memory_id: str, *, agent: str = "assistant") -> v1.Memory:
        """Return one memory. Raises NotFoundError, also for another agent's memory."""
        request = v1.GetMemoryRequest(agent_id=agent, memory_id=memory_id)
        return _require_memory((await self.memory.get_memory(request)).memory)

    async def supersede(
        self,
        memory_id: str,
        content: str,
        *,
        agent: str = "assistant",
        request_id: str = "",
        **options: Unpack[MemoryOptions],
    ) -> v1.Memory:
        """Replace a memory and return the new one.

        The old memory remains readable by its id; searches omit it. A new memory without a type gets the type
        of the old one. Raises NotFoundError, and InvalidArgumentError for a superseded memory.
        """
        response = await self.memory.supersede_memory(
            v1.SupersedeMemoryRequest(
                agent_id=agent,
                memory_id=memory_id,
                memory=_memory(content, options, ""),
                request_id=request_id,
            )
        )
        return _require_memory(response.memory)

    async def forget(self, memory_id: str, *, agent: str = "assistant", request_id: str = "") -> None:
        """Delete a memory and all data derived from it. Raises NotFoundError."""
        await self.memory.delete_memory(
            v1.DeleteMemoryRequest(agent_id=agent, memory_id=memory_id, request_id=request_id)
        )


def _memory(content: str, options: MemoryOptions, kind: str) -> v1.Memory:
    return v1.Memory(
        type=options.get("type", kind),
        content=content,
        significance=options.get("significance"),
        metadata=to_struct(options.get("metadata"), "metadata"),
        source=v1.MemorySource(
            conversation_id=options.get("conversation", ""),
            turn_id=options.get("turn", ""),
            speaker=options.get("speaker", ""),
            ordinal=options.get("ordinal", 0),
        ),
        contradicts_ids=list(options.get("contradicts", ())),
    )


def _filter(filters: MemoryFilters) -> v1.MemoryFilter:
    return v1.MemoryFilter(
        types=list(filters.get("types", ())),
        metadata=to_struct(filters.get("metadata"), "metadata"),
        conversation_id=filters.get("conversation", ""),
        turn_id=filters.get("turn", ""),
        start_time=filters.get("since"),
        end_time=filters.get("until"),
        include_superseded=filters.get("everything", False),
    )


def _require_memory(memory: v1.Memory | None) -> v1.Memory:
    if memory is None:
        raise ValueError("The server's response has no memory. Check the versions of SDK and server.")
    return memory
