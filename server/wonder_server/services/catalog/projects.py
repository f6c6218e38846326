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
from wonder_server.core.idempotency import SERVER_ORIGIN, Origin
from wonder_server.core.ids import random_id
from wonder_server.core.paths import check_branch, check_no_password, check_repository_url
from wonder_server.ports.catalog import Change, Drop, Put
from wonder_server.ports.scoped import ScopedCatalog
from wonder_server.services.catalog.agents import check_metadata
from wonder_server.services.catalog.not_found import project_not_found
from wonder_server.services.catalog.transactions import (
    CatalogTransactions,
    EmptyResult,
    PlannedChange,
    Stamp,
    check_etag,
)
from wonder_server.services.paging import Page, PageRequest, page

MAX_REPOSITORIES: Final = 100
MAX_CACHED: Final = 10_000

BeforeDelete = Callable[[Project], Awaitable[None]]
"""Called before the deletion of a project: raises RESOURCE_IN_USE, or releases what belongs to the
project."""


class Projects:
    """The use cases of projects. A key is an id or a name."""

    def __init__(
        self,
        catalog: ScopedCatalog,
        transactions: CatalogTransactions,
        before_delete: Sequence[BeforeDelete] = (),
    ) -> None:
        self._catalog = catalog
        self._transactions = transactions
        self._before_delete = before_delete
        self._cache: dict[str, Project] = {}
        transactions.add_listener(self._invalidate)

    async def create(
        self, project: Project, *, origin: Origin = SERVER_ORIGIN, validate_only: bool = False
    ) -> Project:
        """Create a project. Id, version and times of ``project`` are ignored. Raises FIELD_INVALID,
        ALREADY_EXISTS."""
        project = _without_repeated_entries(project)
        _check(project)

        async def plan(stamp: Stamp) -> PlannedChange[Project]:
            if await self._catalog.project(project.name) is not None:
                raise _name_taken(project.name)
            made = replace(
                project,
                id=random_id("proj", stamp.at_ms),
                version=1,
                created_ms=stamp.at_ms,
                updated_ms=stamp.at_ms,
                updated_by=stamp.by,
            )
            return PlannedChange(made, [Put(made)])

        return await self._transactions.execute(Project, plan, origin=origin, validate_only=validate_only)

    async def project(self, key: str, *, field: str = "project_id") -> Project:
        """Return a project. Raises PROJECT_NOT_FOUND."""
        found = await self._catalog.project(key) if key else None
        if found is None:
            raise await project_not_found(self._catalog, key, field=field)
        return found

    async def find(self, key: str) -> Project | None:
        """Return a project, or None."""
        return await self._catalog.project(key) if key else None

    async def get_cached(self, key: str) -> Project:
        """Return a project, from the cache after the first call: every turn and run needs its project. Raises
        PROJECT_NOT_FOUND."""
        found = self._cache.get(key)
        if found is None:
            # Under the writer's lock, so that no change comes between the read and the cache.
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
        """Return all projects, newest first."""
        before, limit = request.cursor(["projects"], ""), request.limit()
        found = await self._catalog.projects(before, limit + 1)
        return page(found, limit, ["projects"], lambda project: project.id)

    async def update(
        self,
        key: str,
        edit: Callable[[Project], Project],
        *,
        etag: str = "",
        origin: Origin = SERVER_ORIGIN,
        validate_only: bool = False,
    ) -> Project:
        """Save the project that ``edit`` returns for the stored one. Its id, name and times are kept. Raises
        FIELD_INVALID, PROJECT_NOT_FOUND, ETAG_MISMATCH."""

        async def plan(stamp: Stamp) -> PlannedChange[Project]:
            stored = await self.project(key, field="project.id")
            check_etag(stored, etag)
            changed = _without_repeated_entries(edit(stored))
            _check(changed, stored)
            if changed == stored:
                return PlannedChange(stored)
            made = replace(
                changed,
                id=stored.id,
                name=stored.name,
                version=stored.version + 1,
                updated_ms=stamp.at_ms,
                updated_by=stamp.by,
            )
            return PlannedChange(made, [Put(made)])

        return await self._transactions.execute(Project, plan, origin=origin, validate_only=validate_only)

    async def planned(
        self, name: str, edit: Callable[[Project], Project], stamp: Stamp
    ) -> tuple[Project | None, Project]:
        """Return the stored project of this name, None if there is none, and the project that ``edit`` makes
        of it: the stored one itself if nothing changes. Call it in a transaction. Raises FIELD_INVALID,
        LIMIT_EXCEEDED, PAYLOAD_TOO_LARGE."""
        stored = await self._catalog.project(name) if name else None
        changed = _without_repeated_entries(edit(stored or Project(id="", name=name)))
        changed = replace(changed, name=name)
        _check(changed, stored)
        if changed == stored:
            return stored, stored
        made = replace(
            changed,
            id=stored.id if stored is not None else random_id("proj", stamp.at_ms),
            version=stored.version + 1 if stored is not None else 1,
            created_ms=stored.created_ms if stored is not None else stamp.at_ms,
            updated_ms=stamp.at_ms,
            updated_by=stamp.by,
        )
        return stored, made

    async def delete(self, key: str, *, etag: str = "", origin: Origin = SERVER_ORIGIN) -> None:
        """Delete a project. Raises PROJECT_NOT_FOUND, ETAG_MISMATCH, and RESOURCE_IN_USE if it is the default
        project, or if agents or conversations belong to it."""

        async def plan(stamp: Stamp) -> PlannedChange[EmptyResult]:
            stored = await self.project(key)
            check_etag(stored, etag)
            if stored.name == DEFAULT_PROJECT:
                raise error(
                    Reason.RESOURCE_IN_USE,
                    f"The project '{DEFAULT_PROJECT}' belongs to the server and cannot be deleted.",
                )
            if members := await self._catalog.agents(stored.id, "", 1):
                raise error(
                    Reason.RESOURCE_IN_USE,
                    f"Agents belong to the project '{stored.name}', such as '{members[0].name}'. Delete them "
                    "(`wonder agent delete`), or set other `project_ids` (UpdateAgent).",
                )
            for check in self._before_delete:
                await check(stored)
            return PlannedChange(EmptyResult(), [Drop(stored)])

        await self._transactions.execute(EmptyResult, plan, origin=origin)


