"""Resources of the catalog, as frozen values: libraries, definitions, agents, projects, files.

Every resource has a ``version`` that increases by one with each change; `etag` derives the opaque value for
clients. Times are in milliseconds since 1970 UTC. ``updated_by`` is the principal that saved this version
(`wonder_server.core.identity.Principal.text`); "" in records of earlier versions. Field names are those of
``library.proto``; `parse.to_json` and `parse.read_record` convert to JSON and back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from wonder_server.core.budget import NO_BUDGET, Budget
from wonder_server.core.definitions.document import DefinitionDraft
from wonder_server.core.definitions.specs import Kind, Persona, Pin, Spec
from wonder_server.core.json_types import JsonDict
from wonder_server.core.tenancy.names import STANDARD_LIBRARY as STANDARD_LIBRARY

DEFAULT_PROJECT = "default"


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
    updated_by: str = ""


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
    updated_by: str = ""

    @property
    def name(self) -> str:
        """Name in the library."""
        return self.draft.name

    @property
    def kind(self) -> Kind:
        """Kind that the spec defines."""
        return self.draft.kind

    @property
    def spec(self) -> Spec:
        """Content of the definition."""
        return self.draft.spec

    @property
    def version(self) -> int:
        """The revision: a definition has no other version."""
        return self.revision

    @property
    def pin(self) -> Pin:
        """Reference to exactly this revision."""
        return Pin(definition_id=self.id, library=self.library, name=self.name, revision=self.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A persona with a memory of its own. Exactly one of ``persona_id`` (a reference) and ``persona``
    (inline) is set. ``project_ids`` has at least one id. ``budget`` covers the agent's lifetime."""

    id: str
    name: str
    project_ids: tuple[str, ...]
    persona_id: str = ""
    persona: Persona | None = None
    description: str = ""
    metadata: JsonDict = field(default_factory=dict)
    budget: Budget = NO_BUDGET
    version: int = 1
    created_ms: int = 0
    updated_ms: int = 0
    updated_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A code repository of a project."""

    name: str
    url: str
    default_branch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """Network destinations that a project's work may reach; see `network_policy`."""

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
    metadata: JsonDict = field(default_factory=dict)
    version: int = 1
    created_ms: int = 0
    updated_ms: int = 0
    updated_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a project. It never changes, so its version stays 1; `name` is not unique.

    ``objects`` are the keys of the objects that hold the content: each ``object_bytes`` of it, the last one
    the rest. ``created_by`` is the principal that uploaded the file or started the work that made it.
    """

    id: str
    project_id: str
    name: str
    media_type: str
    size_bytes: int
    sha256: str
    objects: tuple[str, ...] = ()
    object_bytes: int = 1 << 20
    version: int = 1
    created_ms: int = 0
    created_by: str = ""


Resource = Library | Definition | Agent | Project | File


def etag(resource: Resource) -> str:
    """Return an opaque value that changes with every version of the resource."""
    return hashlib.blake2b(f"{resource.id}/{resource.version}".encode(), digest_size=8).hexdigest()
