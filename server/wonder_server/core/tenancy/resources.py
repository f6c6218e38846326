"""Stored values of the administration of access: tenants, principals, API keys and role bindings.

Each resource has a ``version`` that increases by one with each change. Times are in milliseconds since 1970
UTC; 0 is never. ``updated_by`` is the principal that made the change (`Principal.text`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from wonder_server.core.access.permissions import Role
from wonder_server.core.identity import PrincipalKind

DEFAULT_TENANT = ""
"""Id of the tenant that every folder has, and to which everything belongs until there are others."""
DEFAULT_TENANT_NAME = "default"
SERVER_TENANT = "*"
"""In a role binding: the server, with all its tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """An organisation on the server: its projects, libraries, principals and everything of theirs."""

    id: str
    name: str
    description: str = ""
    version: int = 1
    created_ms: int = 0
    updated_ms: int = 0
    updated_by: str = ""


DEFAULT: Final = Tenant(id=DEFAULT_TENANT, name=DEFAULT_TENANT_NAME)
"""The tenant that every folder has. It is not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPrincipal:
    """A principal of a tenant. Its name is unique in its tenant and kind, and is never used again, since
    records name it. ``external`` is the name by which an issuer or a certificate knows it, "" for none:
    ``iss sub`` of a token, or the URI of a certificate. ``groups`` are those of the newest token, which was
    made at ``groups_ms``. While ``disabled_ms`` is set, its calls are rejected, and the work that it
    started ends at its next step. ``deleted`` keeps the name only."""

    id: str
    tenant_id: str
    kind: PrincipalKind
    name: str
    display_name: str = ""
    external: str = ""
    groups: tuple[str, ...] = ()
    groups_ms: int = 0
    disabled_ms: int = 0
    deleted: bool = False
    version: int = 1
    created_ms: int = 0
    updated_ms: int = 0
    updated_by: str = ""

    @property
    def is_active(self) -> bool:
        """True if calls of this principal are served."""
        return not self.disabled_ms and not self.deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of a principal. ``digest`` is the SHA-256 of its secret in hex; the secret is not stored.

    ``scopes`` are patterns of the permissions to which it is limited, such as ``conversations.*``; empty is
    all of the principal. ``project_ids`` limits it to projects; empty is all. ``replaced_by`` is the key that
    a rotation made.
    """

    id: str
    tenant_id: str
    principal_id: str
    digest: str
    label: str = ""
    scopes: tuple[str, ...] = ()
    project_ids: tuple[str, ...] = ()
    expires_ms: int = 0
    revoked_ms: int = 0
    replaced_by: str = ""
    version: int = 1
    created_ms: int = 0
    updated_ms: int = 0
    updated_by: str = ""

    def is_valid(self, now_ms: int) -> bool:
        """Return True if the key opens calls at this time."""
        return not self.revoked_ms and (not self.expires_ms or now_ms < self.expires_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleBinding:
    """A role of a principal or of a group, on the server, on a tenant or on a project.

    Exactly one of ``principal_id`` and ``group`` is set; a group is a name that an issuer says. ``tenant_id``
    is `SERVER_TENANT` for the server, whose only role is `Role.ADMIN`. ``project_id`` is "" for the whole
    tenant. Bindings are made and deleted, never changed.
    """

    id: str
    tenant_id: str
    role: Role
    project_id: str = ""
    principal_id: str = ""
    group: str = ""
    version: int = 1
    created_ms: int = 0
    updated_by: str = ""


AccessResource = Tenant | StoredPrincipal | ApiKey | RoleBinding


def unique_name(resource: AccessResource) -> str:
    """Return what no other resource of its type may have."""
    match resource:
        case Tenant():
            return resource.name
        case StoredPrincipal():
            return f"{resource.tenant_id}/{resource.kind}:{resource.name}"
        case ApiKey():
            return resource.id
        case RoleBinding():
            member = resource.principal_id or f"group {resource.group}"
            return f"{resource.tenant_id}/{resource.project_id}/{resource.role}/{member}"


def resource_etag(resource: AccessResource) -> str:
    """Return an opaque value that changes with every version of the resource."""
    return hashlib.blake2b(f"{resource.id}/{resource.version}".encode(), digest_size=8).hexdigest()
