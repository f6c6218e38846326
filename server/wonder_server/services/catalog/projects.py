"""Projects: scopes for agents, conversations, artifacts and repositories (feature A5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from wonder_server.core.definitions.document import MAX_DESCRIPTION_BYTES
from wonder_server.core.definitions.network_policy import check_policy
from wonder_server.core.definitions.references import NAME_RULE, is_definition_name
from wonder_server.core.definitions.resources import DEFAULT_PROJECT, Project
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.ids import random_id
from wonder_server.core.paths import check_branch, check_no_password, check_repository_url
from wonder_server.ports.catalog import Catalog, Change, Drop, Put
from wonder_server.services.catalog.agents import check_metadata
from wonder_server.services.catalog.not_found import project_not_found
from wonder_server.services.catalog.transactions import (
    CatalogTransactions,
    EmptyResult,
    IdempotencyKey,
    PlannedChange,
    check_etag,
)
from wonder_server.services.paging import Page, PageRequest, page

MAX_REPOSITORIES: Final = 100
MAX_CACHED: Final = 10_000

BeforeDelete = Callable[[Project], Awaitable[None]]
"""Asked before a project is deleted: raises RESOURCE_IN_USE, or lets go of what belongs to it."""


class Projects:
    """The use-cases over the catalog. Keys are ids or names."""

    def __init__(
        self, catalog: Catalog, transactions: CatalogTransactions, before_delete: Sequence[BeforeDelete] = ()
    ) -> None:
        self._catalog = catalog
        self._transactions = transactions
        self._before_delete = before_delete
        self._cache: dict[str, Project] = {}
        transactions.add_listener(self._invalidate)

    async def create(
        self, project: Project, *, idempotency_key: IdempotencyKey | None = None, validate_only: bool = False
    ) -> Project:
        """A new project. Id, version and times of ``project`` are not read. FIELD_INVALID,
        ALREADY_EXISTS."""
        _check(project)

        async def plan(now: int) -> PlannedChange[Project]:
            if await self._catalog.project(project.name) is not None:
                raise _name_taken(project.name)
            made = replace(project, id=random_id("proj", now), version=1, created_ms=now, updated_ms=now)
            return PlannedChange(made, [Put(made)])

        return await self._transactions.execute(
            Project, plan, idempotency_key=idempotency_key, validate_only=validate_only
        )

    async def project(self, key: str, *, field: str = "project_id") -> Project:
        """PROJECT_NOT_FOUND if there is none."""
        found = await self._catalog.project(key) if key else None
        if found is None:
            raise await project_not_found(self._catalog, key, field=field)
        return found

    async def find(self, key: str) -> Project | None:
        """The project, if there is one."""
        return await self._catalog.project(key) if key else None

    async def get_cached(self, key: str) -> Project:
        """As `project`, without a look into the catalog where the project was asked for before: whatever
        starts asks for one."""
        found = self._cache.get(key)
        if found is None:
            # With the writer's lock, so that no change comes between reading and remembering.
            async with self._transactions.lock:
                found = await self.project(key)
                if len(self._cache) >= MAX_CACHED:
                    self._cache.clear()
                self._cache[key] = found
        return found

    def _invalidate(self, changes: Sequence[Change]) -> None:
        if any(isinstance(change.resource, Project) for change in changes):
            self._cache.clear()

    async def projects(self, request: PageRequest) -> Page[Project]:
        """All projects, newest first."""
        before, limit = request.cursor(["projects"], ""), request.limit()
        found = await self._catalog.projects(before, limit + 1)
        return page(found, limit, ["projects"], lambda project: project.id)

    async def update(
        self,
        key: str,
        edit: Callable[[Project], Project],
        *,
        etag: str = "",
        idempotency_key: IdempotencyKey | None = None,
        validate_only: bool = False,
    ) -> Project:
        """The project that ``edit`` makes of the stored one; its id, name and times are kept.
        FIELD_INVALID, PROJECT_NOT_FOUND, ETAG_MISMATCH."""

        async def plan(now: int) -> PlannedChange[Project]:
            stored = await self.project(key, field="project.id")
            check_etag(stored, etag)
            wanted = edit(stored)
            _check(wanted, stored)
            if wanted == stored:
                return PlannedChange(stored)
            made = replace(wanted, id=stored.id, name=stored.name, version=stored.version + 1, updated_ms=now)
            return PlannedChange(made, [Put(made)])

        return await self._transactions.execute(
            Project, plan, idempotency_key=idempotency_key, validate_only=validate_only
        )

    async def delete(
        self, key: str, *, etag: str = "", idempotency_key: IdempotencyKey | None = None
    ) -> None:
        """PROJECT_NOT_FOUND, ETAG_MISMATCH; RESOURCE_IN_USE if it is the default project, or agents or
        conversations belong to it."""

        async def plan(now: int) -> PlannedChange[EmptyResult]:
            stored = await self.project(key)
            check_etag(stored, etag)
            if stored.name == DEFAULT_PROJECT:
                raise error(
                    Reason.RESOURCE_IN_USE,
                    f"The project '{DEFAULT_PROJECT}' comes with the server and cannot be deleted.",
                )
            if members := await self._catalog.agents(stored.id, "", 1):
                raise error(
                    Reason.RESOURCE_IN_USE,
                    f"Agents belong to the project '{stored.name}', such as '{members[0].name}'.",
                )
            for check in self._before_delete:
                await check(stored)
            return PlannedChange(EmptyResult(), [Drop(stored)])

        await self._transactions.execute(EmptyResult, plan, idempotency_key=idempotency_key)


def _check(project: Project, stored: Project | None = None) -> None:
    """Check a project to save. URLs of ``stored`` with a password, saved by older versions, stay valid."""
    before = {each.url for each in stored.repositories} if stored is not None else set()
    if not is_definition_name(project.name):
        raise error(Reason.FIELD_INVALID, f"A project's name is {NAME_RULE}.", field="project.name")
    if len(project.description.encode()) > MAX_DESCRIPTION_BYTES:
        raise error(
            Reason.FIELD_INVALID,
            f"The description is longer than {MAX_DESCRIPTION_BYTES} bytes.",
            field="project.description",
        )
    if len(project.repositories) > MAX_REPOSITORIES:
        raise error(
            Reason.LIMIT_EXCEEDED,
            f"A project has at most {MAX_REPOSITORIES} repositories.",
            field="project.repositories",
        )
    seen: set[str] = set()
    for index, repository in enumerate(project.repositories):
        place = f"project.repositories[{index}]"
        if not is_definition_name(repository.name) or repository.name in seen:
            raise error(
                Reason.FIELD_INVALID,
                f"A repository's name is {NAME_RULE}, and once in a project.",
                field=f"{place}.name",
            )
        check_repository_url(repository.url, f"{place}.url")
        if repository.url not in before:
            check_no_password(repository.url, f"{place}.url")
        if repository.default_branch:
            check_branch(repository.default_branch, f"{place}.default_branch")
        seen.add(repository.name)
    if project.network is not None and (wrong := check_policy(project.network)) is not None:
        field, problem = wrong
        raise error(Reason.FIELD_INVALID, problem, field=f"project.network.{field}")
    check_metadata(project.metadata, "project.metadata")


def _name_taken(name: str) -> WonderError:
    return error(Reason.ALREADY_EXISTS, f"There is a project '{name}' already.", field="project.name")
