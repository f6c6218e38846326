"""What the catalog keeps, as frozen values: libraries, definitions, agents, projects.

Every resource has a ``version`` that grows by one with each change; `etag` makes it opaque for
clients. Times are milliseconds since 1970 UTC. Field names are those of ``library.proto``; `parse.to_json`
and `parse.read_record` make them JSON and back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from wonder_server.core.budget import NO_BUDGET, Budget
from wonder_server.core.definitions.document import DefinitionDraft
from wonder_server.core.definitions.specs import Kind, Persona, Pin, Spec

DEFAULT_PROJECT = "default"
STANDARD_LIBRARY = "wonder/std"


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A named collection of definitions."""

    id: str
    name: str
    description: str = ""
    definition_count: int = 0
    version: int = 1
    created_ms: int = 0
    updated_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One revision of a definition. ``revision`` is its version: revisions never change."""

    id: str
    library_id: str
    library: str
    revision: int
    draft: DefinitionDraft
    content_hash: str
    created_ms: int = 0
    updated_ms: int = 0

    @property
    def name(self) -> str:
        return self.draft.name

    @property
    def kind(self) -> Kind:
        return self.draft.kind

    @property
    def spec(self) -> Spec:
        return self.draft.spec

    @property
    def version(self) -> int:
        return self.revision

    @property
    def pin(self) -> Pin:
        return Pin(definition_id=self.id, library=self.library, name=self.name, revision=self.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A persona with a memory of its own. Exactly one of ``persona_id`` (a reference) and ``persona``
    (inline) is set. ``project_ids`` are ids, at least one. ``budget`` is for its whole life."""

    id: str
    name: str
    project_ids: tuple[str, ...]
    persona_id: str = ""
    persona: Persona | None = None
    description: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    budget: Budget = NO_BUDGET
    version: int = 1
    created_ms: int = 0
    updated_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A code repository of a project."""

    name: str
    url: str
    default_branch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """What a project's work may reach on the network."""

    http_allow: tuple[str, ...] = ()
    http_only_allowed: bool = False
    shell_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A scope for agents, conversations, artifacts and repositories."""

    id: str
    name: str
    description: str = ""
    repositories: tuple[Repository, ...] = ()
    network: NetworkPolicy | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    created_ms: int = 0
    updated_ms: int = 0


Resource = Library | Definition | Agent | Project


def etag(resource: Resource) -> str:
    """An opaque token that changes with every version of the resource."""
    return hashlib.blake2b(f"{resource.id}/{resource.version}".encode(), digest_size=8).hexdigest()
