"""The calls of a client that are about what agents remember."""

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
    """Type of the memory, in the library's own words; default ``fact``."""
    significance: float
    """Significance of the memory, from 0 to 1; default 0.5."""
    metadata: Mapping[str, Any]
    """Anything to be kept with it, and looked for by."""
    conversation: str
    """Id of the conversation that it came from."""
    turn: str
    """Id of the turn that it came from."""
    speaker: str
    """Name of the speaker."""
    ordinal: int
    """Its place among what was said there, from 1."""
    contradicts: Iterable[str]
    """Ids of memories that say the contrary."""


class MemoryFilters(TypedDict, total=False):
    """Filter of a list or a search. What is left out does not narrow it."""

    types: Iterable[str]
    """Only these types."""
    metadata: Mapping[str, Any]
    """Only those whose metadata has all of these fields with these values."""
    conversation: str
    """Only those from this conversation."""
    turn: str
    """Only those from this turn."""
    since: datetime
    """Only those written then or later."""
    until: datetime
    """Only those written before."""
    everything: bool
    """Superseded and archived ones too."""


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
        """Let an agent remember something; what is long is kept as it is, up to 1 MiB.

        ``unless_known``: what it knows already is given back and nothing is written. Sent twice with one
        ``request_id`` it is written once. Raises NotFoundError, InvalidArgumentError, UnavailableError.
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
        """Search an agent's memories for ``query``, in plain words, best first, each hit with the parts
        of its score. Raises NotFoundError, InvalidArgumentError."""
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
        """One memory. Raises NotFoundError, also where it is another agent's."""
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
        """Let an agent know better: the new memory. The old one stays readable and is no longer found; its
        type is the new one's, if that has none. Raises NotFoundError, InvalidArgumentError for one that was
        superseded already."""
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
        """Forget a memory, everywhere. Raises NotFoundError."""
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
        raise ValueError("the server answered without a memory")
    return memory
