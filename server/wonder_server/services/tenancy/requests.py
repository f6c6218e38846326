"""Checks of requested principals, keys and role bindings. Pure."""

from __future__ import annotations

from typing import Final

from wonder_server.core.access.permissions import Role
from wonder_server.core.definitions.document import MAX_DESCRIPTION_BYTES
from wonder_server.core.definitions.references import NAME_RULE, is_definition_name
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.identity import STORED_KINDS
from wonder_server.core.tenancy.resources import SERVER_TENANT, ApiKey, RoleBinding, StoredPrincipal, Tenant
from wonder_server.core.tenancy.roles import unknown_scopes

MAX_NAME_BYTES: Final = 255
MAX_EXTERNAL_BYTES: Final = 1024
MAX_LIMITS: Final = 100
"""Scopes, and projects, of one key."""
MAX_GRACE_MS: Final = 90 * 24 * 3600 * 1000


def check_tenant(wanted: Tenant) -> None:
    """Raise FIELD_INVALID for a tenant that cannot be stored."""
    if not is_definition_name(wanted.name):
        name = wanted.name[:100]
        raise _invalid("tenant.name", f"'{name}' is not a valid name of a tenant. Use {NAME_RULE}.")
    size = len(wanted.description.encode("utf-8", "surrogatepass"))
    if size > MAX_DESCRIPTION_BYTES:
        raise _invalid(
            "tenant.description", f"The description has {size} bytes; the maximum is {MAX_DESCRIPTION_BYTES}."
        )


def check_principal(wanted: StoredPrincipal) -> None:
    """Raise FIELD_INVALID for a principal that cannot be stored."""
    if wanted.kind not in STORED_KINDS:
        raise _invalid("principal.kind", "kind must be USER, SERVICE, WORKER or NODE.")
    _check_text("principal.name", wanted.name, MAX_NAME_BYTES, is_required=True)
    _check_text("principal.display_name", wanted.display_name, MAX_NAME_BYTES)
    _check_text("principal.external_id", wanted.external, MAX_EXTERNAL_BYTES)


def check_key(wanted: ApiKey, now_ms: int) -> None:
    """Raise FIELD_INVALID for a key that cannot be stored."""
    _check_text("key.label", wanted.label, MAX_NAME_BYTES)
    for name, limits in (("scopes", wanted.scopes), ("project_ids", wanted.project_ids)):
        if len(limits) > MAX_LIMITS:
            raise _invalid(f"key.{name}", f"{name} has {len(limits)} items; the maximum is {MAX_LIMITS}.")
    for index, scope in enumerate(wanted.scopes):
        if unknown_scopes([scope]):
            raise _invalid(
                f"key.scopes[{index}]",
                f"The scope '{scope[:100]}' names no permission. Write a permission such as "
                "conversations.read, or a pattern: conversations.*, *.read, *.",
            )
    if wanted.expires_ms and wanted.expires_ms <= now_ms:
        raise _invalid("key.expire_time", "expire_time is in the past.")


def check_rotation(key: ApiKey, grace_ms: int, now_ms: int) -> None:
    """Raise FIELD_INVALID for a key that cannot be replaced."""
    if not key.is_valid(now_ms):
        raise _invalid("key_id", "The key is revoked or has expired. Create a new key.")
    if key.replaced_by:
        raise _invalid("key_id", f"The key was replaced by {key.replaced_by} already. Rotate that one.")
    if not 0 <= grace_ms <= MAX_GRACE_MS:
        raise _invalid("grace", "grace must be between 0 and 90 days.")


def check_binding(wanted: RoleBinding) -> None:
    """Raise FIELD_INVALID for a role binding that cannot be stored."""
    if not wanted.principal_id and not wanted.group:
        raise _invalid("role_binding.member", "Give a principal_id or a group.")
    _check_text("role_binding.group", wanted.group, MAX_NAME_BYTES)
    on_server = wanted.tenant_id == SERVER_TENANT
    if wanted.role is Role.ADMIN and wanted.project_id:
        message = "The role ADMIN holds in a tenant or on the server, not in a project."
        raise _invalid("role_binding.place", message)
    if wanted.role is not Role.ADMIN and on_server:
        raise _invalid("role_binding.place", "Only the role ADMIN holds on the server.")


def _check_text(field: str, text: str, max_bytes: int, *, is_required: bool = False) -> None:
    if is_required and not text:
        raise _invalid(field, f"{field} is required.")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise _invalid(field, f"{field} has {size} bytes; the maximum is {max_bytes}.")
    if text != text.strip() or not all(each.isprintable() for each in text):
        raise _invalid(field, f"{field} has control characters, or spaces at its begin or end.")


def _invalid(field: str, message: str) -> WonderError:
    return error(Reason.FIELD_INVALID, message, field=field)
