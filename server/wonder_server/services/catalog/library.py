"""The library as one thing: everything about the catalog that a server is composed of.

::

    Library(catalog, clock, actions=…, settle=…)
      .definitions   libraries and definitions        services/catalog/definitions.py
      .agents        agents                           services/catalog/agents.py
      .projects      projects                         services/catalog/projects.py
      .pins          what turns and runs start with   services/catalog/pinning.py
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from wonder_server.core.definitions.pinning import ResolveProfile
from wonder_server.core.definitions.resources import DEFAULT_PROJECT, NetworkPolicy
from wonder_server.core.definitions.specs import PinnedAgent, PinnedTask, PinnedWorkflow
from wonder_server.ports.catalog import Catalog
from wonder_server.ports.clock import Clock
from wonder_server.services.catalog import agents, projects
from wonder_server.services.catalog.definitions import Definitions
from wonder_server.services.catalog.pinning import AddContextWindow, Pins
from wonder_server.services.catalog.standard_library import ensure_standard
from wonder_server.services.catalog.transactions import CatalogTransactions
from wonder_server.services.paging import MAX_PAGE_SIZE, PageRequest


class Library:
    """The four use-cases over one catalog, with one writer."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        *,
        actions: Mapping[str, Mapping[str, Any]],
        resolve_profile: ResolveProfile,
        providers: Collection[str] = (),
        add_context_window: AddContextWindow | None = None,
        before_agent_delete: Sequence[agents.BeforeDelete] = (),
        after_agent_delete: Sequence[agents.AfterDelete] = (),
        before_project_delete: Sequence[projects.BeforeDelete] = (),
    ) -> None:
        """``actions``: the action kinds of this server, each with the JSON Schema of its input.
        ``providers``: its providers of models; empty: any.
        ``settle``: decides provider, model and format of a model profile that leaves them open.
        ``inform``: adds what is known of the model to a settled profile.
        ``before_…_delete``: asked before something is deleted that others hold on to;
        ``after_agent_delete``: told when it is."""
        writes = CatalogTransactions(catalog, clock)
        self.definitions = Definitions(catalog, writes, actions, providers)
        self.agents = agents.Agents(catalog, writes, actions, before_agent_delete, after_agent_delete)
        self.projects = projects.Projects(catalog, writes, before_project_delete)
        self.pins = Pins(catalog, writes, resolve_profile, add_context_window)

    async def agent_id(self, key: str) -> str:
        """The id of an agent that a client names by id or name. Errors: AGENT_NOT_FOUND."""
        return await self.agents.agent_id(key)

    async def agent_ids(self, project: str, limit: int) -> list[str]:
        """Ids of up to ``limit`` agents, of a project (id or name) or of all. Errors: PROJECT_NOT_FOUND."""
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
        """The same for a project; empty is the project ``default``. Errors: PROJECT_NOT_FOUND."""
        return (await self.projects.get_cached(key or DEFAULT_PROJECT)).id

    async def network_policy(self, project_id: str) -> NetworkPolicy:
        """What the work of a project may reach; empty is the project ``default``. PROJECT_NOT_FOUND."""
        return (await self.projects.get_cached(project_id or DEFAULT_PROJECT)).network or NetworkPolicy()

    async def pin_workflow(self, ref: str, *, library: str | None = None) -> PinnedWorkflow:
        """See `Pins.workflow`."""
        return await self.pins.workflow(ref, library=library or "")

    async def pin_task(self, ref: str, *, library: str | None = None) -> PinnedTask:
        """See `Pins.task`."""
        return await self.pins.task(ref, library=library or "")

    async def pin_agent(self, agent_id_or_name: str) -> PinnedAgent:
        """See `Pins.agent`."""
        return await self.pins.agent(agent_id_or_name)

    async def ensure_standard(self, std_dir: Path) -> None:
        """See `standard.ensure_standard`."""
        await ensure_standard(std_dir, self.definitions, self.agents, self.projects)
