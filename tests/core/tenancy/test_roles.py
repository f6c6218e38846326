"""Permissions of role bindings and keys, as tables and laws."""

from __future__ import annotations

from itertools import combinations

import pytest

from wonder_server.core.access.permissions import ACT_AS, ALL, PERMISSIONS_OF, SERVER_ONLY, WIDENING, Role
from wonder_server.core.identity import PrincipalKind
from wonder_server.core.tenancy.resources import SERVER_TENANT, ApiKey, RoleBinding
from wonder_server.core.tenancy.roles import Grants, grants_of, matching, unknown_scopes

ACME, OTHER = "tnt_acme", "tnt_other"
USER, SERVICE = PrincipalKind.USER, PrincipalKind.SERVICE


def bound(role: Role, tenant: str = ACME, project: str = "") -> RoleBinding:
    return RoleBinding(id=f"{role}{tenant}{project}", tenant_id=tenant, role=role, project_id=project)


def key(*scopes: str, projects: tuple[str, ...] = ()) -> ApiKey:
    return ApiKey(
        id="key_1", tenant_id=ACME, principal_id="p", digest="", scopes=scopes, project_ids=projects
    )


BINDINGS = [
    bound(Role.ADMIN, SERVER_TENANT),
    bound(Role.ADMIN),
    bound(Role.DEVELOPER, project="a"),
    bound(Role.MEMBER, project="a"),
    bound(Role.VIEWER),
    bound(Role.WORKER, project="b"),
    bound(Role.ADMIN, OTHER),
    bound(Role.ADMIN, OTHER, "a"),
]
KEYS = [
    None,
    key(),
    key("conversations.*"),
    key("*.read", projects=("a",)),
    key("*", projects=("a", "b", "c")),
    key("nothing.known"),
]


def held(grants: Grants, project: str) -> frozenset[str]:
    return grants.server | grants.tenant | grants.projects.get(project, frozenset())


def test_without_a_role_there_is_no_permission() -> None:
    assert grants_of(USER, ACME, [], None).anywhere == frozenset()


@pytest.mark.parametrize("role", Role)
def test_a_role_of_a_project_holds_there_only(role: Role) -> None:
    grants = grants_of(USER, ACME, [bound(role, project="a")], None)
    assert held(grants, "a") == PERMISSIONS_OF[role]
    assert held(grants, "b") == frozenset()


def test_a_binding_of_another_tenant_gives_nothing() -> None:
    assert not grants_of(USER, ACME, [bound(Role.ADMIN, OTHER), bound(Role.ADMIN, OTHER, "a")], None).anywhere


def test_services_act_for_users_where_they_take_part() -> None:
    bindings = [bound(Role.MEMBER, project="a"), bound(Role.VIEWER, project="b")]
    grants = grants_of(SERVICE, ACME, bindings, None)
    assert grants.projects_with(ACT_AS) == frozenset({"a"})
    assert ACT_AS not in grants_of(USER, ACME, bindings, None).anywhere


def test_the_projects_with_a_permission() -> None:
    bindings = [bound(Role.DEVELOPER, project="a"), bound(Role.VIEWER, project="b")]
    grants = grants_of(USER, ACME, bindings, None)
    assert grants.projects_with("agents.write") == frozenset({"a"})
    assert grants.projects_with("agents.read") == frozenset({"a", "b"})
    assert grants_of(USER, ACME, [bound(Role.VIEWER)], None).projects_with("agents.read") is None


@pytest.mark.parametrize("limit", KEYS)
@pytest.mark.parametrize("kind", [USER, SERVICE])
def test_a_key_never_widens_and_a_binding_never_narrows(kind: PrincipalKind, limit: ApiKey | None) -> None:
    for count in range(len(BINDINGS) + 1):
        for bindings in combinations(BINDINGS, count):
            whole, narrowed = (grants_of(kind, ACME, bindings, each) for each in (None, limit))
            fewer = grants_of(kind, ACME, bindings[1:], limit)
            for project in ("a", "b", "c"):
                assert held(narrowed, project) <= held(whole, project)
                assert held(fewer, project) <= held(narrowed, project)


def test_a_key_of_projects_has_nothing_elsewhere() -> None:
    grants = grants_of(USER, ACME, [bound(Role.ADMIN)], key(projects=("a",)))
    assert (grants.server, grants.tenant) == (frozenset(), frozenset())
    assert grants.projects == {"a": ALL - WIDENING - SERVER_ONLY}


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ("runs.read", {"runs.read"}),
        ("runs.*", {"runs.read", "runs.write"}),
        ("act_as", {"act_as"}),
        ("*", ALL),
        ("*.*", {permission for permission in ALL if "." in permission}),
        ("", set()),
        (".", set()),
        ("runs", set()),
        ("runs.read.x", set()),
        ("*.read.*", set()),
    ],
)
def test_scopes_are_patterns(scope: str, found: set[str]) -> None:
    assert matching((scope,)) == found
    assert unknown_scopes([scope]) == ([] if found else [scope])


def test_a_scope_of_one_verb_selects_it_everywhere() -> None:
    assert matching(("*.read",)) == {permission for permission in ALL if permission.endswith(".read")}


@pytest.mark.parametrize("limit", [key("*"), key("keys.*"), key(projects=("a",))])
def test_a_key_that_limits_cannot_make_a_wider_one(limit: ApiKey) -> None:
    assert not grants_of(USER, ACME, [bound(Role.ADMIN, SERVER_TENANT)], limit).anywhere & WIDENING
