"""Conversion between tenants, principals, keys, role bindings and audit entries and their messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask

from wonder.v1 import common_pb2, identity_pb2
from wonder_server.core.access.permissions import Role
from wonder_server.core.errors import Reason, error
from wonder_server.core.identity import STORED_KINDS, PrincipalKind
from wonder_server.core.tenancy.audit import AuditEntry, AuditOutcome
from wonder_server.core.tenancy.resources import (
    DEFAULT_TENANT,
    SERVER_TENANT,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
    Tenant,
    resource_etag,
)
from wonder_server.rpc.shared.common_codec import enum_value, set_principal
from wonder_server.rpc.shared.times import from_timestamp, set_timestamp

PRINCIPAL_PATHS: Final = ("display_name", "external_id", "disabled")
KINDS: Final[Mapping[int, PrincipalKind]] = {
    common_pb2.PrincipalKind.Value(f"PRINCIPAL_KIND_{kind.name}"): kind for kind in STORED_KINDS
}
ROLES: Final[Mapping[int, Role]] = {identity_pb2.Role.Value(f"ROLE_{role.name}"): role for role in Role}
OUTCOMES: Final[Mapping[int, AuditOutcome]] = {
    identity_pb2.AuditOutcome.Value(f"AUDIT_OUTCOME_{each.name}"): each for each in AuditOutcome
}


def tenant_to_proto(tenant: Tenant) -> identity_pb2.Tenant:
    """Encode a tenant."""
    message = identity_pb2.Tenant(id=tenant.id, name=tenant.name, description=tenant.description)
    if tenant.id:
        message.etag = resource_etag(tenant)
    set_timestamp(message.create_time, tenant.created_ms)
    set_timestamp(message.update_time, tenant.updated_ms)
    set_principal(message.updated_by, tenant.updated_by)
    return message


def principal_from_proto(message: identity_pb2.StoredPrincipal) -> StoredPrincipal:
    """Return the principal that a request describes. Raises FIELD_INVALID for its kind."""
    kind = KINDS.get(message.kind)
    if kind is None:
        raise error(
            Reason.FIELD_INVALID,
            "principal.kind must be USER, SERVICE, WORKER or NODE.",
            field="principal.kind",
        )
    return StoredPrincipal(
        id="",
        tenant_id=message.tenant_id,
        kind=kind,
        name=message.name,
        display_name=message.display_name,
        external=message.external_id,
        disabled_ms=1 if message.disabled else 0,
    )


def principal_edit(
    message: identity_pb2.StoredPrincipal, mask: FieldMask
) -> Callable[[StoredPrincipal], StoredPrincipal]:
    """Return the function that applies an UpdatePrincipal. Raises FIELD_MASK_UNSUPPORTED."""
    for path in mask.paths:
        if path not in PRINCIPAL_PATHS:
            raise error(
                Reason.FIELD_MASK_UNSUPPORTED,
                f"update_mask: '{path[:100]}' cannot be changed. Use one of {', '.join(PRINCIPAL_PATHS)}.",
                field="update_mask",
            )
    paths = frozenset(mask.paths) or {field.name for field, _ in message.ListFields()}
    return lambda stored: _edited(stored, message, paths)


def _edited(
    stored: StoredPrincipal, message: identity_pb2.StoredPrincipal, paths: Collection[str]
) -> StoredPrincipal:
    if "display_name" in paths:
        stored = replace(stored, display_name=message.display_name)
    if "external_id" in paths:
        stored = replace(stored, external=message.external_id)
    if "disabled" in paths:
        stored = replace(stored, disabled_ms=1 if message.disabled else 0)
    return stored


def principal_to_proto(stored: StoredPrincipal) -> identity_pb2.StoredPrincipal:
    """Encode a principal."""
    message = identity_pb2.StoredPrincipal(
        id=stored.id,
        tenant_id=stored.tenant_id,
        kind=enum_value(common_pb2.PrincipalKind, "PRINCIPAL_KIND", stored.kind.value),
        name=stored.name,
        display_name=stored.display_name,
        external_id=stored.external,
        groups=stored.groups,
        disabled=bool(stored.disabled_ms),
        etag=resource_etag(stored),
    )
    set_timestamp(message.create_time, stored.created_ms)
    set_timestamp(message.update_time, stored.updated_ms)
    set_principal(message.updated_by, stored.updated_by)
    return message


def key_from_proto(message: identity_pb2.ApiKey) -> ApiKey:
    """Return the key that a request describes. Raises FIELD_INVALID for its time."""
    return ApiKey(
        id="",
        tenant_id=DEFAULT_TENANT,
        principal_id=message.principal_id,
        digest="",
        label=message.label,
        scopes=tuple(dict.fromkeys(message.scopes)),
        project_ids=tuple(dict.fromkeys(message.project_ids)),
        expires_ms=from_timestamp(message.expire_time, "key.expire_time"),
    )


def key_to_proto(key: ApiKey, used_ms: int = 0) -> identity_pb2.ApiKey:
    """Encode a key. ``used_ms`` is the time of its last use."""
    message = identity_pb2.ApiKey(
        id=key.id,
        principal_id=key.principal_id,
        label=key.label,
        scopes=key.scopes,
        project_ids=key.project_ids,
        replaced_by=key.replaced_by,
        etag=resource_etag(key),
    )
    set_timestamp(message.expire_time, key.expires_ms)
    set_timestamp(message.revoke_time, key.revoked_ms)
    set_timestamp(message.last_use_time, used_ms)
    set_timestamp(message.create_time, key.created_ms)
    set_principal(message.updated_by, key.updated_by)
    return message


def binding_from_proto(message: identity_pb2.RoleBinding) -> RoleBinding:
    """Return the role binding that a request describes. Raises FIELD_INVALID for its role."""
    role = ROLES.get(message.role)
    if role is None:
        names = ", ".join(each.name for each in Role)
        raise error(
            Reason.FIELD_INVALID, f"role_binding.role must be one of {names}.", field="role_binding.role"
        )
    return RoleBinding(
        id="",
        tenant_id=SERVER_TENANT if message.server else message.tenant_id,
        role=role,
        project_id=message.project_id,
        principal_id=message.principal_id,
        group=message.group,
    )


def binding_to_proto(binding: RoleBinding) -> identity_pb2.RoleBinding:
    """Encode a role binding."""
    message = identity_pb2.RoleBinding(
        id=binding.id,
        role=enum_value(identity_pb2.Role, "ROLE", binding.role.value),
        etag=resource_etag(binding),
    )
    if binding.tenant_id == SERVER_TENANT:
        message.server = True
    else:
        message.tenant_id = binding.tenant_id
    if binding.project_id:
        message.project_id = binding.project_id
    if binding.group:
        message.group = binding.group
    else:
        message.principal_id = binding.principal_id
    set_timestamp(message.create_time, binding.created_ms)
    set_principal(message.updated_by, binding.updated_by)
    return message


def entry_to_proto(entry: AuditEntry) -> identity_pb2.AuditEntry:
    """Encode an entry of the audit."""
    message = identity_pb2.AuditEntry(
        id=entry.id,
        tenant_id=entry.tenant_id,
        key_id=entry.key_id,
        act_as=entry.act_as,
        method=entry.method,
        resource=entry.resource,
        project_id=entry.project_id,
        outcome=enum_value(identity_pb2.AuditOutcome, "AUDIT_OUTCOME", entry.outcome.value),
        reason=entry.reason,
        request_id=entry.request_id,
        peer=entry.peer,
        trace_id=entry.trace_id,
        repeats=entry.repeats,
        details={name: _detail(value) for name, value in entry.details.items()},
    )
    set_timestamp(message.time, entry.at_ms)
    set_principal(message.principal, entry.principal)
    return message


def _detail(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
