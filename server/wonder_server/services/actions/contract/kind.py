"""What an action kind is, and what it is given (document 5, ActionDef; features H3, E5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from wonder_server.core.actor.commands import Scope
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.frozen import Value
from wonder_server.core.memory.records import Change, Draft, Filter, Hit, Memory
from wonder_server.core.model import Usage
from wonder_server.ports.clock import Clock
from wonder_server.ports.mcp import Mcp
from wonder_server.ports.memories import Request
from wonder_server.ports.model import Model
from wonder_server.ports.prices import Prices
from wonder_server.ports.sandbox import Sandbox
from wonder_server.ports.web import Web
from wonder_server.ports.worktrees import Worktrees
from wonder_server.services.content.artifacts import Artifacts
from wonder_server.services.content.repositories import RepositoryService
from wonder_server.services.paging import Page, PageRequest
from wonder_server.services.workers.messages import Job

ExecutionContext = Scope
"""In whose name a task runs. Its ``key`` is the idempotency key of the whole task (operation id and
node); an action is given the same with its step appended, whichever attempt it is."""


class AgentMemory(Protocol):
    """What actions need of the memory service; its docstrings hold."""

    async def write(self, agent_id: str, draft: Draft) -> Memory: ...

    async def get(self, agent_id: str, memory_id: str) -> Memory: ...

    async def page(
        self, agent_id: str, request: PageRequest, wanted: Filter | None = None
    ) -> Page[Memory]: ...

    async def search(
        self, agent_id: str, query: str, *, limit: int = 0, wanted: Filter | None = None
    ) -> list[Hit]: ...

    def search_inline(
        self, agent_id: str, query: str, *, limit: int = 0, wanted: Filter | None = None
    ) -> list[Hit] | None: ...

    async def update(
        self, agent_id: str, memory_id: str, change: Change, *, request: Request | None = None
    ) -> Memory: ...

    async def supersede(
        self, agent_id: str, memory_id: str, draft: Draft, *, request: Request | None = None
    ) -> tuple[Memory, Memory]: ...

    async def delete(self, agent_id: str, memory_id: str, *, request: Request | None = None) -> None: ...


class NetworkPolicies(Protocol):
    """What projects allow."""

    async def network_policy(self, project_id: str) -> NetworkPolicy:
        """What a project's work may reach; empty is the project ``default``. PROJECT_NOT_FOUND."""
        ...


class RemoteWork(Protocol):
    """What actions need of the pool of remote workers, whose docstrings hold."""

    async def perform(self, job: Job) -> dict[str, Any]: ...


class UsageReporter(Protocol):
    """Charges calls of models to whoever actions work for: `begun` before each, `ended` once for each."""

    async def report_start(self, scope: Scope) -> None: ...

    def report_usage(self, scope: Scope, usage: Usage) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What actions work with. ``default_profile`` is the operator's model, never ``auto``. Without
    ``workers`` there is no remote work, without ``prices`` no cost is known, without ``sandbox`` and
    ``worktrees`` no command can be run. ``bills`` is told which models are asked, and what they cost."""

    model: Model
    memory: AgentMemory
    clock: Clock
    default_profile: ModelProfile
    web: Web
    mcp: Mcp
    policies: NetworkPolicies
    workers: RemoteWork | None = None
    prices: Prices | None = None
    sandbox: Sandbox | None = None
    worktrees: Worktrees | None = None
    usage_reporter: UsageReporter | None = None
    artifacts: Artifacts | None = None
    repositories: RepositoryService | None = None


class ProgressCallback(Protocol):
    """Takes how far an action is: for people, never part of a record."""

    def __call__(self, message: str = "", fraction: float | None = None, output: str = "") -> None: ...


Emit = Callable[[str, Mapping[str, Any]], None]
"""Takes an event's name and payload."""


def _ignore(*_: Any, **__: Any) -> None:
    """Where nobody listens."""


class ActionCall(Value, frozen=True, kw_only=True):
    """One call of an action.

    ``input`` is the action's config with the step's input over it, and fits the kind's schema.
    ``timeout_ms`` is what the action has for each try. ``repeatable``: it may be run again when nobody
    knows whether it was done; `core.task.effects` says how an action that may not reports what it knows.
    ``idempotent`` is what the action's definition says of that; None if it says nothing.
    """

    input: Mapping[str, Any]
    context: ExecutionContext
    services: Services
    timeout_ms: int = 30_000
    repeatable: bool = False
    idempotent: bool | None = None
    progress: ProgressCallback = _ignore
    emit: Emit = _ignore


class InlineNotPossibleError(Exception):
    """Raised by the ``quick`` of an action that cannot do without waiting this time, and has done nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionKind:
    """An atomic operation that tasks are made of.

    ``run`` answers with a JSON value or raises `WonderError`; a transient one is retried by the
    executor. It lets itself be cancelled at any await. `ACTION_EFFECTS` declares the kind's effect,
    and with it whether the action is repeatable. ``min_backoff_ms``: what it waits at least before its
    first retry. ``keeps_time``: it enforces a timeout of its own, and
    the executor does not apply the action's. ``quick`` does the same as ``run`` without ever waiting
    and without any effect, so that its call needs no key of its own: its context is the task's. Set
    where that is possible; where it is so only at times, it raises `MustWaitError` at others.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    run: Callable[[ActionCall], Awaitable[Any]]
    min_backoff_ms: int = 0
    enforces_timeout: bool = False
    run_inline: Callable[[ActionCall], Any] | None = None
