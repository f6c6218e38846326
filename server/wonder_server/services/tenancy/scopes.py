"""Access scopes of principals: the projects in which they have the permission that a call or work needs."""

from __future__ import annotations

from typing import Final

from wonder_server.core.identity import STORED_KINDS, Principal
from wonder_server.core.tenancy.roles import Grants
from wonder_server.ports.access import ALL_RECORDS, AccessScope
from wonder_server.services.tenancy.directory import PrincipalDirectory

WORK: Final = "conversations.write"
"""Permission that the work of a turn or run needs in a project, at each step."""
_LIBRARY_CHANGES: Final = frozenset(
    {"definitions.delete", "definitions.write", "libraries.delete", "libraries.write"}
)
"""Permissions about libraries, which belong to all projects: a role in one project does not change them."""

_MAX_CACHED: Final = 10_000


class PrincipalScopes:
    """Access scopes by principal and permission, for one version of the directory."""

    def __init__(self, directory: PrincipalDirectory) -> None:
        self._directory = directory
        self._version = directory.version
        self._scopes: dict[Principal, AccessScope] = {}

    def scope_of(self, principal: Principal) -> AccessScope:
        """Return the access scope of a principal for `Principal.permission`, or for work without one. Tokens
        of a file, and callers of a server without authentication, reach everything."""
        if principal.kind not in STORED_KINDS:
            return ALL_RECORDS
        if self._directory.version != self._version or len(self._scopes) >= _MAX_CACHED:
            self._scopes.clear()
            self._version = self._directory.version
        known = self._scopes.get(principal)
        if known is None:
            grants = self._directory.grants_of_recorded(principal)
            known = self._scopes[principal] = scope_for(grants, principal.permission or WORK)
        return known


def scope_for(grants: Grants, permission: str) -> AccessScope:
    """Return the access scope that a permission has with these grants. Pure."""
    projects = grants.projects_with(permission)
    if projects is None:
        return ALL_RECORDS
    libraries = frozenset[str]() if permission in _LIBRARY_CHANGES or not projects else None
    return AccessScope(projects=projects, libraries=libraries)
