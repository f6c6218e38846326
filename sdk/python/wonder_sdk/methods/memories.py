"""Client methods for the memories of agents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from datetime import datetime
from typing import TypedDict, Unpack

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.json_types import JsonObject
from wonder_sdk.methods.options import check_options
from wonder_sdk.methods.paging import pages
from wonder_sdk.values import to_struct

_PAGE = 200


class MemoryOptions(TypedDict, total=False):
    """Options of a memory to write."""

    type: str
    """Type of the memory, as the library defines it; default ``fact``."""
    significance: float
    """Significance of the memory, from 0 to 1; default 0.5."""
    metadata: JsonObject
    """JSON to store with the memory; filters match its fields."""
    conversation: str
    """Id of the conversation that the memory comes from."""
    turn: str
    """Id of the turn that the memory comes from."""
    speaker: str
    """Name of the speaker."""
    ordinal: int
    """Position of the message in its conversation, from 1."""
    role: v1.MessageRole
    """Role of the speaker: ``MessageRole.USER`` or ``MessageRole.AGENT``."""
    said_at: datetime
    """Time at which it was said; default: the time of the call."""
    contradicts: Iterable[str]
    """Ids of memories that this one contradicts."""
    subject: str
    """Id of the user whom the memory is about."""
    message: str
    """Id of the message that the memory comes from."""
    speaker_id: str
    """Id of the speaker."""


class MemoryFilters(TypedDict, total=False):
    """Filter of a list or a search. An omitted condition matches every memory."""

    types: Iterable[str]
    """Only these types."""
    metadata: JsonObject
    """Only memories whose metadata has all of these fields with these values."""
    conversation: str
    """Only memories from this conversation."""
    turn: str
    """Only memories from this turn."""
    since: datetime
    """Only memories written at this time or later."""
    until: datetime
    """Only memories written before this time."""
    said_since: datetime
    """Only memories said at this time or later."""
    said_until: datetime
    """Only memories said before this time."""
    subject: str
    """Only memories about this user."""
    everything: bool
    """Superseded and archived memories too."""


class MemoryBlockOptions(TypedDict, total=False):
    """Options of a memory block to set."""

    subject: str
    """Id of the user whom the block is about; default: the agent's own block."""
    description: str
    """Text for the model that says what the block is for."""
    max_characters: int
    """Maximum number of characters of the content; default 2,000."""
    read_only: bool
    """True if tools cannot change the block."""
    etag: str
    """Etag that the block must still have."""


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

        With ``unless_known``, the server returns an existing memory of the same type, subject and
        content and writes nothing. Case and white space make no difference.
        Requests with the same ``request_id`` write one memory. Raises NotFoundError, InvalidArgumentError,
        UnavailableError.
        """
        check_options(options, MemoryOptions, self.remember)
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
        min_relevance: float = 0.0,
        now: datetime | None = None,
        **filters: Unpack[MemoryFilters],
    ) -> list[v1.SearchHit]:
        """Search an agent's memories for ``query``, a text in plain words. Return the best hits first.

        Each hit has the parts of its score; ``min_relevance`` omits hits that match the query less. Dates in
        the query ("last week") are relative to ``now``, by default the server's time.

        Raises NotFoundError, InvalidArgumentError.
        """
        check_options(filters, MemoryFilters, self.recall)
        response = await self.memory.search_memories(
            v1.SearchMemoriesRequest(
                agent_id=agent,
                query=query,
                limit=limit,
                min_score=min_score,
                min_relevance=min_relevance,
                now=now,
                filter=_filter(filters),
            )
        )
        return response.hits

    async def list_memories(
        self, *, agent: str = "assistant", **filters: Unpack[MemoryFilters]
    ) -> AsyncGenerator[v1.Memory, None]:
        """Yield an agent's memories, newest first, page by page. Raises NotFoundError."""
        check_options(filters, MemoryFilters, self.list_memories)
        request = v1.ListMemoriesRequest(agent_id=agent, filter=_filter(filters), page_size=_PAGE)
        async for page in pages(self.memory.list_memories, request):
            for memory in page.memories:
                yield memory

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

        The old memory remains readable by its id; searches omit it. A new memory without a type or a
        subject gets that of the old one. Raises NotFoundError, and InvalidArgumentError for a superseded
        memory.
        """
        check_options(options, MemoryOptions, self.supersede)
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

    async def list_memory_blocks(
        self, *, agent: str = "assistant", subject: str | None = None
    ) -> AsyncGenerator[v1.MemoryBlock, None]:
        """Yield an agent's memory blocks; with a ``subject``, those about that user ("" for the agent's own).

        Raises NotFoundError.
        """
        request = v1.ListMemoryBlocksRequest(agent_id=agent, subject=subject, page_size=_PAGE)
        async for page in pages(self.memory.list_memory_blocks, request):
            for block in page.blocks:
                yield block

    async def get_memory_block(
        self, label: str, *, agent: str = "assistant", subject: str = ""
    ) -> v1.MemoryBlock:
        """Return one memory block. Raises NotFoundError."""
        request = v1.GetMemoryBlockRequest(agent_id=agent, label=label, subject=subject)
        return _require_block((await self.memory.get_memory_block(request)).block)

    async def set_memory_block(
        self,
        label: str,
        content: str,
        *,
        agent: str = "assistant",
        request_id: str = "",
        **options: Unpack[MemoryBlockOptions],
    ) -> v1.MemoryBlock:
        """Create a memory block, or replace all its fields.

        With an ``etag``, replace only that version. Raises InvalidArgumentError, NotFoundError, AbortedError.
        """
        check_options(options, MemoryBlockOptions, self.set_memory_block)
        block = v1.MemoryBlock(label=label, content=content, **options)
        request = v1.SetMemoryBlockRequest(agent_id=agent, block=block, request_id=request_id)
        return _require_block((await self.memory.set_memory_block(request)).block)

    async def delete_memory_block(
        self, label: str, *, agent: str = "assistant", subject: str = "", etag: str = "", request_id: str = ""
    ) -> None:
        """Delete a memory block. Raises NotFoundError, AbortedError for another version than ``etag``."""
        await self.memory.delete_memory_block(
            v1.DeleteMemoryBlockRequest(
                agent_id=agent, label=label, subject=subject, etag=etag, request_id=request_id
            )
        )

    async def list_memory_block_changes(
        self, label: str, *, agent: str = "assistant", subject: str = ""
    ) -> AsyncGenerator[v1.MemoryBlockChange, None]:
        """Yield the newest 50 changes of a memory block, newest first. Raises NotFoundError."""
        request = v1.ListMemoryBlockChangesRequest(
            agent_id=agent, label=label, subject=subject, page_size=_PAGE
        )
        async for page in pages(self.memory.list_memory_block_changes, request):
            for change in page.changes:
                yield change


def _require_block(block: v1.MemoryBlock | None) -> v1.MemoryBlock:
    if block is None:
        raise ValueError("The server's response has no memory block. Check the versions of SDK and server.")
    return block


def _memory(content: str, options: MemoryOptions, kind: str) -> v1.Memory:
    return v1.Memory(
        type=options.get("type", kind),
        content=content,
        significance=options.get("significance"),
        metadata=to_struct(options.get("metadata"), "metadata"),
        source=v1.MemorySource(
            conversation_id=options.get("conversation", ""),
            turn_id=options.get("turn", ""),
            message_id=options.get("message", ""),
            speaker=options.get("speaker", ""),
            speaker_id=options.get("speaker_id", ""),
            ordinal=options.get("ordinal", 0),
            role=options.get("role", v1.MessageRole.UNSPECIFIED),
        ),
        said_at=options.get("said_at"),
        subject=options.get("subject", ""),
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
        said_start_time=filters.get("said_since"),
        said_end_time=filters.get("said_until"),
        include_superseded=filters.get("everything", False),
        subject=filters.get("subject", ""),
    )


def _require_memory(memory: v1.Memory | None) -> v1.Memory:
    if memory is None:
        raise ValueError("The server's response has no memory. Check the versions of SDK and server.")
    return memory
