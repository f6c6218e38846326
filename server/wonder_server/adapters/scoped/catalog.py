"""Views of the catalog."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import assert_never

from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import Agent, Definition, File, Library, Project
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.ports.access import AccessScope
from wonder_server.ports.catalog import Answer, Catalog, Change, DefinitionQuery, Put


class CatalogView:
    """Implements the port ``ScopedCatalog``."""

    def __init__(self, catalog: Catalog, scope: AccessScope) -> None:
        self._catalog = catalog
        self.scope = scope

    async def library(self, key: str) -> Library | None:
        found = await self._catalog.library(key)
        return found if found is not None and self.scope.has_library(found.id) else None

    def libraries(
        self, after: str, limit: int, among: frozenset[str] | None = None
    ) -> Coroutine[object, None, list[Library]]:
        return self._catalog.libraries(after, limit, _both(among, self.scope.libraries))

    async def definition(self, reference: Reference) -> Definition | None:
        found = await self._catalog.definition(reference)
        return found if found is not None and self.scope.has_library(found.library_id) else None

    def definitions(self, query: DefinitionQuery) -> Coroutine[object, None, list[Definition]]:
        if self.scope.libraries is not None:
            query = replace(query, libraries=_both(query.libraries, self.scope.libraries))
        return self._catalog.definitions(query)

    async def revisions(self, definition_id: str, before: int, limit: int) -> list[Definition]:
        found = await self._catalog.revisions(definition_id, before, limit)
        return [each for each in found if self.scope.has_library(each.library_id)]

    async def agent(self, key: str) -> Agent | None:
        found = await self._catalog.agent(key)
        return found if found is not None and self.scope.has_any_project(found.project_ids) else None

    async def agent_header(self, key: str) -> Agent | None:
        # A damaged agent has no readable projects, so only the scope of everything shows it.
        if self.scope.projects is not None and await self.agent(key) is None:
            return None
        return await self._catalog.agent_header(key)

    def agents(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> Coroutine[object, None, list[Agent]]:
        if project_id and not self.scope.has_project(project_id):
            among = frozenset()
        return self._catalog.agents(project_id, before, limit, _both(among, self.scope.projects))

    async def project(self, key: str) -> Project | None:
        found = await self._catalog.project(key)
        return found if found is not None and self.scope.has_project(found.id) else None

    def projects(
        self, before: str, limit: int, among: frozenset[str] | None = None
    ) -> Coroutine[object, None, list[Project]]:
        return self._catalog.projects(before, limit, _both(among, self.scope.projects))

    async def file(self, file_id: str) -> File | None:
        found = await self._catalog.file(file_id)
        return found if found is not None and self.scope.has_project(found.project_id) else None

    def files(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> Coroutine[object, None, list[File]]:
        return self._catalog.files(project_id, before, limit, _both(among, self.scope.projects))

    async def commit(self, changes: Sequence[Change], answer: Answer | None = None) -> None:
        for change in changes:
            await self._check(change)
        await self._catalog.commit(changes, answer)

    async def answer(self, request_id: str) -> Answer | None:
        """Return the answer. Its key names the principal, so no other finds it."""
        return await self._catalog.answer(request_id)

    async def keep_answers(self, answers: Sequence[Answer]) -> None:
        """Store the answers. Their keys name principals."""
        await self._catalog.keep_answers(answers)

    async def _check(self, change: Change) -> None:
        """Raise an error if the change is outside of the scope, before it or after it."""
        resource = change.resource
        match resource:
            case Library():
                if not self.scope.has_library(resource.id):
                    raise _refused(change, Reason.LIBRARY_NOT_FOUND, resource.id)
            case Definition():
                if not self.scope.has_library(resource.library_id):
                    raise not_found(Reason.LIBRARY_NOT_FOUND, resource.library_id, field="library_id")
            case Project():
                if not self.scope.has_project(resource.id):
                    raise _refused(change, Reason.PROJECT_NOT_FOUND, resource.id)
            case File():
                if not self.scope.has_project(resource.project_id):
                    raise not_found(Reason.PROJECT_NOT_FOUND, resource.project_id, field="project_id")
            case Agent():
                await self._check_agent(change, resource)
            case _:
                assert_never(resource)

    async def _check_agent(self, change: Change, agent: Agent) -> None:
        if self.scope.projects is None:
            return
        is_new = isinstance(change, Put) and agent.version == 1
        stored = None if is_new else await self.agent(agent.id)
        if stored is None and not is_new:
            raise not_found(Reason.AGENT_NOT_FOUND, agent.id, field="agent.id")
        # An agent of several projects keeps those that the scope does not have.
        kept = frozenset(stored.project_ids) if stored is not None else frozenset[str]()
        for project_id in agent.project_ids:
            if project_id not in kept and not self.scope.has_project(project_id):
                raise not_found(Reason.PROJECT_NOT_FOUND, project_id, field="agent.project_ids")


def _both(among: frozenset[str] | None, allowed: frozenset[str] | None) -> frozenset[str] | None:
    """Return the ids that both sets have; None is the set of all ids."""
    if among is None or allowed is None:
        return allowed if among is None else among
    return among & allowed


def _refused(change: Change, reason: Reason, resource_id: str) -> WonderError:
    if isinstance(change, Put) and change.resource.version == 1:
        noun = type(change.resource).__name__.lower()
        message = f"A new {noun} is outside of your projects. Ask an administrator to create the {noun}."
        return error(Reason.PERMISSION_DENIED, message)
    return not_found(reason, resource_id, field="id")
