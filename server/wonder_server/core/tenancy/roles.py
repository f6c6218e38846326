"""Permissions that role bindings give, and what a key leaves of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from wonder_server.core.access.permissions import (
    ACT_AS,
    ALL,
    EVERYWHERE,
    PERMISSIONS_OF,
    SERVER_ONLY,
    WIDENING,
    Role,
)
from wonder_server.core.identity import PrincipalKind
from wonder_server.core.tenancy.resources import SERVER_TENANT, ApiKey, RoleBinding

_ACTING: Final = frozenset({Role.MEMBER, Role.DEVELOPER})
"""Roles with which a service acts for its users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """Permissions of one caller. ``server`` and ``tenant`` hold for all projects; ``projects`` has those of
    single ones, by project id."""

    server: frozenset[str] = frozenset()
    tenant: frozenset[str] = frozenset()
    projects: Mapping[str, frozenset[str]]

    @property
    def anywhere(self) -> frozenset[str]:
        """Every permission that the caller has in at least one place, or everywhere if it must."""
        everywhere = self.server | self.tenant
        return everywhere | (frozenset[str]().union(*self.projects.values()) - EVERYWHERE)

    def projects_with(self, permission: str) -> frozenset[str] | None:
        """Return the projects in which the caller has a permission; None for all of its tenant."""
        if permission in self.tenant or permission in self.server:
            return None
        return frozenset(id for id, held in self.projects.items() if permission in held)


NOTHING: Final = Grants(projects={})


def grants_of(
    kind: PrincipalKind, tenant_id: str, bindings: Iterable[RoleBinding], key: ApiKey | None
) -> Grants:
    """Return the permissions that a principal of a tenant has by its bindings and those of its groups.

    ``key`` is the key of the call: it limits permissions and projects, and adds nothing. Bindings of other
    tenants give nothing: a principal acts in its own. Those of the server reach every tenant.
    """
    server: set[str] = set()
    tenant: set[str] = set()
    projects: dict[str, frozenset[str]] = {}
    for binding in bindings:
        held = _held(kind, binding.role)
        if binding.tenant_id == SERVER_TENANT:
            server |= held
            continue
        if binding.tenant_id != tenant_id:
            continue
        if not binding.project_id:
            tenant |= held - SERVER_ONLY
        else:
            projects[binding.project_id] = projects.get(binding.project_id, frozenset()) | held
    grants = Grants(server=frozenset(server), tenant=frozenset(tenant), projects=projects)
    return grants if key is None else _limited(grants, key)


def _held(kind: PrincipalKind, role: Role) -> frozenset[str]:
    held = PERMISSIONS_OF[role]
    return held | {ACT_AS} if kind is PrincipalKind.SERVICE and role in _ACTING else held


def _limited(grants: Grants, key: ApiKey) -> Grants:
    """Return what a key leaves. A key of some projects leaves nothing outside of them. A key that limits
    leaves no permission with which it could make one that limits less."""
    if not key.scopes and not key.project_ids:
        return grants
    allowed = (matching(key.scopes) if key.scopes else ALL) - WIDENING
    if not key.project_ids:
        return Grants(
            server=grants.server & allowed,
            tenant=grants.tenant & allowed,
            projects={id: held & allowed for id, held in grants.projects.items()},
        )
    everywhere = grants.server | grants.tenant
    return Grants(
        projects={id: (grants.projects.get(id, frozenset()) | everywhere) & allowed for id in key.project_ids}
    )


@lru_cache(maxsize=1024)
def matching(scopes: tuple[str, ...]) -> frozenset[str]:
    """Return the permissions that scopes name: ``conversations.read``, ``conversations.*``, ``*.read``,
    ``*``."""
    return frozenset(permission for permission in ALL if any(_matches(permission, each) for each in scopes))


def unknown_scopes(scopes: Collection[str]) -> list[str]:
    """Return the scopes that name no permission."""
    return [each for each in scopes if not matching((each,))]


def _matches(permission: str, scope: str) -> bool:
    if scope in ("*", permission):
        return True
    if "." not in permission:
        return False
    resource, _, verb = permission.partition(".")
    wanted, dot, wanted_verb = scope.partition(".")
    return bool(dot) and wanted in ("*", resource) and wanted_verb in ("*", verb)
