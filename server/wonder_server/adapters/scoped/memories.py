"""Views of the memories of agents, with their vectors, and of the documents of projects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from wonder_server.core.errors import Reason, not_found
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.memory.blocks import Author, BlockChange, BlockKey, ChangeKind, MemoryBlock
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.ranking import Candidate
from wonder_server.core.memory.records import Filter, Memory
from wonder_server.ports.access import AccessScope
from wonder_server.ports.catalog import Agents
from wonder_server.ports.memories import AnsweredRequest, Entry, Memories, Stored, StoredText
from wonder_server.ports.memory_blocks import MemoryBlocks
from wonder_server.ports.repositories import Repositories, Repository
from wonder_server.ports.vectors import NO_LIMIT, Vector, Vectors, VectorSource


class AgentCheck:
    """The check that an agent is in a scope. ``agents`` is a view for the same scope."""

    def __init__(self, agents: Agents, scope: AccessScope) -> None:
        self._agents = agents
        self.scope = scope

    async def __call__(self, agent_id: str) -> None:
        """Raise AGENT_NOT_FOUND if the agent is outside of the scope."""
        if self.scope.projects is not None and await self._agents.agent(agent_id) is None:
            raise not_found(Reason.AGENT_NOT_FOUND, agent_id, field="agent_id")


class MemoriesView:
    """Implements the port ``ScopedMemories``."""

    def __init__(self, memories: Memories, check: AgentCheck) -> None:
        self._memories = memories
        self._check = check
        self.scope = check.scope

    async def answered(self, request: IdempotencyKey) -> AnsweredRequest | None:
        # The key names its caller, who had the agent in the scope. The agent may be deleted.
        return await self._memories.answered(request)

    async def add(
        self,
        agent_id: str,
        entries: Sequence[Entry],
        embedder: str,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> list[Stored]:
        await self._check(agent_id)
        return await self._memories.add(agent_id, entries, embedder, now_ms, request)

    async def get(self, agent_id: str, ids: Sequence[str], *, lenient: bool = False) -> list[Memory]:
        await self._check(agent_id)
        return await self._memories.get(agent_id, ids, lenient=lenient)

    async def page(self, agent_id: str, wanted: Filter, before_id: str, limit: int) -> list[Memory]:
        await self._check(agent_id)
        return await self._memories.page(agent_id, wanted, before_id, limit)

    async def recall(
        self,
        agent_id: str,
        query: MemoryQuery,
        near: Mapping[int, float],
        wanted: Filter,
        limit: int,
        read: Callable[[Sequence[Candidate]], Collection[str]] | None = None,
    ) -> list[Candidate]:
        await self._check(agent_id)
        return await self._memories.recall(agent_id, query, near, wanted, limit, read)

    def is_empty(self, agent_id: str) -> bool:
        # Without reading, a scope of some projects does not know whether it has the agent.
        return self.scope.projects is None and self._memories.is_empty(agent_id)

    async def replace(
        self,
        memory: Memory,
        expected_version: int,
        text: StoredText | None,
        embedder: str,
        request: IdempotencyKey | None = None,
    ) -> Stored:
        await self._check(memory.agent_id)
        return await self._memories.replace(memory, expected_version, text, embedder, request)

    async def remove(
        self,
        agent_id: str,
        memory_id: str,
        expected_version: int | None,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> Stored | None:
        await self._check(agent_id)
        return await self._memories.remove(agent_id, memory_id, expected_version, now_ms, request)


class MemoryBlocksView:
    """Implements the port ``ScopedMemoryBlocks``."""

    def __init__(self, blocks: MemoryBlocks, check: AgentCheck) -> None:
        self._blocks = blocks
        self._check = check
        self.scope = check.scope

    def known(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock] | None:
        # Without reading, a scope of some projects does not know whether it has the agent.
        return self._blocks.known(agent_id, subjects) if self.scope.projects is None else None

    async def of(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock]:
        await self._check(agent_id)
        return await self._blocks.of(agent_id, subjects)

    async def page(self, agent_id: str, after: tuple[str, str], limit: int) -> list[MemoryBlock]:
        await self._check(agent_id)
        return await self._blocks.page(agent_id, after, limit)

    async def change(
        self,
        key: BlockKey,
        edit: Callable[[MemoryBlock | None], MemoryBlock],
        expected_version: int | None,
        change: tuple[ChangeKind, Author],
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> MemoryBlock:
        await self._check(key.agent_id)
        return await self._blocks.change(key, edit, expected_version, change, now_ms, request)

    async def remove(
        self,
        key: BlockKey,
        expected_version: int | None,
        author: Author,
        now_ms: int,
        request: IdempotencyKey | None = None,
    ) -> None:
        await self._check(key.agent_id)
        await self._blocks.remove(key, expected_version, author, now_ms, request)

    async def changes(self, key: BlockKey, limit: int) -> list[BlockChange]:
        await self._check(key.agent_id)
        return await self._blocks.changes(key, limit)


class VectorSourceView:
    """Implements the port ``ScopedVectorSource``."""

    def __init__(self, source: VectorSource, check: AgentCheck) -> None:
        self._source = source
        self._check = check
        self.scope = check.scope

    async def vectors(
        self, agent_id: str, embedder: str, after: int = 0, limit: int = NO_LIMIT
    ) -> list[Vector]:
        await self._check(agent_id)
        return await self._source.vectors(agent_id, embedder, after, limit)

    async def keys(self, agent_id: str, embedder: str, wanted: Filter) -> list[int]:
        await self._check(agent_id)
        return await self._source.keys(agent_id, embedder, wanted)


class VectorsView:
    """Implements the port ``ScopedVectors``."""

    def __init__(self, vectors: Vectors, check: AgentCheck) -> None:
        self._vectors = vectors
        self._check = check
        self.scope = check.scope

    async def add(self, agent_id: str, vectors: Sequence[Vector]) -> None:
        await self._check(agent_id)
        await self._vectors.add(agent_id, vectors)

    async def remove(self, agent_id: str, keys: Collection[int]) -> None:
        await self._check(agent_id)
        await self._vectors.remove(agent_id, keys)

    async def nearest(
        self, agent_id: str, vector: bytes, limit: int, among: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        await self._check(agent_id)
        return await self._vectors.nearest(agent_id, vector, limit, among)

    async def close(self) -> None:
        await self._vectors.close()


class RepositoriesView:
    """Implements the port ``ScopedRepositories``, for repositories that have the ids of projects as names."""

    def __init__(self, repositories: Repositories, scope: AccessScope) -> None:
        self._repositories = repositories
        self.scope = scope

    def of(self, name: str) -> Repository:
        self._check(name)
        return self._repositories.of(name)

    def id_of(self, content: bytes) -> str:
        return self._repositories.id_of(content)

    async def remove(self, name: str) -> None:
        self._check(name)
        await self._repositories.remove(name)

    async def names(self) -> list[str]:
        return [name for name in await self._repositories.names() if self.scope.has_project(name)]

    def _check(self, project_id: str) -> None:
        if not self.scope.has_project(project_id):
            raise not_found(Reason.PROJECT_NOT_FOUND, project_id, field="project_id")
