"""The catalog: libraries with their definitions, agents, projects.

Reading is split by what is read; writing is one method: a list of changes, all or none, in one
transaction. What the changes are is decided above (``services/library``); a store only guards what
two writers could break: names are unique, versions follow each other, revisions never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import Agent, Definition, Library, Project, Resource
from wonder_server.core.definitions.specs import Kind

ANSWER_TTL_MS = 48 * 3600 * 1000
"""How long the answer of a ``request_id`` is remembered; the contract promises 24 hours."""


@dataclass(frozen=True, slots=True)
class Put:
    """Keep this version of a resource: version 1 must be new, any other must follow the stored one.

    ALREADY_EXISTS if the name is taken, ETAG_MISMATCH if another version came between.
    """

    resource: Resource


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove a resource, a definition with all its revisions. ETAG_MISMATCH if it is not this version."""

    resource: Resource


Change = Put | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the first request with this id was answered. ``fingerprint`` tells requests apart."""

    request_id: str
    fingerprint: str
    result: dict[str, Any]
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionQuery:
    """Newest revisions by library and name, after the given pair. Empty filters select all."""

    library_id: str = ""
    kinds: tuple[Kind, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    after: tuple[str, str] = ("", "")
    limit: int = 50


class Definitions(Protocol):
    """Libraries and what they hold. A key is an id or a name."""

    async def library(self, key: str) -> Library | None: ...

    async def libraries(self, after: str, limit: int) -> list[Library]:
        """By name, those after the name ``after``."""
        ...

    async def definition(self, reference: Reference) -> Definition | None:
        """The revision that a reference with an id, or with library and name, leads to."""
        ...

    async def definitions(self, query: DefinitionQuery) -> list[Definition]: ...

    async def revisions(self, definition_id: str, before: int, limit: int) -> list[Definition]:
        """Newest first, those older than revision ``before`` (0: all)."""
        ...


class Agents(Protocol):
    """Agents. A key is an id or a name."""

    async def agent(self, key: str) -> Agent | None: ...

    async def agent_header(self, key: str) -> Agent | None:
        """An agent as `Drop` needs it, with nothing but its id, name and version: of a damaged one too."""
        ...

    async def agents(self, project_id: str, before: str, limit: int) -> list[Agent]:
        """Newest first, those before the id ``before`` (empty: all); of one project or (empty) of all."""
        ...


class Projects(Protocol):
    """Projects. A key is an id or a name."""

    async def project(self, key: str) -> Project | None: ...

    async def projects(self, before: str, limit: int) -> list[Project]:
        """Newest first, those before the id ``before`` (empty: all)."""
        ...


class Changes(Protocol):
    """Writing, and remembering what was answered."""

    async def commit(self, changes: Sequence[Change], answer: Answer | None = None) -> None:
        """Make all changes and remember the answer in one transaction, in this order, or none of it.

        Raises ALREADY_EXISTS, ETAG_MISMATCH, and REQUEST_ID_REUSED if the id has an answer already.
        Answers older than `ANSWERS_KEPT_MS` may be forgotten on the way.
        """
        ...

    async def answer(self, request_id: str) -> Answer | None: ...


class Catalog(Definitions, Agents, Projects, Changes, Protocol):
    """All of it, as one store provides it."""
