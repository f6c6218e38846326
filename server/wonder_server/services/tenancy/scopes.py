"""Access scopes of principals: the projects in which they have the permission that a call or work needs."""

from __future__ import annotations

from typing import Final

from wonder_server.core.identity import STORED_KINDS, Principal
from wonder_server.core.tenancy.roles import Grants
from wonder_server.ports.access import ALL_RECORDS, AccessScope
from wonder_server.services.tenancy.directory import PrincipalDirectory
from wonder_server.services.tenancy.tenants import TenantIndex

WORK: Final = "conversations.write"
"""Permission that the work of a turn or run needs in a project, at each step."""
_LIBRARY_CHANGES: Final = frozenset(
    {"definitions.delete", "definitions.write", "libraries.delete", "libraries.write"}
)
"""Permissions about libraries, which belong to all projects of a tenant: a role in one project does not
change them."""

_MAX_CACHED: Final = 10_000


class PrincipalScopes:
    """Access scopes by principal and permission, for one version of the directory and of the tenants."""

    def __init__(self, directory: PrincipalDirectory, tenants: TenantIndex) -> None:
        self._directory = directory
        self._tenants = tenants
        self._version = self._current_version()
        self._scopes: dict[Principal, AccessScope] = {}

    def scope_of(self, principal: Principal) -> AccessScope:
        """Return the access scope of a principal for `Principal.permission`, or for work without one. Tokens
        of a file, callers of a server without authentication, and the server for its work in a tenant reach
        everything in the tenant."""
        has_tenants = bool(principal.tenant or self._directory.tenants)
        whole = self._tenants.scope_of(principal.tenant) if has_tenants else ALL_RECORDS
        if principal.kind not in STORED_KINDS:
            return whole
        version = self._current_version()
        if version != self._version or len(self._scopes) >= _MAX_CACHED:
            self._scopes.clear()
            self._version = version
        known = self._scopes.get(principal)
        if known is None:
            grants = self._directory.grants_of_recorded(principal)
            known = self._scopes[principal] = scope_for(grants, principal.permission or WORK, whole)
        return known

    def _current_version(self) -> tuple[int, int]:
        return self._directory.version, self._tenants.version


def scope_for(grants: Grants, permission: str, whole: AccessScope = ALL_RECORDS) -> AccessScope:
    """Return the access scope that a permission has with these grants, within the ``whole`` of the tenant.
    Pure."""
    projects = grants.projects_with(permission)
    if projects is None:
        return whole
    libraries = frozenset[str]() if permission in _LIBRARY_CHANGES or not projects else whole.libraries
    if whole.projects is not None:
        projects &= whole.projects
    return AccessScope(
        projects=projects,
        libraries=libraries,
        tenant=whole.tenant,
        whole=whole if whole.tenant is not None else None,
    )
