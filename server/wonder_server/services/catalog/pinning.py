"""Pins on demand: what a turn, run or task starts with, resolved once and remembered (feature A1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from wonder_server.core.definitions import pinning
from wonder_server.core.definitions.index import DefinitionIndex
from wonder_server.core.definitions.references import parse_reference
from wonder_server.core.definitions.resources import Agent, Definition
from wonder_server.core.definitions.specs import (
    Kind,
    ModelProfile,
    Persona,
    PinnedAgent,
    PinnedTask,
    PinnedWorkflow,
    WindowStrategy,
)
from wonder_server.ports.catalog import Catalog, Change, Put
from wonder_server.services.catalog.dependencies import load_dependencies
from wonder_server.services.catalog.not_found import agent_not_found, definition_not_found
from wonder_server.services.catalog.transactions import CatalogTransactions

MAX_CACHED = 10_000

SUMMARY_WORKFLOW = "wonder/std/summarize_history"
"""The workflow that sums up for agents whose persona says so."""

P = TypeVar("P")

AddContextWindow = Callable[[ModelProfile], Awaitable[ModelProfile]]


class Pins:
    """Pins agents, workflows and tasks.

    A known pin is one dictionary look-up. Changes that go through `CatalogWrites` make those that they
    may touch be resolved anew; pins that were handed out stay as they are.
    """

    def __init__(
        self,
        catalog: Catalog,
        transactions: CatalogTransactions,
        resolve_profile: pinning.ResolveProfile,
        add_context_window: AddContextWindow | None = None,
    ) -> None:
        """``settle`` decides provider, model and format of profiles that leave them open; ``inform``
        adds what is known of the model."""
        self._catalog = catalog
        self._transactions = transactions
        self._resolve_profile = resolve_profile
        self._add_context_window = add_context_window
        self._cache: dict[tuple[str, str, str], Any] = {}
        transactions.add_listener(self._invalidate)

    async def agent(self, key: str) -> PinnedAgent:
        """The agent of this id or name with all that its turns need.

        AGENT_NOT_FOUND; DEFINITION_NOT_FOUND if its persona leads nowhere.
        """
        return await self._pin(("agent", key, ""), lambda: self._resolve_agent(key))

    async def workflow(self, text: str, *, library: str = "") -> PinnedWorkflow:
        """The workflow that a reference (seen from ``library``) leads to.

        DEFINITION_NOT_FOUND; AGENT_NOT_FOUND if a node of it, or of one inside, calls an agent that is not
        there.
        """
        return await self._pin(("workflow", text, library), lambda: self._resolve_workflow(text, library))

    async def task(self, text: str, *, library: str = "") -> PinnedTask:
        """The task that a reference (seen from ``library``) leads to. DEFINITION_NOT_FOUND."""
        return await self._pin(("task", text, library), lambda: self._resolve_task(text, library))

    async def _pin(self, key: tuple[str, str, str], resolve: Callable[[], Awaitable[P]]) -> P:
        known: P | None = self._cache.get(key)
        if known is not None:
            return known
        # With the writer's lock, so that all that is read belongs to one state of the catalog.
        async with self._transactions.lock:
            pin = await resolve()
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            if not _lacks_agent(pin):
                self._cache[key] = pin
            return pin

    def _invalidate(self, changes: Sequence[Change]) -> None:
        if any(isinstance(change.resource, Definition) for change in changes):
            self._cache.clear()
        elif any(isinstance(change.resource, Agent) and not _is_new(change) for change in changes):
            self._cache = {key: pin for key, pin in self._cache.items() if key[0] == "task"}

    async def _resolve_workflow(self, text: str, library: str) -> PinnedWorkflow:
        definition = await self._definition(text, library, Kind.WORKFLOW)
        shelf = DefinitionIndex()
        called = await load_dependencies(shelf, self._catalog, [(definition.spec, definition.library)])
        return pinning.pin_workflow(definition, shelf, await self._agents(called))

    async def _resolve_task(self, text: str, library: str) -> PinnedTask:
        definition = await self._definition(text, library, Kind.TASK)
        shelf = DefinitionIndex()
        await load_dependencies(shelf, self._catalog, [(definition.spec, definition.library)])
        return pinning.pin_task(definition, shelf)

    async def _definition(self, text: str, library: str, kind: Kind) -> Definition:
        reference = parse_reference(text)
        found = reference and await self._catalog.definition(reference.within(library))
        if not found or found.kind is not kind:
            within = reference and reference.within(library)
            raise await definition_not_found(self._catalog, text, within, kind=kind, found=found or None)
        return found

    async def _resolve_agent(self, key: str) -> PinnedAgent:
        agent = await self._catalog.agent(key) if key else None
        if agent is None:
            raise await agent_not_found(self._catalog, key)
        persona, library, reference = await self._persona(agent)
        shelf = DefinitionIndex()
        called = await self._agents(await load_dependencies(shelf, self._catalog, [(persona, library)]))
        pinned = pinning.pin_agent(agent, persona, library, shelf, called, self._resolve_profile)
        if self._add_context_window is not None:
            profile = replace(pinned.profile, spec=await self._add_context_window(pinned.profile.spec))
            pinned = replace(pinned, profile=profile)
        if persona.context_window.strategy is WindowStrategy.SUMMARIZE:
            pinned = replace(pinned, summary=await self._resolve_workflow(SUMMARY_WORKFLOW, ""))
        return replace(pinned, persona_ref=reference)

    async def _persona(self, agent: Agent) -> tuple[Persona, str, str]:
        """An agent's persona, with defaults; the library that its references start from; its revision
        (`PinnedAgent.persona_ref`)."""
        if agent.persona is not None:
            return pinning.with_defaults(agent.persona), "", ""
        definition = await self._definition(agent.persona_id, "", Kind.PERSONA)
        assert isinstance(definition.spec, Persona)
        return pinning.with_defaults(definition.spec), definition.library, str(definition.pin)

    async def _agents(self, called: Iterable[str]) -> dict[str, str]:
        """The ids of those of the named agents that there are, by what they are called."""
        found = [(key, await self._catalog.agent(key)) for key in called]
        return {key: agent.id for key, agent in found if agent is not None}


def _lacks_agent(pin: object) -> bool:
    """Whether a tool of it calls an agent that is not there. One that is made later is to be found."""
    if not isinstance(pin, PinnedAgent):
        return False
    return any(tool.spec.target_type == "agent" and not tool.agent_id for tool in pin.tools)


def _is_new(change: Change) -> bool:
    """What is new cannot be part of a pin; a changed agent may be called by others' tools and nodes."""
    return isinstance(change, Put) and change.resource.version == 1
