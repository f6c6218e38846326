"""Pins of turns, runs and tasks, resolved on demand and cached (feature A1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from wonder_server.core.definitions import pinning
from wonder_server.core.definitions.index import DefinitionIndex
from wonder_server.core.definitions.references import parse_reference
from wonder_server.core.definitions.resources import Agent, Definition
from wonder_server.core.definitions.specs import (
    Kind,
    ModelProfile,
    Persona,
    PinnedAgent,
    PinnedProfile,
    PinnedTask,
    PinnedWorkflow,
    WindowStrategy,
)
from wonder_server.ports.catalog import Change, Put
from wonder_server.ports.scoped import ScopedCatalog
from wonder_server.services.catalog.dependencies import load_dependencies
from wonder_server.services.catalog.not_found import agent_not_found, definition_not_found
from wonder_server.services.catalog.transactions import CatalogTransactions

MAX_CACHED = 10_000

SUMMARY_WORKFLOW = "wonder/std/summarize_history"
"""The workflow that summarizes the history for personas with the strategy ``summarize``."""

P = TypeVar("P", PinnedAgent, PinnedWorkflow, PinnedTask)

AddModelFacts = Callable[[ModelProfile], Awaitable[ModelProfile]]


class Pins:
    """Pins agents, workflows and tasks.

    A cached pin costs one dictionary lookup. A change through `CatalogTransactions` invalidates the pins that
    it may affect; pins in use do not change."""

    def __init__(
        self,
        catalog: ScopedCatalog,
        transactions: CatalogTransactions,
        resolve_profile: pinning.ResolveProfile,
        add_model_facts: AddModelFacts | None = None,
        *,
        max_result_bytes: int = 0,
    ) -> None:
        """``resolve_profile`` fills in the provider, model and format that a profile leaves open.
        ``add_model_facts`` adds the known facts of the model to its profile. ``max_result_bytes`` goes into
        the pins of agents."""
        self._catalog = catalog
        self._transactions = transactions
        self._resolve_profile = resolve_profile
        self._add_model_facts = add_model_facts
        self._max_result_bytes = max_result_bytes
        self._cache: dict[tuple[str, str, str], PinnedAgent | PinnedWorkflow | PinnedTask] = {}
        transactions.add_listener(self._invalidate)

    async def agent(self, key: str) -> PinnedAgent:
        """Return the agent with this id or name, with everything that its turns need.

        Raises AGENT_NOT_FOUND, and DEFINITION_NOT_FOUND if its persona does not exist."""
        return await self._pin(("agent", key, ""), lambda: self._resolve_agent(key))

    async def profiles(self, text: str) -> tuple[PinnedProfile, ...]:
        """Return the model profile of a reference, and its fallbacks. Raises DEFINITION_NOT_FOUND."""
        async with self._transactions.lock:
            definition = await self._definition(text, "", Kind.MODEL_PROFILE)
            assert isinstance(definition.spec, ModelProfile)
            index = DefinitionIndex()
            await load_dependencies(index, self._catalog, [(definition.spec, definition.library)])
            first = PinnedProfile(pin=definition.pin, spec=self._resolve_profile(definition.spec))
            fallbacks = pinning.pin_fallbacks(definition, index, self._resolve_profile)
            return await self._with_facts((first, *fallbacks))

    async def _with_facts(self, profiles: tuple[PinnedProfile, ...]) -> tuple[PinnedProfile, ...]:
        if self._add_model_facts is None:
            return profiles
        return tuple([replace(each, spec=await self._add_model_facts(each.spec)) for each in profiles])

    async def workflow(self, text: str, *, library: str = "") -> PinnedWorkflow:
        """Return the workflow of a reference, which is relative to ``library``.

        Raises DEFINITION_NOT_FOUND, and AGENT_NOT_FOUND if a node of it, or of an inner workflow, calls an
        agent that does not exist."""
        return await self._pin(("workflow", text, library), lambda: self._resolve_workflow(text, library))

    async def task(self, text: str, *, library: str = "") -> PinnedTask:
        """Return the task of a reference, which is relative to ``library``. Raises DEFINITION_NOT_FOUND."""
        return await self._pin(("task", text, library), lambda: self._resolve_task(text, library))

    async def _pin(self, key: tuple[str, str, str], resolve: Callable[[], Awaitable[P]]) -> P:
        known = cast("P | None", self._cache.get(key))
        if known is not None:
            return known
        # Under the writer's lock, so that all reads see one state of the catalog.
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
        index = DefinitionIndex()
        called = await load_dependencies(index, self._catalog, [(definition.spec, definition.library)])
        return pinning.pin_workflow(definition, index, await self._agents(called))

    async def _resolve_task(self, text: str, library: str) -> PinnedTask:
        definition = await self._definition(text, library, Kind.TASK)
        index = DefinitionIndex()
        await load_dependencies(index, self._catalog, [(definition.spec, definition.library)])
        return pinning.pin_task(definition, index)

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
        index = DefinitionIndex()
        called = await self._agents(await load_dependencies(index, self._catalog, [(persona, library)]))
        pinned = pinning.pin_agent(agent, persona, library, index, called, self._resolve_profile)
        if self._add_model_facts is not None:
            pinned = await self._with_model_facts(pinned, self._add_model_facts)
        if persona.context_window.strategy is WindowStrategy.SUMMARIZE:
            pinned = replace(pinned, summary=await self._resolve_workflow(SUMMARY_WORKFLOW, ""))
        return replace(pinned, persona_ref=reference, max_result_bytes=self._max_result_bytes)

    async def _with_model_facts(self, pinned: PinnedAgent, add: AddModelFacts) -> PinnedAgent:
        """Return the agent with the known facts of each of its models."""

        async def known(profiles: Iterable[PinnedProfile]) -> tuple[PinnedProfile, ...]:
            return tuple([replace(each, spec=await add(each.spec)) for each in profiles])

        (profile,) = await known((pinned.profile,))
        return replace(
            pinned,
            profile=profile,
            fallbacks=await known(pinned.fallbacks),
            extraction_profiles=await known(pinned.extraction_profiles),
            summary_profiles=await known(pinned.summary_profiles),
        )

    async def _persona(self, agent: Agent) -> tuple[Persona, str, str]:
        """Return the persona of an agent with its defaults, the library to which its references are relative,
        and its revision (`PinnedAgent.persona_ref`)."""
        if agent.persona is not None:
            return pinning.with_defaults(agent.persona), "", ""
        definition = await self._definition(agent.persona_id, "", Kind.PERSONA)
        assert isinstance(definition.spec, Persona)
        return pinning.with_defaults(definition.spec), definition.library, str(definition.pin)

    async def _agents(self, called: Iterable[str]) -> dict[str, str]:
        """Return the ids of the existing agents among ``called``, by key."""
        found = [(key, await self._catalog.agent(key)) for key in called]
        return {key: agent.id for key, agent in found if agent is not None}


def _lacks_agent(pin: object) -> bool:
    """Return True if a tool calls an agent that does not exist. The pin is not cached, so that a later agent
    is found."""
    if not isinstance(pin, PinnedAgent):
        return False
    return any(tool.spec.target_type == "agent" and not tool.agent_id for tool in pin.tools)


def _is_new(change: Change) -> bool:
    """Return True for a new resource, which no pin can contain. Tools and nodes of others may call a changed
    agent."""
    return isinstance(change, Put) and change.resource.version == 1
