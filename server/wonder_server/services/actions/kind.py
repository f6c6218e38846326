"""What an action kind is, and what it is given (document 5, ActionDef; features H3, E5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wonder_server.core.commands import Scope
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.memory import Draft, Hit, Memory
from wonder_server.ports.clock import Clock
from wonder_server.ports.model import Model

ExecutionContext = Scope
"""In whose name a task runs. Its ``key`` is the idempotency key of the whole task (operation id and
node); an action is given the same with its step appended, whichever attempt it is."""


class AgentMemory(Protocol):
    """What actions need of the memory service; its docstrings hold."""

    async def write(self, agent_id: str, draft: Draft) -> Memory: ...

    async def get(self, agent_id: str, memory_id: str) -> Memory: ...

    async def search(
        self, agent_id: str, query: str, *, limit: int = 0, types: Sequence[str] = ()
    ) -> list[Hit]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What actions work with. ``default_profile`` is the operator's model, never ``auto``."""

    model: Model
    memory: AgentMemory
    clock: Clock
    default_profile: ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionCall:
    """One call of an action.

    ``input`` is the action's config with the step's input over it, and fits the kind's schema.
    """

    input: Mapping[str, Any]
    context: ExecutionContext
    services: Services


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionKind:
    """An atomic operation that tasks are made of.

    ``run`` answers with a JSON value or raises `WonderError`; a transient one is retried by the
    executor. It lets itself be cancelled at any await. ``repeatable``: it may simply be run again
    after a crash (feature I4); say so in ``core/task/repeatable.py`` too. ``least_backoff_ms``: what
    it waits at least before its first retry. ``keeps_time``: it enforces a timeout of its own, and
    the executor does not apply the action's.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    repeatable: bool
    run: Callable[[ActionCall], Awaitable[Any]]
    least_backoff_ms: int = 0
    keeps_time: bool = False
