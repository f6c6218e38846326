"""Roles and permissions: their order, and that each permission has a use and a role."""

from __future__ import annotations

from itertools import pairwise

import pytest

from wonder_server.core.access.permissions import ALL, EXTRA, PERMISSIONS_OF, Role
from wonder_server.rpc.server.authorization import permission_of
from wonder_server.rpc.server.server import contract_services

METHODS = {
    f"{service.name}.{method.name}": permission_of(method)
    for service in contract_services()
    for method in service.methods
}
OUTSIDE_OF_THE_CONTRACT = {"server.reflect"}


@pytest.mark.parametrize("method", METHODS)
def test_each_method_names_a_permission_that_a_role_has(method: str) -> None:
    assert METHODS[method] in ALL, f"{method} needs `option (permission)` with a permission of a role."


def test_each_permission_has_a_use() -> None:
    assert ALL == set(METHODS.values()) | EXTRA.keys() | OUTSIDE_OF_THE_CONTRACT


def test_roles_contain_those_below_them() -> None:
    order = [Role.VIEWER, Role.MEMBER, Role.DEVELOPER, Role.ADMIN]
    for lower, higher in pairwise(order):
        assert PERMISSIONS_OF[lower] < PERMISSIONS_OF[higher]
    assert PERMISSIONS_OF[Role.ADMIN] == ALL
    assert PERMISSIONS_OF[Role.WORKER] - PERMISSIONS_OF[Role.VIEWER] == {"tasks.work"}


def test_only_admins_have_a_permission_that_is_checked_without_a_project() -> None:
    for role in set(Role) - {Role.ADMIN}:
        assert not PERMISSIONS_OF[role] & EXTRA.keys()


@pytest.mark.parametrize("verb", ["write", "delete", "create", "execute", "resolve", "limits"])
def test_viewers_change_nothing(verb: str) -> None:
    assert not any(permission.endswith(f".{verb}") for permission in PERMISSIONS_OF[Role.VIEWER])
