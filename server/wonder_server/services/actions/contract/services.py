"""Ports and services that actions use, grouped by what an action reaches with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from wonder_server.core.actor.commands import Scope
from wonder_server.core.conversation.context.result_excerpts import TextPiece
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.definitions.specs import ModelProfile, PinnedProfile
from wonder_server.core.errors import Fault
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.blocks import Author, BlockKey, MemoryBlock
from wonder_server.core.memory.ranking import Hit
from wonder_server.core.memory.records import Change, Draft, Filter, Memory
from wonder_server.core.model import Usage
from wonder_server.ports.clock import Clock
from wonder_server.ports.files import NO_FILES, RequestFiles
from wonder_server.ports.mcp import Mcp
from wonder_server.ports.model import Model
from wonder_server.ports.prices import Prices
from wonder_server.ports.sandbox import Sandbox
from wonder_server.ports.web import Web
from wonder_server.ports.worktrees import Worktrees
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.content.files import FileContents
from wonder_server.services.content.repositories import RepositoryService
from wonder_server.services.history.agent_history import FoundMessage, ReadMessage, ReadRequest
from wonder_server.services.paging import Page, PageRequest
from wonder_server.services.workers.messages import Job


class AgentMemory(Protocol):
    """The methods of `MemoryService` that actions call."""

    async def write(self, agent_id: str, draft: Draft) -> Memory: ...

    async def get(self, agent_id: str, memory_id: str) -> Memory: ...

    async def page(
        self, agent_id: str, request: PageRequest, wanted: Filter | None = None
    ) -> Page[Memory]: ...

    async def search(
        self,
        agent_id: str,
        query: str,
        *,
        limit: int = 0,
        wanted: Filter | None = None,
        now_ms: int | None = None,
    ) -> list[Hit]: ...

    def search_inline(
        self, agent_id: str, query: str, *, limit: int = 0, wanted: Filter | None = None
    ) -> list[Hit] | None: ...

    async def update(
        self, agent_id: str, memory_id: str, change: Change, *, request: IdempotencyKey | None = None
    ) -> Memory: ...

    async def supersede(
        self, agent_id: str, memory_id: str, draft: Draft, *, request: IdempotencyKey | None = None
    ) -> tuple[Memory, Memory]: ...

    async def delete(
        self, agent_id: str, memory_id: str, *, request: IdempotencyKey | None = None
    ) -> None: ...


class AgentBlocks(Protocol):
    """The methods of `MemoryBlockService` that actions call."""

    def known(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock] | None: ...

    async def of(self, agent_id: str, subjects: Sequence[str]) -> list[MemoryBlock]: ...

    async def replace(
        self, key: BlockKey, texts: tuple[str, str], author: Author, request: IdempotencyKey | None = None
    ) -> MemoryBlock: ...

    async def append(
        self, key: BlockKey, text: str, author: Author, request: IdempotencyKey | None = None
    ) -> MemoryBlock: ...


class ProfilePinning(Protocol):
    """Saved model profiles."""

    async def pin_profiles(self, reference: str) -> Sequence[PinnedProfile]:
        """Return the model profile of this reference, and its fallbacks. Raises DEFINITION_NOT_FOUND."""
        ...


class NetworkPolicies(Protocol):
    """The network policies of projects."""

    async def network_policy(self, project_id: str) -> NetworkPolicy:
        """Return the policy of a project; an empty id is the project ``default``. Raises
        PROJECT_NOT_FOUND."""
        ...


class RemoteWork(Protocol):
    """The method of `WorkerPool` that actions call."""

    async def perform(self, job: Job) -> JsonDict: ...


class UsageReporter(Protocol):
    """Charges the usage of a model call to the agent of its scope."""

    async def report_start(self, scope: Scope) -> None:
        """Record that a model call starts. Called once before each call."""
        ...

    def report_usage(self, scope: Scope, usage: Usage) -> None:
        """Record the usage of a model call. Called once after each call."""
        ...


class BudgetReservations(Protocol):
    """The budgets that limit the model calls of actions."""

    def reserve_action(
        self, scope: Scope, profile: ModelProfile, request_tokens: int
    ) -> AbstractAsyncContextManager[Fault | None]:
        """Reserve the probable usage of a call until the context ends. Yield the reason why a budget does not
        allow the call; None if it may be made."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """Language models. ``default_profile`` is the operator's, with its provider resolved (never ``auto``).
    Without ``prices``, results have no cost. Without ``usage_reporter``, usage is not charged. Without
    ``budgets``, calls are not limited. ``profiles`` are the saved model profiles. ``resolve`` decides
    provider, model and format of a profile."""

    model: Model
    default_profile: ModelProfile
    prices: Prices | None = None
    usage_reporter: UsageReporter | None = None
    budgets: BudgetReservations | None = None
    files: RequestFiles = NO_FILES
    profiles: ProfilePinning | None = None
    resolve: Callable[[ModelProfile], ModelProfile] = lambda profile: profile


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAccess:
    """HTTP and MCP clients, and the policies that limit them."""

    web: Web
    mcp: Mcp
    policies: NetworkPolicies


@dataclass(frozen=True, slots=True)
class ContentAccess:
    """Documents and repositories of projects, None where the server has no git; files of projects."""

    artifacts: Artifacts | None = None
    repositories: RepositoryService | None = None
    files: FileContents | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionAccess:
    """Places outside the server process where actions execute: commands in ``sandbox`` on ``worktrees``, jobs
    on ``workers``. None where the server has no such place."""

    sandbox: Sandbox | None = None
    worktrees: Worktrees | None = None
    workers: RemoteWork | None = None


class ConversationHistory(Protocol):
    """The methods of `AgentHistory` that actions call."""

    async def search(
        self, scope: Scope, text: str, request: PageRequest, *, best_first: bool = False
    ) -> Page[FoundMessage]: ...

    async def read(self, scope: Scope, request: ReadRequest) -> list[ReadMessage]: ...

    async def read_result(self, scope: Scope, result_id: str, offset: int, length: int) -> TextPiece: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that an action may use besides its input. ``memory_blocks`` is None on a server without a
    store of them."""

    models: ModelAccess
    memory: AgentMemory
    history: ConversationHistory
    network: NetworkAccess
    clock: Clock
    memory_blocks: AgentBlocks | None = None
    content: ContentAccess = ContentAccess()
    execution: ExecutionAccess = ExecutionAccess()
