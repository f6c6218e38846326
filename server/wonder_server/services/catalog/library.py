"""The catalog's use cases: libraries, definitions, agents, projects and files.

::

    Library(catalog, clock, actions=…, models=…)
      .definitions   libraries and definitions        services/catalog/definitions.py
      .agents        agents                           services/catalog/agents.py
      .projects      projects                         services/catalog/projects.py
      .files         descriptions of files            services/catalog/files.py
      .pins          pinned agents and workflows      services/catalog/pinning.py
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from wonder_server.core.definitions.document import DefinitionDraft
from wonder_server.core.definitions.pinning import ResolveProfile
from wonder_server.core.definitions.resources import DEFAULT_PROJECT, Definition, NetworkPolicy
from wonder_server.core.definitions.specs import PinnedAgent, PinnedProfile, PinnedTask, PinnedWorkflow
from wonder_server.core.idempotency import SERVER_ORIGIN, Origin
from wonder_server.core.json_types import JsonObject
from wonder_server.ports.catalog import Change
from wonder_server.ports.clock import Clock
from wonder_server.ports.scoped import ScopedCatalog
from wonder_server.services.catalog import agents, projects
from wonder_server.services.catalog.applied import AppliedResources, ResourceChange, WantedResources
from wonder_server.services.catalog.definitions import Applied, Definitions
from wonder_server.services.catalog.files import Files
from wonder_server.services.catalog.pinning import AddModelFacts, Pins
from wonder_server.services.catalog.standard_library import (
    ensure_default_agent,
    ensure_default_project,
    ensure_standard,
)
from wonder_server.services.catalog.tool_sources import ToolSources
from wonder_server.services.catalog.transactions import CatalogTransactions, Stamp
from wonder_server.services.paging import MAX_PAGE_SIZE, PageRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRules:
    """Rules for the model profiles of personas and tasks.

    ``resolve_profile`` fills in the provider, model and format that a profile leaves open.
    ``add_model_facts`` adds the known facts of the model (context window, accepted parts) to a resolved
    profile. ``max_result_bytes`` is the size above which a model gets a part of a tool's result; 0 for none.
    ``providers`` are the names of the configured providers; empty accepts any name."""

    resolve_profile: ResolveProfile
    add_model_facts: AddModelFacts | None = None
    max_result_bytes: int = 0
    providers: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionHooks:
    """Functions to call around the deletion of an agent or project. A hook that runs before the deletion may
    raise to prevent it."""

    before_agent: Sequence[agents.BeforeDelete] = ()
    after_agent: Sequence[agents.AfterDelete] = ()
    before_project: Sequence[projects.BeforeDelete] = ()


class Library:
    """The use cases of the catalog for one access scope, over one writer for all scopes."""

    def __init__(
        self,
        catalog: ScopedCatalog,
        clock: Clock,
        *,
        actions: Mapping[str, JsonObject],
        models: ModelRules,
        deletion_hooks: DeletionHooks = DeletionHooks(),
        tool_sources: ToolSources | None = None,
    ) -> None:
        """``catalog`` is the view of everything; `within` returns the library of another scope. ``actions``:
        the JSON Schema of the input of each action kind of this server. Without ``tool_sources`` agents have
        no tools of MCP servers."""
        self._tool_sources = tool_sources
        self._actions = actions
        self._models = models
        self._deletion_hooks = deletion_hooks
        self._writes = CatalogTransactions(catalog, clock)
        self._open(catalog, self._writes)

    def notices(self, drafts: Iterable[DefinitionDraft]) -> list[str]:
        """Return sentences about definitions that are valid and will not work on this server as it is."""
        return [] if self._tool_sources is None else self._tool_sources.notices(drafts)

    def within(self, catalog: ScopedCatalog) -> Library:
        """Return the library over another view of the same catalog. Both have one writer."""
        made = copy(self)
        made._open(catalog, self._writes.within(catalog))
        return made

    def _open(self, catalog: ScopedCatalog, writes: CatalogTransactions) -> None:
        actions, models, hooks = self._actions, self._models, self._deletion_hooks
        self.definitions = Definitions(catalog, writes, actions, models.providers)
        self.agents = agents.Agents(catalog, writes, actions, hooks.before_agent, hooks.after_agent)
        self.projects = projects.Projects(catalog, writes, hooks.before_project)
        self._applied = AppliedResources(catalog, self.agents, self.projects)
        self.files = Files(catalog, writes)
        self.pins = Pins(
            catalog,
            writes,
            models.resolve_profile,
            models.add_model_facts,
            max_result_bytes=models.max_result_bytes,
        )

    async def apply(
        self,
        library: str,
        drafts: Sequence[DefinitionDraft],
        resources: WantedResources,
        *,
        prune: bool = False,
        origin: Origin = SERVER_ORIGIN,
        validate_only: bool = False,
    ) -> Applied:
        """Save definitions, projects and agents in one commit, all or none; see `Definitions.apply` and
        `AppliedResources.plan`."""

        async def plan(
            saved: Sequence[Definition], removed: Sequence[Definition], stamp: Stamp
        ) -> tuple[list[Change], list[ResourceChange]]:
            return await self._applied.plan(resources, library, saved, removed, stamp)

        return await self.definitions.apply(
            library, drafts, prune=prune, resources=plan, origin=origin, validate_only=validate_only
        )

    async def agent_id(self, key: str) -> str:
        """Return the id of the agent with this id or name. Raises AGENT_NOT_FOUND."""
        return await self.agents.agent_id(key)

    async def agent_ids(self, project: str, limit: int) -> list[str]:
        """Return the ids of up to ``limit`` agents of a project (id or name; empty: of every project). Raises
        PROJECT_NOT_FOUND."""
        ids: list[str] = []
        request = PageRequest(size=MAX_PAGE_SIZE)
        while len(ids) < limit:
            page = await self.agents.agents(request, project=project)
            ids += [agent.id for agent in page.items]
            if not page.next_page_token:
                break
            request = PageRequest(size=MAX_PAGE_SIZE, token=page.next_page_token)
        return ids[:limit]

    async def project_id(self, key: str) -> str:
        """Return the id of the project with this id or name; empty is the project ``default``. Raises
        PROJECT_NOT_FOUND."""
        return (await self.projects.get_cached(key or DEFAULT_PROJECT)).id

    async def network_policy(self, project_id: str) -> NetworkPolicy:
        """Return the network policy of a project; an empty id is the project ``default``. Raises
        PROJECT_NOT_FOUND."""
        return (await self.projects.get_cached(project_id or DEFAULT_PROJECT)).network or NetworkPolicy()

    async def pin_workflow(self, ref: str, *, library: str | None = None) -> PinnedWorkflow:
        """See `Pins.workflow`."""
        return await self.pins.workflow(ref, library=library or "")

    async def pin_task(self, ref: str, *, library: str | None = None) -> PinnedTask:
        """See `Pins.task`."""
        return await self.pins.task(ref, library=library or "")

    async def pin_agent(self, agent_id_or_name: str) -> PinnedAgent:
        """Return the agent with everything that its turns need: `Pins.agent`, and the tools of MCP
        servers."""
        pinned = await self.pins.agent(agent_id_or_name)
        return pinned if self._tool_sources is None else await self._tool_sources.extend(pinned)

    async def pin_profiles(self, reference: str) -> Sequence[PinnedProfile]:
        """See `Pins.profiles`."""
        return await self.pins.profiles(reference)

    async def pin_persona(self, agent_id_or_name: str) -> PinnedAgent:
        """See `Pins.agent`. No MCP server is asked for its tools."""
        return await self.pins.agent(agent_id_or_name)

    async def ensure_standard(self, std_dir: Path) -> None:
        """See `standard_library.ensure_standard`."""
        await ensure_standard(std_dir, self.definitions, self.agents, self.projects)

    async def ensure_default_project(self) -> None:
        """See `standard_library.ensure_default_project`."""
        await ensure_default_project(self.projects)

    async def ensure_default_agent(self) -> None:
        """See `standard_library.ensure_default_agent`."""
        await ensure_default_agent(self.agents)
