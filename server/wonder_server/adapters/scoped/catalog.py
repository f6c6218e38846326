"""Views of the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from typing import TypeVar, assert_never

from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import (
    STANDARD_LIBRARY,
    Agent,
    Definition,
    File,
    Library,
    Project,
    Resource,
)
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.tenancy.audit import AuditEntry
from wonder_server.core.tenancy.names import own_name, stored_library, stored_name
from wonder_server.ports.access import AccessScope
from wonder_server.ports.catalog import Answer, Catalog, Change, DefinitionQuery, Put

R = TypeVar("R", Library, Definition, Agent, Project, File)

OnCommit = Callable[[Sequence[Change]], None]
"""Called with changes that a commit made, resources with their stored names."""


class CatalogView:
    """Implements the port ``ScopedCatalog``.

    The store has one name space for all tenants. Names are those of the scope's tenant outside of the view,
    and stored names inside (`wonder_server.core.tenancy.names`).
    """

    def __init__(
        self, catalog: Catalog, scope: AccessScope, on_commit: OnCommit = lambda _changes: None
    ) -> None:
        self._catalog = catalog
        self._tenant = scope.tenant or ""
        self._on_commit = on_commit
        self.scope = scope

    def whole_tenant(self) -> CatalogView | None:
        if self.scope.tenant is None:
            return None
        if self.scope.whole is None:
            return self
        return CatalogView(self._catalog, self.scope.whole, self._on_commit)

    async def library(self, key: str) -> Library | None:
        found = await self._find(self._catalog.library, key, stored_library(self._tenant, key))
        return found if found is not None and self.scope.has_library(found.id) else None

    async def libraries(self, after: str, limit: int, among: frozenset[str] | None = None) -> list[Library]:
        after = stored_library(self._tenant, after)
        return self._all_own(await self._catalog.libraries(after, limit, _both(among, self.scope.libraries)))

    async def definition(self, reference: Reference) -> Definition | None:
        if self._tenant and reference.library:
            reference = replace(reference, library=stored_library(self._tenant, reference.library))
        found = await self._catalog.definition(reference)
        is_shown = found is not None and self.scope.has_library(found.library_id)
        return self._own(found) if found is not None and is_shown else None

    async def definitions(self, query: DefinitionQuery) -> list[Definition]:
        if self.scope.libraries is not None:
            query = replace(query, libraries=_both(query.libraries, self.scope.libraries))
        if self._tenant:
            library, name = query.after
            query = replace(query, after=(stored_library(self._tenant, library), name))
        return self._all_own(await self._catalog.definitions(query))

    async def revisions(self, definition_id: str, before: int, limit: int) -> list[Definition]:
        found = await self._catalog.revisions(definition_id, before, limit)
        return self._all_own([each for each in found if self.scope.has_library(each.library_id)])

    async def agent(self, key: str) -> Agent | None:
        found = await self._find(self._catalog.agent, key, stored_name(self._tenant, key))
        return found if found is not None and self.scope.has_any_project(found.project_ids) else None

    async def agent_header(self, key: str) -> Agent | None:
        # A damaged agent has no readable projects, so only the scope of everything shows it.
        if self.scope.projects is not None and await self.agent(key) is None:
            return None
        return await self._find(self._catalog.agent_header, key, stored_name(self._tenant, key))

    async def agents(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> list[Agent]:
        if project_id and not self.scope.has_project(project_id):
            among = frozenset()
        among = _both(among, self.scope.projects)
        return self._all_own(await self._catalog.agents(project_id, before, limit, among))

    async def project(self, key: str) -> Project | None:
        found = await self._find(self._catalog.project, key, stored_name(self._tenant, key))
        return found if found is not None and self.scope.has_project(found.id) else None

    async def projects(self, before: str, limit: int, among: frozenset[str] | None = None) -> list[Project]:
        among = _both(among, self.scope.projects)
        return self._all_own(await self._catalog.projects(before, limit, among))

    async def file(self, file_id: str) -> File | None:
        found = await self._catalog.file(file_id)
        return found if found is not None and self.scope.has_project(found.project_id) else None

    def files(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> Coroutine[object, None, list[File]]:
        return self._catalog.files(project_id, before, limit, _both(among, self.scope.projects))

    async def commit(
        self, changes: Sequence[Change], answer: Answer | None = None, audit: Sequence[AuditEntry] = ()
    ) -> None:
        made = _new_ids(changes) if self.scope.is_whole else frozenset[str]()
        for change in changes:
            await self._check(change, made)
        stored = [self._stored(change) for change in changes]
        try:
            await self._catalog.commit(stored, answer, audit)
        except asyncio.CancelledError:
            # The commit goes on without its caller.
            self._on_commit([each for each in stored if isinstance(each, Put)])
            raise
        except WonderError as problem:
            raise _in_own_words(problem, self._tenant) from None
        self._on_commit(stored)

    async def answer(self, request_id: str) -> Answer | None:
        """Return the answer. Its key names the principal, so no other finds it."""
        return await self._catalog.answer(request_id)

    async def keep_answers(self, answers: Sequence[Answer]) -> None:
        """Store the answers. Their keys name principals."""
        await self._catalog.keep_answers(answers)

    async def _find(self, read: Callable[[str], Awaitable[R | None]], key: str, stored: str) -> R | None:
        """Return what has the stored name, or else the id ``key``: no tenant finds the name of another."""
        found = await read(stored)
        if found is None and stored != key:
            found = await read(key)
            found = found if found is not None and found.id == key else None
        return self._own(found) if found is not None else None

    def _own(self, resource: R) -> R:
        """Return a stored resource with the names that its tenant knows."""
        if not self._tenant or isinstance(resource, File):
            return resource
        if isinstance(resource, Definition):
            return replace(resource, library=own_name(resource.library))
        return replace(resource, name=own_name(resource.name))

    def _all_own(self, resources: list[R]) -> list[R]:
        return [self._own(each) for each in resources] if self._tenant else resources

    def _stored(self, change: Change) -> Change:
        """Return the change with stored names."""
        resource = change.resource
        if not self._tenant or isinstance(resource, File):
            return change
        made: Resource
        match resource:
            case Definition():
                made = replace(resource, library=stored_library(self._tenant, resource.library))
            case Library():
                made = replace(resource, name=stored_library(self._tenant, resource.name))
            case _:
                made = replace(resource, name=stored_name(self._tenant, resource.name))
        return replace(change, resource=made)

    async def _check(self, change: Change, made: Collection[str]) -> None:
        """Raise an error if the change is outside of the scope, before it or after it. ``made`` are the ids
        of projects and libraries that the same commit makes."""
        resource = change.resource
        match resource:
            case Library():
                self._refuse_standard(resource.name)
                if resource.id not in made and not self.scope.has_library(resource.id):
                    raise _refused(change, Reason.LIBRARY_NOT_FOUND, resource.id)
            case Definition():
                self._refuse_standard(resource.library)
                if resource.library_id not in made and not self.scope.has_library(resource.library_id):
                    raise not_found(Reason.LIBRARY_NOT_FOUND, resource.library_id, field="library_id")
            case Project():
                if resource.id not in made and not self.scope.has_project(resource.id):
                    raise _refused(change, Reason.PROJECT_NOT_FOUND, resource.id)
            case File():
                if not self.scope.has_project(resource.project_id):
                    raise not_found(Reason.PROJECT_NOT_FOUND, resource.project_id, field="project_id")
            case Agent():
                await self._check_agent(change, resource, made)
            case _:
                assert_never(resource)

    def _refuse_standard(self, library: str) -> None:
        if self._tenant and library == STANDARD_LIBRARY:
            message = f"The library '{STANDARD_LIBRARY}' belongs to the server. Save into one of your own."
            raise error(Reason.PERMISSION_DENIED, message, field="library")

    async def _check_agent(self, change: Change, agent: Agent, made: Collection[str]) -> None:
        if self.scope.projects is None:
            return
        is_new = isinstance(change, Put) and agent.version == 1
        stored = None if is_new else await self.agent(agent.id)
        if stored is None and not is_new:
            raise not_found(Reason.AGENT_NOT_FOUND, agent.id, field="agent.id")
        # An agent of several projects keeps those that the scope does not have.
        kept = frozenset(stored.project_ids) if stored is not None else frozenset[str]()
        for project_id in agent.project_ids:
            if project_id not in kept and project_id not in made and not self.scope.has_project(project_id):
                raise not_found(Reason.PROJECT_NOT_FOUND, project_id, field="agent.project_ids")


def _new_ids(changes: Sequence[Change]) -> frozenset[str]:
    """Return the ids of the projects and libraries that a commit makes."""
    return frozenset(
        change.resource.id
        for change in changes
        if isinstance(change, Put)
        and isinstance(change.resource, Library | Project)
        and change.resource.version == 1
    )


def _both(among: frozenset[str] | None, allowed: frozenset[str] | None) -> frozenset[str] | None:
    """Return the ids that both sets have; None is the set of all ids."""
    if among is None or allowed is None:
        return allowed if among is None else among
    return among & allowed


def _in_own_words(problem: WonderError, tenant_id: str) -> WonderError:
    """Return the error with the tenant's own names."""
    fault = problem.fault
    if not tenant_id:
        return problem
    return WonderError(replace(fault, message=fault.message.replace(stored_name(tenant_id, " ")[:-1], "")))


def _refused(change: Change, reason: Reason, resource_id: str) -> WonderError:
    if isinstance(change, Put) and change.resource.version == 1:
        noun = type(change.resource).__name__.lower()
        message = f"A new {noun} is outside of your projects. Ask an administrator to create the {noun}."
        return error(Reason.PERMISSION_DENIED, message)
    return not_found(reason, resource_id, field="id")
