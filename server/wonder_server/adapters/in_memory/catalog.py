"""The catalog in memory, for tests and for servers that store nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import (
    Agent,
    Definition,
    File,
    Library,
    Project,
    Resource,
)
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.idempotency import request_id_reused
from wonder_server.core.tenancy.audit import AuditEntry
from wonder_server.ports.blobs import UnreferencedObject
from wonder_server.ports.catalog import (
    ANSWER_TTL_MS,
    Answer,
    CatalogNames,
    Change,
    DefinitionQuery,
    Put,
)

N = TypeVar("N", Library, Agent, Project, File)


@dataclass
class _Tables:
    """All resources by id. ``definitions`` has the revisions of each definition, oldest first."""

    libraries: dict[str, Library] = field(default_factory=dict)
    definitions: dict[str, tuple[Definition, ...]] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    removed_projects: set[str] = field(default_factory=set)

    def copy(self) -> _Tables:
        return _Tables(
            dict(self.libraries),
            dict(self.definitions),
            dict(self.agents),
            dict(self.projects),
            dict(self.files),
            dict(self.answers),
            self.removed_projects,
        )

    def heads(self) -> list[Definition]:
        return [revisions[-1] for revisions in self.definitions.values()]

    def current(self, resource: Resource) -> Sequence[Resource]:
        """Return the newest version of each resource of the same type."""
        match resource:
            case Library():
                return list(self.libraries.values())
            case Definition():
                return self.heads()
            case Agent():
                return list(self.agents.values())
            case Project():
                return list(self.projects.values())
            case File():
                return list(self.files.values())


class MemoryCatalog:
    """Implements the port ``Catalog``, and ``UnreferencedObjects`` for files."""

    def __init__(self) -> None:
        self._tables = _Tables()
        self._loose: dict[str, str] = {}
        self.audit: list[AuditEntry] = []
        """The entries of commits, oldest first."""

    async def library(self, key: str) -> Library | None:
        return _find(self._tables.libraries, key)

    async def libraries(self, after: str, limit: int, among: frozenset[str] | None = None) -> list[Library]:
        named = sorted(self._tables.libraries.values(), key=lambda library: library.name)
        return [each for each in named if each.name > after and (among is None or each.id in among)][:limit]

    async def definition(self, reference: Reference) -> Definition | None:
        for head in self._tables.heads():
            by_name = (head.library, head.name) == (reference.library, reference.name)
            if head.id == reference.definition_id or (by_name and not reference.definition_id):
                wanted = reference.revision or head.revision
                revisions = self._tables.definitions[head.id]
                return next((each for each in revisions if each.revision == wanted), None)
        return None

    async def definitions(self, query: DefinitionQuery) -> list[Definition]:
        heads = sorted(self._tables.heads(), key=lambda head: (head.library, head.name))
        return [head for head in heads if _selected(head, query)][: query.limit]

    async def revisions(self, definition_id: str, before: int, limit: int) -> list[Definition]:
        revisions = reversed(self._tables.definitions.get(definition_id, ()))
        return [each for each in revisions if not before or each.revision < before][:limit]

    async def agent(self, key: str) -> Agent | None:
        return _find(self._tables.agents, key)

    async def agent_header(self, key: str) -> Agent | None:
        return await self.agent(key)

    async def agents(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> list[Agent]:
        newest = _newest(self._tables.agents.values(), before)
        return [
            agent
            for agent in newest
            if (not project_id or project_id in agent.project_ids)
            and (among is None or not among.isdisjoint(agent.project_ids))
        ][:limit]

    async def project(self, key: str) -> Project | None:
        return _find(self._tables.projects, key)

    async def projects(self, before: str, limit: int, among: frozenset[str] | None = None) -> list[Project]:
        newest = _newest(self._tables.projects.values(), before)
        return [project for project in newest if among is None or project.id in among][:limit]

    async def file(self, file_id: str) -> File | None:
        return self._tables.files.get(file_id)

    async def files(
        self, project_id: str, before: str, limit: int, among: frozenset[str] | None = None
    ) -> list[File]:
        return [
            file
            for file in _newest(self._tables.files.values(), before)
            if project_id in ("", file.project_id) and (among is None or file.project_id in among)
        ][:limit]

    async def names(self) -> CatalogNames:
        return CatalogNames(
            projects={each.id: each.name for each in self._tables.projects.values()},
            libraries={each.id: each.name for each in self._tables.libraries.values()},
        )

    async def add_unreferenced(self, owner_id: str, keys: Sequence[str]) -> None:
        self._loose.update(dict.fromkeys(keys, owner_id))

    async def unreferenced(self, after: str = "") -> list[UnreferencedObject]:
        referenced = {key for file in self._tables.files.values() for key in file.objects}
        self._loose = {key: owner for key, owner in self._loose.items() if key not in referenced}
        return [UnreferencedObject(key, owner) for key, owner in sorted(self._loose.items()) if key > after]

    async def remove_unreferenced(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._loose.pop(key, None)

    async def commit(
        self, changes: Sequence[Change], answer: Answer | None = None, audit: Sequence[AuditEntry] = ()
    ) -> None:
        tables = self._tables.copy()
        for change in changes:
            if isinstance(change, Put):
                _put(tables, change.resource)
            else:
                _delete(tables, change.resource)
        if answer is not None:
            if answer.request_id in tables.answers:
                raise request_id_reused()
            oldest = answer.created_ms - ANSWER_TTL_MS
            tables.answers = {key: each for key, each in tables.answers.items() if each.created_ms >= oldest}
            tables.answers[answer.request_id] = answer
        for file in self._tables.files.values():
            if file.id not in tables.files:
                self._loose.update(dict.fromkeys(file.objects, file.project_id))
        tables.removed_projects.update(self._tables.projects.keys() - tables.projects.keys())
        self._tables = tables
        self.audit.extend(audit)

    def removed_projects(self) -> MemoryRemovedProjects:
        """Return the notes about deleted projects."""
        return MemoryRemovedProjects(self._tables.removed_projects)

    async def answer(self, request_id: str) -> Answer | None:
        return self._tables.answers.get(request_id)

    async def keep_answers(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._tables.answers.setdefault(answer.request_id, answer)


class MemoryRemovedProjects:
    """Implements the port ``RemovedProjects``."""

    def __init__(self, notes: set[str]) -> None:
        self._notes = notes

    async def removed_projects(self) -> list[str]:
        return sorted(self._notes)

    async def forget_removed(self, project_id: str) -> None:
        self._notes.discard(project_id)


def _put(tables: _Tables, resource: Resource) -> None:
    stored = [each for each in tables.current(resource) if each.id == resource.id]
    if (stored[0].version if stored else 0) != resource.version - 1:
        raise _stale()
    if isinstance(resource, File):
        if resource.project_id not in tables.projects:
            raise not_found(Reason.PROJECT_NOT_FOUND, resource.project_id, field="project_id")
        tables.files[resource.id] = resource
        return
    for other in tables.current(resource):
        if other.id != resource.id and _name(other) == _name(resource):
            raise error(
                Reason.ALREADY_EXISTS,
                f"The name '{resource.name}' is taken. Choose another one.",
                field="name",
            )
    match resource:
        case Library():
            tables.libraries[resource.id] = resource
        case Definition():
            tables.definitions[resource.id] = (*tables.definitions.get(resource.id, ()), resource)
        case Agent():
            tables.agents[resource.id] = resource
        case Project():
            tables.projects[resource.id] = resource


def _delete(tables: _Tables, resource: Resource) -> None:
    stored = [each for each in tables.current(resource) if each.id == resource.id]
    if not stored or stored[0].version != resource.version:
        raise _stale()
    match resource:
        case Library():
            del tables.libraries[resource.id]
        case Definition():
            del tables.definitions[resource.id]
        case Agent():
            del tables.agents[resource.id]
        case Project():
            del tables.projects[resource.id]
            tables.files = {key: file for key, file in tables.files.items() if file.project_id != resource.id}
        case File():
            del tables.files[resource.id]


def _name(resource: Resource) -> tuple[str, str]:
    return (resource.library_id if isinstance(resource, Definition) else "", resource.name)


def _stale() -> WonderError:
    return error(
        Reason.ETAG_MISMATCH,
        "Another request changed the resource meanwhile. Read it again and repeat the change.",
        field="etag",
    )


def _find(table: Mapping[str, N], key: str) -> N | None:
    return table.get(key) or next((each for each in table.values() if each.name == key), None)


def _newest(resources: Iterable[N], before: str) -> list[N]:
    newest = sorted(resources, key=lambda each: each.id, reverse=True)
    return [each for each in newest if not before or each.id < before]


def _selected(head: Definition, query: DefinitionQuery) -> bool:
    return (
        (head.library, head.name) > query.after
        and query.library_id in ("", head.library_id)
        and (query.libraries is None or head.library_id in query.libraries)
        and (not query.kinds or head.kind in query.kinds)
        and query.labels.items() <= head.draft.labels.items()
    )
