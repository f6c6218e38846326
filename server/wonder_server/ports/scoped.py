"""Views of stores for one access scope: the only ports through which use cases reach stores.

A view has the methods of its store. What is outside of its scope does not exist for it: reads and lists leave
it out, and a change of it raises the error of a missing resource. `adapters.scoped` makes views, and only
``compose`` holds the stores themselves. A store is no view, since it has no ``scope``.
"""

from __future__ import annotations

from typing import Protocol

from wonder_server.core.idempotency import CompletedRequest
from wonder_server.ports.access import AccessScope
from wonder_server.ports.accounts import Accounts
from wonder_server.ports.catalog import Catalog
from wonder_server.ports.journal import Entry, Loaded
from wonder_server.ports.memories import Memories
from wonder_server.ports.memory_blocks import MemoryBlocks
from wonder_server.ports.records import Records
from wonder_server.ports.repositories import Repositories
from wonder_server.ports.vectors import Vectors, VectorSource


class Scoped(Protocol):
    """A view for one access scope."""

    @property
    def scope(self) -> AccessScope:
        """The access scope of the view."""
        ...


class ScopedRecords(Records, Scoped, Protocol):
    """The record of the conversations and runs in a scope."""

    async def shows(self, actor_id: str) -> bool:
        """Return True if the conversation or run exists in the scope. The scope of everything shows every id
        without reading."""
        ...


class JournalView(Protocol):
    """The journal of one actor. The methods are those of `Journal`, for an actor outside of the scope too:
    it does not exist, and has no entries."""

    async def load(self, actor_id: str) -> Loaded | None: ...

    async def entries(self, actor_id: str, after: int, limit: int) -> list[Entry]: ...

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None:
        """Return the answer of a request. The key names the principal, so no other finds it."""
        ...


class ScopedJournals(Scoped, Protocol):
    """The journals of the conversations and runs in a scope. Only the loops write to journals."""

    def of(self, actor_id: str) -> JournalView: ...

    def holds(self, actor_id: str) -> bool: ...

    async def completed_request(self, scope: str, request_id: str) -> CompletedRequest | None: ...

    async def members(self, root: str) -> list[str]: ...


class ScopedAccounts(Accounts, Scoped, Protocol):
    """The usage of the agents in a scope. Others have no account."""


class ScopedCatalog(Catalog, Scoped, Protocol):
    """The libraries, definitions, agents and projects in a scope.

    A commit raises the …_NOT_FOUND of a resource outside of the scope, and PERMISSION_DENIED for a new
    project or library, which no scope of some has. Names are those of the scope's tenant.
    """

    def whole_tenant(self) -> ScopedCatalog | None:
        """Return the view of everything in the tenant of the scope; None for the scope of everything."""
        ...


class ScopedMemories(Memories, Scoped, Protocol):
    """The memories of the agents in a scope. Methods raise AGENT_NOT_FOUND for others."""


class ScopedMemoryBlocks(MemoryBlocks, Scoped, Protocol):
    """The memory blocks of the agents in a scope. Methods raise AGENT_NOT_FOUND for others."""


class ScopedVectorSource(VectorSource, Scoped, Protocol):
    """The stored vectors of the agents in a scope. Methods raise AGENT_NOT_FOUND for others."""


class ScopedVectors(Vectors, Scoped, Protocol):
    """The indexes of the agents in a scope. Methods raise AGENT_NOT_FOUND for others."""


class ScopedRepositories(Repositories, Scoped, Protocol):
    """The documents of the projects in a scope. `of` and `remove` raise PROJECT_NOT_FOUND for others."""
