"""The directory of principals: which token makes which caller, and the rights of recorded work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wonder_server.core.access.permissions import Role
from wonder_server.core.identity import Principal, PrincipalKind, recorded_principal
from wonder_server.core.tenancy.resources import (
    SERVER_TENANT,
    AccessResource,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
)
from wonder_server.core.tenancy.roles import NOTHING
from wonder_server.ports.access import ALL_RECORDS
from wonder_server.ports.tenancy import DropAccess, PutAccess, StoredTenancy
from wonder_server.services.tenancy.directory import PrincipalDirectory, secret_digest
from wonder_server.services.tenancy.scopes import PrincipalScopes
from wonder_server.services.tenancy.tenants import TenantIndex

ANN = StoredPrincipal(id="prin_1", tenant_id="", kind=PrincipalKind.USER, name="ann")
KEY = ApiKey(id="ab12", tenant_id="", principal_id=ANN.id, digest=secret_digest("s3"), expires_ms=100)
MEMBER = RoleBinding(id="role_1", tenant_id="", role=Role.MEMBER, principal_id=ANN.id, project_id="proj_1")


@pytest.fixture
def directory() -> PrincipalDirectory:
    found = PrincipalDirectory()
    found.load(StoredTenancy(principals=[ANN], keys=[KEY], bindings=[MEMBER]))
    return found


def put(directory: PrincipalDirectory, resource: AccessResource) -> None:
    directory.apply([PutAccess(resource)])


@pytest.mark.parametrize(
    ("token", "now", "is_known"),
    [
        ("wk_ab12_s3", 99, True),
        ("wk_ab12_s3", 100, False),
        ("wk_ab12_s4", 99, False),
        ("wk_ab12_", 99, False),
        ("wk_ab12", 99, False),
        ("wk_ab13_s3", 99, False),
        ("wk_", 99, False),
        ("", 99, False),
    ],
)
def test_a_key_opens_until_it_expires(
    directory: PrincipalDirectory, token: str, now: int, is_known: bool
) -> None:
    assert (directory.caller_of_key(token, now) is not None) is is_known


@pytest.mark.parametrize(
    "changed",
    [
        replace(KEY, revoked_ms=5),
        replace(ANN, disabled_ms=5),
        replace(ANN, deleted=True),
        replace(MEMBER, id="role_2", role=Role.VIEWER, project_id="proj_2"),
    ],
    ids=["revoked", "disabled", "deleted", "another role"],
)
def test_a_call_does_not_outlive_a_change_of_its_permissions(
    directory: PrincipalDirectory, changed: AccessResource
) -> None:
    caller = directory.caller_of_key("wk_ab12_s3", 1)
    assert caller is not None and directory.is_still_valid(caller, 1)
    changes: list[bool] = []
    directory.on_changed = lambda: changes.append(True)
    put(directory, changed)
    assert changes and not directory.is_still_valid(caller, 1)


def test_a_change_of_another_principal_ends_no_call(directory: PrincipalDirectory) -> None:
    caller = directory.caller_of_key("wk_ab12_s3", 1)
    put(directory, replace(ANN, id="prin_2", name="bob"))
    assert caller is not None and directory.is_still_valid(caller, 1)


def test_recorded_work_has_the_rights_that_its_principal_has_now(directory: PrincipalDirectory) -> None:
    caller = directory.caller_of_key("wk_ab12_s3", 1)
    assert caller is not None
    recorded = recorded_principal(caller.principal.text)
    assert recorded is not None
    scopes = PrincipalScopes(directory, TenantIndex())
    assert scopes.scope_of(recorded).projects == frozenset({"proj_1"})
    directory.apply([DropAccess(MEMBER)])
    assert scopes.scope_of(recorded).projects == frozenset()
    assert directory.grants_of_recorded(recorded).anywhere == frozenset()


def test_a_limit_of_a_key_holds_for_the_work_after_the_key(directory: PrincipalDirectory) -> None:
    limited = replace(KEY, scopes=("*.read",))
    put(directory, limited)
    caller = directory.caller_of_key("wk_ab12_s3", 1)
    assert caller is not None and caller.principal.text == "user#ab12:ann"
    recorded = recorded_principal(caller.principal.text)
    assert recorded is not None
    put(directory, replace(limited, revoked_ms=2))
    assert PrincipalScopes(directory, TenantIndex()).scope_of(recorded).projects == frozenset()
    assert "conversations.read" in directory.grants_of_recorded(recorded).anywhere
    directory.apply([DropAccess(limited)])
    assert directory.grants_of_recorded(recorded) is NOTHING


@pytest.mark.parametrize("text", ["user:bob", "service:ann", "tnt_1/user:ann"])
def test_an_unknown_principal_has_no_rights(directory: PrincipalDirectory, text: str) -> None:
    recorded = recorded_principal(text)
    assert recorded is not None
    assert directory.grants_of_recorded(recorded) is NOTHING
    assert PrincipalScopes(directory, TenantIndex()).scope_of(recorded).libraries == frozenset()


def test_tokens_reach_everything(directory: PrincipalDirectory) -> None:
    token = Principal(kind=PrincipalKind.TOKEN, subject="ann")
    assert PrincipalScopes(directory, TenantIndex()).scope_of(token) is ALL_RECORDS


def test_uses_are_taken_once(directory: PrincipalDirectory) -> None:
    directory.caller_of_key("wk_ab12_s3", 7)
    directory.caller_of_key("wk_ab12_wrong", 8)
    assert directory.take_uses() == {KEY.id: 7}
    assert directory.take_uses() == {}


SERVER_ROLE = RoleBinding(id="role_9", tenant_id=SERVER_TENANT, role=Role.ADMIN, group="chiefs")


@pytest.mark.parametrize("tenant_id", ["", "tnt_1"])
def test_a_group_gives_roles_on_the_server_with_a_token_of_the_first_issuer_only(tenant_id: str) -> None:
    found = PrincipalDirectory()
    chief = replace(ANN, tenant_id=tenant_id, groups=("chiefs",))
    key = replace(KEY, tenant_id=tenant_id)
    found.load(StoredTenancy(principals=[chief], keys=[key], bindings=[SERVER_ROLE]))
    by_token, by_key = found.caller_of_login(chief, 10), found.caller_of_key("wk_ab12_s3", 5)
    assert by_token is not None and by_key is not None
    assert bool(by_token.grants.server) is (tenant_id == "")
    # Who administers a tenant makes keys of its principals.
    assert not by_key.grants.server
    assert [each.id for each in found.administrators()] == ([chief.id] if not tenant_id else [])


def test_an_external_name_is_of_one_tenant() -> None:
    found = PrincipalDirectory()
    mine = replace(ANN, external="https://id.example u-1")
    theirs = replace(mine, id="prin_2", tenant_id="tnt_1")
    found.load(StoredTenancy(principals=[mine, theirs]))
    assert found.principal_of_external("", mine.external) == mine
    assert found.principal_of_external("tnt_1", mine.external) == theirs
    assert found.principal_of_external("tnt_2", mine.external) is None
    put(found, replace(theirs, external="", deleted=True, version=2))
    assert found.principal_of_external("tnt_1", mine.external) is None
    assert found.principal_of_external("", mine.external) == mine