def _without_repeated_entries(project: Project) -> Project:
    """Return the project with each entry of its network policy once: clients append to the stored list."""
    if project.network is None:
        return project
    entries = tuple(dict.fromkeys(project.network.http_allow))
    return replace(project, network=replace(project.network, http_allow=entries))


def _check(project: Project, stored: Project | None = None) -> None:
    """Check a project to save. URLs of ``stored`` with a password, saved by older versions, stay valid."""
    before = {each.url for each in stored.repositories} if stored is not None else set()
    if not is_definition_name(project.name):
        raise error(
            Reason.FIELD_INVALID,
            f"'{project.name[:100]}' is not a valid name of a project. Use {NAME_RULE}.",
            field="project.name",
        )
    if len(project.description.encode()) > MAX_DESCRIPTION_BYTES:
        raise error(
            Reason.FIELD_INVALID,
            f"The description has {len(project.description.encode())} bytes; "
            f"the maximum is {MAX_DESCRIPTION_BYTES}.",
            field="project.description",
        )
    if len(project.repositories) > MAX_REPOSITORIES:
        raise error(
            Reason.LIMIT_EXCEEDED,
            f"The project has {len(project.repositories)} repositories; the maximum is {MAX_REPOSITORIES}.",
            field="project.repositories",
        )
    seen: set[str] = set()
    for index, repository in enumerate(project.repositories):
        place = f"project.repositories[{index}]"
        if not is_definition_name(repository.name) or repository.name in seen:
            raise error(
                Reason.FIELD_INVALID,
                f"'{repository.name[:100]}' is not a valid name of a repository. Use {NAME_RULE}, and "
                "unique in its project.",
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
    return error(
        Reason.ALREADY_EXISTS,
        f"A project '{name}' already exists. Choose another name.",
        field="project.name",
    )
