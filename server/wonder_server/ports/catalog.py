"""The catalog: libraries with their definitions, agents, projects, files.

The read methods are divided by resource. There is one write method: it takes a list of changes and executes
all or none of them in one transaction. The services decide the changes (``services/catalog``). A store guards
the invariants that two writers could break: unique names, consecutive versions, immutable revisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import Agent, Definition, File, Library, Project, Resource
from wonder_server.core.definitions.specs import Kind
from wonder_server.core.json_types import JsonDict
from wonder_server.core.tenancy.audit import AuditEntry

ANSWER_TTL_MS = 48 * 3600 * 1000
"""Milliseconds for which the answer of a ``request_id`` is stored. The contract guarantees 24 hours."""


@dataclass(frozen=True, slots=True)
class Put:
    """Store this version of a resource. Version 1 must be new; any other must follow the stored version.

    Errors: ALREADY_EXISTS if the name is in use, ETAG_MISMATCH if another version was stored meanwhile,
    PROJECT_NOT_FOUND for a file of a project that does not exist.
    """

    resource: Resource


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete a resource; a definition with all its revisions, a project with its files. ETAG_MISMATCH if the
    stored version is another one."""

    resource: Resource


Change = Put | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of the first request with this id. ``fingerprint`` distinguishes requests with the same
    id."""

    request_id: str
    fingerprint: str
    result: JsonDict
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionQuery:
    """A query of newest revisions by library and name, after the given pair. Empty filters select all.

    ``libraries`` selects libraries by id, None all; the views of access scopes set it.
    """

    library_id: str = ""
    kinds: tuple[Kind, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    after: tuple[str, str] = ("", "")
    limit: int = 50
    libraries: frozenset[str] | None = None


class Definitions(Protocol):
    """Libraries and their definitions. A key is an id or a name."""

    async def library(self, key: str) -> Library | None: ...

    async def libraries(self, after: str, limit: int, among: frozenset[str] | None = None) -> list[Library]:
        """Return libraries by name, after the name ``after``; only those with the ids ``among``, if given."""
        ...

    async def definition(self, reference: Reference) -> Definition | None:
        """Return the revision that a reference with an id, or with library and name, refers to; None if there
        is none."""
        ...

    async def definitions(self, query: DefinitionQuery) -> list[Definition]: ...

    async def revisions(self, definition_id: str, before: int, limit: int) -> list[Definition]:
        """Return revisions older than ``before`` (0: all), newest first."""
        ...


class Agents(Protocol):
    """Agents. A key is an id or a name."""

    async def agent(self, key: str) -> Agent | None: ...

    async def agent_header(self, key: str) -> Agent | None:
        """Return the agent with only id, name and version, as `Drop` needs it. Works for a damaged agent
        too."""
        ...

    async def agents(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> list[Agent]:
        """Return agents with ids below ``before`` (empty: all), newest first; of one project or (empty) of
        all; only those of any of the projects ``among``, if given."""
        ...


class Projects(Protocol):
    """Projects. A key is an id or a name."""

    async def project(self, key: str) -> Project | None: ...

    async def projects(self, before: str, limit: int, among: frozenset[str] | None = None) -> list[Project]:
        """Return projects with ids below ``before`` (empty: all), newest first; only those with the ids
        ``among``, if given."""
        ...


class Files(Protocol):
    """Files of projects. A commit that stores a file makes its objects referenced; one that deletes it makes
    those that no other file has unreferenced (`ports.blobs.UnreferencedObjects`)."""

    async def file(self, file_id: str) -> File | None: ...

    async def files(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> list[File]:
        """Return files with ids below ``before`` (empty: all), newest first; of one project or (empty) of
        all; only those of the projects ``among``, if given."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogNames:
    """The stored names of all projects and libraries, by id."""

    projects: dict[str, str]
    libraries: dict[str, str]


class Changes(Protocol):
    """Writes, and the stored answers of requests."""

    async def commit(
        self, changes: Sequence[Change], answer: Answer | None = None, audit: Sequence[AuditEntry] = ()
    ) -> None:
        """Execute all changes in this order and store the answer and the audit entries, in one transaction.

        Raises ALREADY_EXISTS, ETAG_MISMATCH, and REQUEST_ID_REUSED if the id has an answer already. The store
        may delete answers older than `ANSWER_TTL_MS`.
        """
        ...

    async def answer(self, request_id: str) -> Answer | None: ...

    async def keep_answers(self, answers: Sequence[Answer]) -> None:
        """Store answers of requests that another store answered until now. Those of known ids are not
        changed."""
        ...


class RemovedProjects(Protocol):
    """The notes about deleted projects. The commit that deletes a project writes its note."""

    async def removed_projects(self) -> list[str]:
        """Return the ids of deleted projects whose notes have not been removed."""
        ...

    async def forget_removed(self, project_id: str) -> None: ...


class Catalog(Definitions, Agents, Projects, Files, Changes, Protocol):
    """The complete catalog, as the views of access scopes have it."""


class CatalogStore(Catalog, Protocol):
    """The complete catalog, as one store provides it."""

    async def names(self) -> CatalogNames: ...
