"""The catalog in memory, for tests and for servers that store nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import Agent, Definition, Library, Project, Resource
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.catalog import ANSWER_TTL_MS, Answer, Change, DefinitionQuery, Put

N = TypeVar("N", Library, Agent, Project)


@dataclass
class _Tables:
    """All resources by id. ``definitions`` has the revisions of each definition, oldest first."""

    libraries: dict[str, Library] = field(default_factory=dict)
    definitions: dict[str, tuple[Definition, ...]] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)

    def copy(self) -> _Tables:
        return _Tables(
            dict(self.libraries),
            dict(self.definitions),
            dict(self.agents),
            dict(self.projects),
            dict(self.answers),
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


class MemoryCatalog:
    """Implements `wonder_server.ports.catalog.Catalog`."""

    def __init__(self) -> None:
        self._tables = _Tables()

    async def library(self, key: str) -> Library | None:
        return _find(self._tables.libraries, key)

    async def libraries(self, after: str, limit: int) -> list[Library]:
        named = sorted(self._tables.libraries.values(), key=lambda library: library.name)
        return [library for library in named if library.name > after][:limit]

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

    async def agents(self, project_id: str, before: str, limit: int) -> list[Agent]:
        newest = _newest(self._tables.agents.values(), before)
        return [agent for agent in newest if not project_id or project_id in agent.project_ids][:limit]

    async def project(self, key: str) -> Project | None:
        return _find(self._tables.projects, key)

    async def projects(self, before: str, limit: int) -> list[Project]:
        return _newest(self._tables.projects.values(), before)[:limit]

    async def commit(self, changes: Sequence[Change], answer: Answer | None = None) -> None:
        tables = self._tables.copy()
        for change in changes:
            if isinstance(change, Put):
                _put(tables, change.resource)
            else:
                _delete(tables, change.resource)
        if answer is not None:
            if answer.request_id in tables.answers:
                raise error(
                    Reason.REQUEST_ID_REUSED,
                    f"The request_id '{answer.request_id}' was used before. Choose a new one.",
                    field="request_id",
                )
            oldest = answer.created_ms - ANSWER_TTL_MS
            tables.answers = {key: each for key, each in tables.answers.items() if each.created_ms >= oldest}
            tables.answers[answer.request_id] = answer
        self._tables = tables

    async def answer(self, request_id: str) -> Answer | None:
        return self._tables.answers.get(request_id)


def _put(tables: _Tables, resource: Resource) -> None:
    stored = [each for each in tables.current(resource) if each.id == resource.id]
    if (stored[0].version if stored else 0) != resource.version - 1:
        raise _stale()
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
        and (not query.kinds or head.kind in query.kinds)
        and query.labels.items() <= head.draft.labels.items()
    )
