"""The permissions of the server, and the roles that have them.

A permission is a resource and a verb, ``conversations.read``. Each method of the contract names the one that
its call needs (``option (permission)`` in the .proto files); `EXTRA` lists those that only some requests of a
method need. Roles are few and fixed. A new method gets an existing permission, or one with a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """A role. Each but `WORKER` has the permissions of those below it."""

    ADMIN = "admin"
    """Everything in a tenant, or on the server: members, keys, deletions, network policies."""
    DEVELOPER = "developer"
    """Definitions and agents of a project, and deletions in it."""
    MEMBER = "member"
    """Talk, run, remember, resolve gates."""
    VIEWER = "viewer"
    """Read everything of a project."""
    WORKER = "worker"
    """Execute tasks of its action kinds, and nothing else."""


ACT_AS: Final = "act_as"
WHO_AM_I: Final = "caller.read"
REFLECT: Final = "server.reflect"
SEARCH_ALL: Final = "memories.search_all"
DELETE_ARTIFACTS: Final = "artifacts.delete"
PROJECT_LIMITS: Final = "projects.limits"
EXECUTE_ANYTHING: Final = "tasks.execute_any"

_EVERYBODY: Final = frozenset({"actions.read", WHO_AM_I, "keys.own", REFLECT})
_VIEWER: Final = frozenset(
    {
        *_EVERYBODY,
        "agents.read",
        "artifacts.read",
        "conversations.read",
        "definitions.read",
        "files.read",
        "gates.read",
        "libraries.read",
        "memories.read",
        "projects.read",
        "runs.read",
    }
)
_MEMBER: Final = _VIEWER | {
    "artifacts.write",
    "conversations.write",
    "files.write",
    "gates.resolve",
    "memories.write",
    "runs.write",
    "tasks.execute",
}
_DEVELOPER: Final = _MEMBER | {
    "agents.delete",
    "agents.write",
    "conversations.delete",
    "definitions.delete",
    "definitions.write",
    "files.delete",
    "memories.delete",
    "projects.write",
}
WIDENING: Final = frozenset({"keys.write", "principals.write", "roles.write"})
"""Permissions with which a caller could get any other."""

_ADMIN: Final = _DEVELOPER | {
    ACT_AS,
    DELETE_ARTIFACTS,
    EXECUTE_ANYTHING,
    "audit.read",
    "keys.read",
    "keys.write",
    "libraries.delete",
    "libraries.write",
    "principals.read",
    "principals.write",
    "roles.read",
    "roles.write",
    PROJECT_LIMITS,
    SEARCH_ALL,
    "projects.create",
    "projects.delete",
    "server.backup",
    "tasks.work",
    "tenants.create",
    "tenants.read",
    "tenants.write",
}

SERVER_ONLY: Final = frozenset({PROJECT_LIMITS, "server.backup", "tenants.create", "tenants.write"})
"""Permissions about the server itself, and what its network reaches: `Role.ADMIN` of a tenant has none."""

PERMISSIONS_OF: Final[Mapping[Role, frozenset[str]]] = {
    Role.ADMIN: _ADMIN,
    Role.DEVELOPER: _DEVELOPER,
    Role.MEMBER: _MEMBER,
    Role.VIEWER: _VIEWER,
    Role.WORKER: _EVERYBODY | {"tasks.work"},
}

ALL: Final = frozenset().union(*PERMISSIONS_OF.values())
"""All permissions."""

EVERYWHERE: Final = frozenset(
    {
        "audit.read",
        "keys.read",
        "keys.write",
        SEARCH_ALL,
        "principals.read",
        "principals.write",
        "projects.create",
        "roles.read",
        "roles.write",
        "server.backup",
        "tasks.work",
        "tenants.create",
        "tenants.read",
        "tenants.write",
    }
)
"""Permissions about what belongs to no project. Who has one in single projects only does not have it."""

EXTRA: Final[Mapping[str, str]] = {
    ACT_AS: "act for another: send another user_id or author, name an agent or run as the caller, or name "
    "the conversation, turn or run in which a task works",
    SEARCH_ALL: "search the memories of all agents together",
    DELETE_ARTIFACTS: "delete an artifact, by a write or by a merge",
    PROJECT_LIMITS: "change the network policy and the repositories of a project",
    EXECUTE_ANYTHING: "execute a task that deletes, or as an agent",
}
"""Uses of the permissions that no method names.

A request needs it beside the permission of its method. A role that has it must have it wherever it has the
permission of the method: it is checked without a project. So only `Role.ADMIN`, which is of a tenant or of
the server, has one. Those of `SERVER_ONLY` are for administrators of the server.
"""
