"""Requests of the IdentityService for the tables of tests over all methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wonder.v1 import identity_service_pb2 as pb
from wonder.v1.common_pb2 import PRINCIPAL_KIND_USER
from wonder.v1.identity_pb2 import ROLE_MEMBER, ROLE_VIEWER


async def made(house: Any, method: str, **details: str) -> str:
    """Return the id of what the first audited call with these details made, also if it is gone."""
    request = pb.ListAuditEntriesRequest(method=method, page_size=500)
    entries = (await house.ann.identity.ListAuditEntries(request)).entries
    found = [each for each in entries if details.items() <= dict(each.details).items()]
    return str(found[-1].resource) if found else "of_nothing"


async def update_tenant(house: Any, caller: Any, who: str) -> Any:
    tenant = {"id": await made(house, "CreateTenant", name="ann"), "description": who}
    return await caller.identity.UpdateTenant(
        pb.UpdateTenantRequest(request_id="r-UpdateTenant", tenant=tenant)
    )


async def update_principal(house: Any, caller: Any, who: str) -> Any:
    principal = {"id": await made(house, "CreatePrincipal", name="ann"), "display_name": who}
    return await caller.identity.UpdatePrincipal(
        pb.UpdatePrincipalRequest(request_id="r-UpdatePrincipal", principal=principal)
    )


async def create_key(house: Any, caller: Any, who: str) -> Any:
    key = {"principal_id": await made(house, "CreatePrincipal", name="ann"), "label": who}
    return await caller.identity.CreateKey(pb.CreateKeyRequest(request_id="r-CreateKey", key=key))


async def rotate_key(house: Any, caller: Any, who: str) -> Any:
    key_id = await made(house, "CreateKey", label=who)
    return await caller.identity.RotateKey(pb.RotateKeyRequest(request_id="r-RotateKey", key_id=key_id))


async def revoke_key(house: Any, caller: Any, who: str) -> Any:
    key_id = await made(house, "CreateKey", label=who)
    return await caller.identity.RevokeKey(pb.RevokeKeyRequest(request_id="r-RevokeKey", key_id=key_id))


async def create_role_binding(house: Any, caller: Any, who: str) -> Any:
    principal_id = await made(house, "CreatePrincipal", name="ann")
    role = ROLE_VIEWER if who == "ann" else ROLE_MEMBER
    return await caller.identity.CreateRoleBinding(
        pb.CreateRoleBindingRequest(
            request_id="r-CreateRoleBinding", role_binding={"principal_id": principal_id, "role": role}
        )
    )


async def delete_role_binding(house: Any, caller: Any, who: str) -> Any:
    binding_id = await made(house, "CreateRoleBinding", role="viewer" if who == "ann" else "member")
    return await caller.identity.DeleteRoleBinding(
        pb.DeleteRoleBindingRequest(request_id="r-DeleteRoleBinding", role_binding_id=binding_id)
    )


async def delete_principal(house: Any, caller: Any, who: str) -> Any:
    principal_id = await made(house, "CreatePrincipal", name=who)
    return await caller.identity.DeletePrincipal(
        pb.DeletePrincipalRequest(request_id="r-DeletePrincipal", principal_id=principal_id)
    )


IDENTITY_REQUESTS: Mapping[str, Callable[[Any, Any, str], Any]] = {
    "CreateTenant": lambda h, c, who: c.identity.CreateTenant(
        pb.CreateTenantRequest(request_id="r-CreateTenant", tenant={"name": who})
    ),
    "UpdateTenant": update_tenant,
    "CreatePrincipal": lambda h, c, who: c.identity.CreatePrincipal(
        pb.CreatePrincipalRequest(
            request_id="r-CreatePrincipal", principal={"kind": PRINCIPAL_KIND_USER, "name": who}
        )
    ),
    "UpdatePrincipal": update_principal,
    "CreateKey": create_key,
    "RotateKey": rotate_key,
    "RevokeKey": revoke_key,
    "CreateRoleBinding": create_role_binding,
    "DeleteRoleBinding": delete_role_binding,
    "DeletePrincipal": delete_principal,
}
"""A request of each method that takes a ``request_id``, in an order in which each finds what it works on."""

OF_NOTHING: Mapping[str, dict[str, Any]] = {
    "CreateTenant": {"tenant": {"name": "spare"}, "request_id": "spare tenant"},
    "UpdateTenant": {"tenant": {"id": "tnt_0"}},
    "CreatePrincipal": {"principal": {"kind": PRINCIPAL_KIND_USER, "name": "spare"}, "request_id": "spare"},
    "GetPrincipal": {"principal_id": "prin_0"},
    "UpdatePrincipal": {"principal": {"id": "prin_0"}},
    "DeletePrincipal": {"principal_id": "prin_0"},
    "CreateKey": {"key": {"principal_id": "prin_0"}},
    "RotateKey": {"key_id": "0"},
    "RevokeKey": {"key_id": "0"},
    "CreateRoleBinding": {"role_binding": {"role": ROLE_MEMBER, "principal_id": "prin_0"}},
    "DeleteRoleBinding": {"role_binding_id": "role_0"},
}
"""Good requests, most of which name what does not exist."""
OF_NOTHING_ANSWERS: Mapping[str, str] = {
    "UpdateTenant": "TENANT_NOT_FOUND",
    **dict.fromkeys(
        ("GetPrincipal", "UpdatePrincipal", "DeletePrincipal", "CreateKey"), "PRINCIPAL_NOT_FOUND"
    ),
    **dict.fromkeys(("RotateKey", "RevokeKey"), "KEY_NOT_FOUND"),
    "CreateRoleBinding": "PRINCIPAL_NOT_FOUND",
    "DeleteRoleBinding": "ROLE_BINDING_NOT_FOUND",
}
EMPTY_ANSWERS = dict.fromkeys(
    (
        "WhoAmI",
        "GetTenant",
        "ListTenants",
        "ListPrincipals",
        "ListKeys",
        "ListRoleBindings",
        "ListAuditEntries",
    ),
    "",
)
"""Empty requests that are answered."""

IDENTITY_LISTS: Mapping[str, tuple[Callable[[Any], dict[str, Any]], ...]] = {
    "ListTenants": (lambda w: {},),
    "ListPrincipals": (lambda w: {}, lambda w: {"kind": PRINCIPAL_KIND_USER}),
    "ListKeys": (lambda w: {}, lambda w: {"principal_id": w.ids["principal"]}),
    "ListRoleBindings": (
        lambda w: {},
        lambda w: {"project": w.ids["project"]},
        lambda w: {"principal_id": w.ids["principal"]},
    ),
    "ListAuditEntries": (
        lambda w: {},
        lambda w: {"method": "CreateKey"},
        lambda w: {"resource": w.ids["principal"]},
    ),
}
"""Requests for each list, as in the test of all lists."""


async def fill_identity_lists(world: Any) -> None:
    """Create tenants and principals, and keys and roles of one principal."""
    client = world.client.identity
    for name in ("first", "second"):
        await client.CreateTenant(pb.CreateTenantRequest(tenant={"name": name}))
    for name in ("one", "two", "three"):
        principal = {"kind": PRINCIPAL_KIND_USER, "name": name}
        made_one = await client.CreatePrincipal(pb.CreatePrincipalRequest(principal=principal))
        world.ids["principal"] = made_one.principal.id
    member = {"principal_id": world.ids["principal"]}
    for place in ({}, {"project_id": world.ids["project"]}, {"project_id": "default"}):
        await client.CreateKey(pb.CreateKeyRequest(key=member))
        binding = {**member, **place, "role": ROLE_VIEWER}
        await client.CreateRoleBinding(pb.CreateRoleBindingRequest(role_binding=binding))
