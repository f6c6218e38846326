"""Agents: a persona with a memory of its own, scoped to projects (feature A5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Final

from wonder_server.core.definitions.check import check_spec
from wonder_server.core.definitions.document import MAX_DESCRIPTION_BYTES
from wonder_server.core.definitions.fault_list import under
from wonder_server.core.definitions.index import DefinitionIndex, IndexResolver
from wonder_server.core.definitions.references import (
    NAME_RULE,
    is_definition_name,
    parse_reference,
)
from wonder_server.core.definitions.resources import DEFAULT_PROJECT, Agent
from wonder_server.core.definitions.specs import Kind, Persona
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.idempotency import SERVER_ORIGIN, Origin
from wonder_server.core.ids import random_id
from wonder_server.core.json_types import JsonObject
from wonder_server.logs import logger
from wonder_server.ports.catalog import Change, Drop, Put
from wonder_server.ports.scoped import ScopedCatalog
from wonder_server.services.catalog.called_agents import check_called_agents, may_call_others
from wonder_server.services.catalog.dependencies import load_dependencies, refuse_if_agent_used
from wonder_server.services.catalog.not_found import agent_not_found, definition_not_found, project_not_found
from wonder_server.services.catalog.transactions import (
    CatalogTransactions,
    EmptyResult,
    PlannedChange,
    Stamp,
    check_etag,
)
from wonder_server.services.paging import Page, PageRequest, page

MAX_METADATA_BYTES: Final = 65_536
MAX_PROJECTS: Final = 100
_MAX_CACHED_IDS: Final = 10_000
_ID_CACHE_TTL_S: Final = 1.0

_log = logger("library")

BeforeDelete = Callable[[Agent], Awaitable[None]]
"""Called before the deletion of an agent: raises RESOURCE_IN_USE, or releases what belongs to the agent."""

AfterDelete = Callable[[Agent], Awaitable[None]]
"""Called after the deletion of an agent. Not called if the process crashes in between, so the hook before the
deletion must prepare for that."""


class Agents:
    """The use cases of agents. A key is an id or a name."""

    def __init__(
        self,
        catalog: ScopedCatalog,
        transactions: CatalogTransactions,
        actions: Mapping[str, JsonObject],
        before_delete: Sequence[BeforeDelete] = (),
        after_delete: Sequence[AfterDelete] = (),
    ) -> None:
        self._catalog = catalog
        self._transactions = transactions
        self._actions = actions
        self._before_delete = before_delete
        self._after_delete = after_delete
        self._id_cache: dict[str, tuple[str, float]] = {}
        """Ids by key since the last change to any agent, each with its expiry on the monotonic clock. Every
        call that names an agent resolves its id, and agents rarely change."""
        self._change_count = 0
        transactions.add_listener(self._invalidate_ids)

    async def create(
        self, agent: Agent, *, origin: Origin = SERVER_ORIGIN, validate_only: bool = False
    ) -> Agent:
        """Create an agent without memories. ``project_ids`` are ids or names; empty means the default
        project. Id, version and times of ``agent`` are ignored.

        Raises FIELD_INVALID, ALREADY_EXISTS, PROJECT_NOT_FOUND, DEFINITION_NOT_FOUND, DEFINITION_INVALID."""

        async def plan(stamp: Stamp) -> PlannedChange[Agent]:
            if await self._catalog.agent(agent.name) is not None:
                raise _name_taken(agent.name)
            validated = await self._validated(agent)
            await check_called_agents(self._catalog, replace(validated, id=""))
            made = replace(
                validated,
                id=random_id("agt", stamp.at_ms),
                version=1,
                created_ms=stamp.at_ms,
                updated_ms=stamp.at_ms,
                updated_by=stamp.by,
            )
            return PlannedChange(made, [Put(made)])

        return await self._transactions.execute(Agent, plan, origin=origin, validate_only=validate_only)

    async def agent_id(self, key: str) -> str:
        """Return the id of an agent, usually from the cache. Raises AGENT_NOT_FOUND."""
        known = self._id_cache.get(key)
        if known is not None and asyncio.get_running_loop().time() < known[1]:
            return known[0]
        changes = self._change_count
        found = (await self.agent(key)).id
        if changes == self._change_count:
            if len(self._id_cache) >= _MAX_CACHED_IDS:
                self._id_cache.clear()
            self._id_cache[key] = found, asyncio.get_running_loop().time() + _ID_CACHE_TTL_S
        return found

    async def agent(self, key: str, *, field: str = "agent_id") -> Agent:
        """Return an agent. Raises AGENT_NOT_FOUND."""
        found = await self._catalog.agent(key) if key else None
        if found is None:
            raise await agent_not_found(self._catalog, key, field=field)
        return found

    async def agents(self, request: PageRequest, *, project: str = "") -> Page[Agent]:
        """Return the agents of a project, or of every project, newest first. Raises PROJECT_NOT_FOUND."""
        project_id = await self._project_id(project, "project_id") if project else ""
        scope = ["agents", project_id]
        before, limit = request.cursor(scope, ""), request.limit()
        found = await self._catalog.agents(project_id, before, limit + 1)
        return page(found, limit, scope, lambda agent: agent.id)

    async def update(
        self,
        key: str,
        edit: Callable[[Agent], Agent],
        *,
        etag: str = "",
        origin: Origin = SERVER_ORIGIN,
        validate_only: bool = False,
    ) -> Agent:
        """Save the agent that ``edit`` returns for the stored one. Its id and times are kept.

        Raises the errors of `create`, AGENT_NOT_FOUND and ETAG_MISMATCH."""

        async def plan(stamp: Stamp) -> PlannedChange[Agent]:
            stored = await self.agent(key, field="agent.id")
            check_etag(stored, etag)
            changed = await self._validated(edit(stored))
            if changed == stored:
                return PlannedChange(stored)
            if may_call_others(changed, stored):
                await check_called_agents(self._catalog, replace(changed, id=stored.id))
            holder = await self._catalog.agent(changed.name)
            if holder is not None and holder.id != stored.id:
                raise _name_taken(changed.name)
            if changed.name != stored.name:
                await refuse_if_agent_used(self._transactions.whole, stored.name)
            made = replace(
                changed,
                id=stored.id,
                version=stored.version + 1,
                updated_ms=stamp.at_ms,
                updated_by=stamp.by,
            )
            return PlannedChange(made, [Put(made)])

        return await self._transactions.execute(Agent, plan, origin=origin, validate_only=validate_only)

    async def planned(
        self, name: str, edit: Callable[[Agent], Agent], catalog: ScopedCatalog, stamp: Stamp
    ) -> tuple[Agent | None, Agent]:
        """Return the stored agent of this name, None if there is none, and the agent that ``edit`` makes of
        it: the stored one itself if nothing changes. ``catalog`` is the view that its references are checked
        in. Call it in a transaction. Raises the errors of `create` and `update`."""
        checking = copy(self)
        checking._catalog = catalog
        stored = await self._catalog.agent(name) if name else None
        changed = await checking._validated(edit(stored or Agent(id="", name=name, project_ids=())))
        if changed == stored:
            return stored, stored
        made = replace(
            changed,
            id=stored.id if stored is not None else random_id("agt", stamp.at_ms),
            version=stored.version + 1 if stored is not None else 1,
            created_ms=stored.created_ms if stored is not None else stamp.at_ms,
            updated_ms=stamp.at_ms,
            updated_by=stamp.by,
        )
        return stored, made

    async def delete(self, key: str, *, etag: str = "", origin: Origin = SERVER_ORIGIN) -> None:
        """Delete an agent and its memories.

        Raises AGENT_NOT_FOUND, ETAG_MISMATCH, and RESOURCE_IN_USE if a tool calls the agent or a turn of it
        is active."""

        deleted: list[Agent] = []

        async def plan(stamp: Stamp) -> PlannedChange[EmptyResult]:
            stored = await self._agent_to_delete(key, etag)
            await refuse_if_agent_used(self._transactions.whole, stored.id, stored.name)
            for check in self._before_delete:
                await check(stored)
            deleted.append(stored)
            return PlannedChange(EmptyResult(), [Drop(stored)])

        await self._transactions.execute(EmptyResult, plan, origin=origin)
        for agent in deleted:
            for callback in self._after_delete:
                await callback(agent)

    async def _agent_to_delete(self, key: str, etag: str) -> Agent:
        """Return the agent to delete. For a damaged one, return its id and name and ignore ``etag``."""
        try:
            stored = await self.agent(key)
        except WonderError as problem:
            if problem.fault.reason is not Reason.STORAGE_UNAVAILABLE or problem.fault.transient:
                raise
            remains = await self._catalog.agent_header(key)
            if remains is None:
                raise
            _log.warning("damaged_agent_deleted", agent=remains.id)
            return remains
        check_etag(stored, etag)
        return stored

    def _invalidate_ids(self, changes: Sequence[Change]) -> None:
        """Forget the cached ids after a change of any agent, in whichever scope. A change whose caller was
        cancelled may be committed later, so cached ids also expire."""
        if any(isinstance(change.resource, Agent) for change in changes):
            self._change_count += 1
            self._id_cache.clear()

    async def _validated(self, agent: Agent) -> Agent:
        """Return ``agent`` with the ids of its projects, after checking it."""
        _check_header(agent)
        ids: list[str] = []
        for index, key in enumerate(agent.project_ids or (DEFAULT_PROJECT,)):
            project_id = await self._project_id(key, f"agent.project_ids[{index}]")
            if project_id not in ids:
                ids.append(project_id)
        if agent.persona is not None:
            await self._check_inline(agent.persona)
        else:
            await self._check_reference(agent.persona_id)
        return replace(agent, project_ids=tuple(ids))

    async def _project_id(self, key: str, field: str) -> str:
        project = await self._catalog.project(key) if key else None
        if project is None:
            raise await project_not_found(self._catalog, key, field=field)
        return project.id

    async def _check_reference(self, text: str) -> None:
        reference = parse_reference(text)
        if reference is None or not (reference.definition_id or reference.library):
            raise error(
                Reason.FIELD_INVALID,
                f"'{text[:100]}' is not a reference to a persona. Use library/name or def_…, with or without "
                "@revision, such as wonder/std/assistant.",
                field="agent.persona_id",
            )
        found = await self._catalog.definition(reference)
        if found is None or found.kind is not Kind.PERSONA:
            kind, field = Kind.PERSONA, "agent.persona_id"
            raise await definition_not_found(
                self._catalog, text, reference, kind=kind, found=found, field=field
            )

    async def _check_inline(self, persona: Persona) -> None:
        index = DefinitionIndex()
        await load_dependencies(index, self._catalog, [(persona, "")])
        if found := check_spec(persona, "", IndexResolver(index, self._actions)):
            faults = under("agent.persona", found)
            raise WonderError(faults[0], faults=faults)


def _check_header(agent: Agent) -> None:
    if not is_definition_name(agent.name):
        raise error(
            Reason.FIELD_INVALID,
            f"'{agent.name[:100]}' is not a valid name of an agent. Use {NAME_RULE}.",
            field="agent.name",
        )
    if len(agent.description.encode()) > MAX_DESCRIPTION_BYTES:
        raise error(
            Reason.FIELD_INVALID,
            f"The description has {len(agent.description.encode())} bytes; "
            f"the maximum is {MAX_DESCRIPTION_BYTES}.",
            field="agent.description",
        )
    if len(agent.project_ids) > MAX_PROJECTS:
        raise error(
            Reason.LIMIT_EXCEEDED,
            f"The agent is in {len(agent.project_ids)} projects; the maximum is {MAX_PROJECTS}.",
            field="agent.project_ids",
        )
    check_metadata(agent.metadata, "agent.metadata")


def check_metadata(metadata: JsonObject, field: str) -> None:
    """Raise PAYLOAD_TOO_LARGE if the metadata of a resource is too large."""
    size = len(json.dumps(metadata))
    if size > MAX_METADATA_BYTES:
        raise error(
            Reason.PAYLOAD_TOO_LARGE,
            f"The metadata has {size} bytes as JSON; the maximum is {MAX_METADATA_BYTES}.",
            field=field,
        )


def _name_taken(name: str) -> WonderError:
    return error(
        Reason.ALREADY_EXISTS, f"An agent '{name}' already exists. Choose another name.", field="agent.name"
    )
