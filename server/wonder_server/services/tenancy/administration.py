"""The use cases of tenants, principals, API keys and role bindings."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from wonder_server.core.definitions.resources import Project
from wonder_server.core.errors import Reason, error, not_found
from wonder_server.core.idempotency import Origin
from wonder_server.core.ids import random_id
from wonder_server.core.json_types import JsonDict
from wonder_server.core.tenancy.resources import (
    DEFAULT,
    DEFAULT_TENANT,
    DEFAULT_TENANT_NAME,
    SERVER_TENANT,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
    Tenant,
    resource_etag,
)
from wonder_server.ports.tenancy import DropAccess, PutAccess
from wonder_server.services.tenancy.changes import AccessChanges, CallFacts, PlannedAccess
from wonder_server.services.tenancy.directory import KEY_PREFIX, PrincipalDirectory, secret_digest
from wonder_server.services.tenancy.requests import (
    check_binding,
    check_key,
    check_principal,
    check_rotation,
    check_tenant,
)

R = TypeVar("R", Tenant, StoredPrincipal, ApiKey, RoleBinding)

MAX_VALID_KEYS: Final = 100
"""Keys of one principal that are valid at the same time."""
DEFAULT_GRACE_MS: Final = 24 * 3600 * 1000
_SECRET_BYTES: Final = 32
_KEY_ID_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeKey:
    """A new key. ``token`` is the whole key, "" for a repeated request. ``replaced`` is the key that a
    rotation replaced."""

    key: ApiKey
    token: str = ""
    replaced: ApiKey | None = None


class ProjectLookup(Protocol):
    """Projects of a tenant, by id or name."""

    async def project(self, key: str, *, field: str = "project_id") -> Project:
        """Return a project. Raises PROJECT_NOT_FOUND."""
        ...


class Administration:
    """The use cases, over `AccessChanges`.

    ``projects_of`` returns the projects of a tenant, and ``furnish`` makes what every tenant has.
    """

    def __init__(
        self,
        changes: AccessChanges,
        directory: PrincipalDirectory,
        projects_of: Callable[[str], ProjectLookup],
        furnish: Callable[[str], Awaitable[None]],
    ) -> None:
        self._changes = changes
        self._directory = directory
        self._projects_of = projects_of
        self._furnish = furnish

    async def create_tenant(self, wanted: Tenant, origin: Origin, call: CallFacts) -> Tenant:
        """Create a tenant with its own standard project. Raises FIELD_INVALID, ALREADY_EXISTS."""
        check_tenant(wanted)

        async def plan(now: int) -> PlannedAccess:
            if wanted.name == DEFAULT_TENANT_NAME:
                raise error(
                    Reason.ALREADY_EXISTS,
                    f"The tenant '{wanted.name}' already exists. Choose another name.",
                    field="tenant.name",
                )
            made = replace(
                wanted,
                id=random_id("tnt", now),
                version=1,
                created_ms=now,
                updated_ms=now,
                updated_by=origin.principal.text,
            )
            return PlannedAccess(made, [PutAccess(made)], details={"name": made.name})

        made = await self._changes.execute(Tenant, plan, origin, call)
        await self._furnish(made.id)
        return made

    async def update_tenant(
        self, key: str, description: str, etag: str, origin: Origin, call: CallFacts
    ) -> Tenant:
        """Save the description of a tenant. Raises TENANT_NOT_FOUND, ETAG_MISMATCH, FIELD_INVALID."""

        async def plan(now: int) -> PlannedAccess:
            stored = self.tenant(key, "tenant.id", call.reach)
            if not stored.id:
                raise error(
                    Reason.FIELD_INVALID, "The tenant 'default' cannot be changed.", field="tenant.id"
                )
            _check_etag(stored, etag)
            made = replace(
                stored,
                description=description,
                version=stored.version + 1,
                updated_ms=now,
                updated_by=origin.principal.text,
            )
            check_tenant(made)
            return PlannedAccess(made, [PutAccess(made)])

        return await self._changes.execute(Tenant, plan, origin, call)

    def tenant(self, key: str, field: str = "tenant", reach: str | None = None) -> Tenant:
        """Return the tenant with this id or name; empty is the tenant ``default``. ``reach`` is the only
        tenant that the caller administers, None for every tenant. Raises TENANT_NOT_FOUND."""
        known = self._directory.tenants
        found = known.get(key) or next((each for each in known.values() if each.name == key), None)
        if found is None and key in (DEFAULT_TENANT, DEFAULT_TENANT_NAME):
            found = DEFAULT
        if found is None or reach not in (None, found.id):
            raise not_found(Reason.TENANT_NOT_FOUND, key, field=field)
        return found

    async def create_principal(
        self, wanted: StoredPrincipal, origin: Origin, call: CallFacts
    ) -> StoredPrincipal:
        """Create a principal in the tenant with the id or name ``wanted.tenant_id``. Its id, version and
        times are ignored. Raises TENANT_NOT_FOUND, FIELD_INVALID, ALREADY_EXISTS."""
        check_principal(wanted)

        async def plan(now: int) -> PlannedAccess:
            key = wanted.tenant_id or origin.principal.tenant
            tenant = self.tenant(key, "principal.tenant_id", call.reach)
            made = replace(
                wanted,
                tenant_id=tenant.id,
                id=random_id("prin", now),
                version=1,
                created_ms=now,
                updated_ms=now,
                updated_by=origin.principal.text,
            )
            details: JsonDict = {"kind": str(made.kind), "name": made.name}
            return PlannedAccess(made, [PutAccess(made)], details=details)

        return await self._changes.execute(StoredPrincipal, plan, origin, call)

    async def update_principal(
        self,
        principal_id: str,
        edit: Callable[[StoredPrincipal], StoredPrincipal],
        etag: str,
        origin: Origin,
        call: CallFacts,
    ) -> StoredPrincipal:
        """Save the principal that ``edit`` returns for the stored one. Raises PRINCIPAL_NOT_FOUND,
        ETAG_MISMATCH, FIELD_INVALID (for the last administrator too), ALREADY_EXISTS."""

        async def plan(now: int) -> PlannedAccess:
            stored = self._changeable(principal_id, call)
            _check_etag(stored, etag)
            edited = edit(stored)
            check_principal(edited)
            if edited.disabled_ms and self._administers(stored):
                self._check_administrators(stored.id, "principal.disabled")
            disabled_ms = (stored.disabled_ms or now) if edited.disabled_ms else 0
            made = replace(
                edited,
                disabled_ms=disabled_ms,
                version=stored.version + 1,
                updated_ms=now,
                updated_by=origin.principal.text,
            )
            return PlannedAccess(made, [PutAccess(made)], details={"disabled": bool(disabled_ms)})

        return await self._changes.execute(StoredPrincipal, plan, origin, call)

    async def delete_principal(self, principal_id: str, etag: str, origin: Origin, call: CallFacts) -> None:
        """Delete a principal, its keys and its role bindings; its name stays taken. Raises
        PRINCIPAL_NOT_FOUND, ETAG_MISMATCH, FIELD_INVALID for the last administrator."""

        async def plan(now: int) -> PlannedAccess:
            stored = self._changeable(principal_id, call)
            _check_etag(stored, etag)
            if self._administers(stored):
                self._check_administrators(stored.id, "principal_id")
            by = origin.principal.text
            made = replace(
                stored,
                deleted=True,
                external="",
                version=stored.version + 1,
                updated_ms=now,
                updated_by=by,
            )
            revoked = [
                PutAccess(_revoked(key, now, by))
                for key in self._directory.keys_of(principal_id)
                if not key.revoked_ms
            ]
            dropped = [DropAccess(each) for each in self._directory.bindings_of(principal_id)]
            details: JsonDict = {"keys": len(revoked), "roles": len(dropped)}
            return PlannedAccess(made, [PutAccess(made), *revoked, *dropped], details=details)

        await self._changes.execute(StoredPrincipal, plan, origin, call)

    def principal(
        self, principal_id: str, field: str = "principal_id", reach: str | None = None
    ) -> StoredPrincipal:
        """Return a principal of the tenant ``reach``, None for every tenant. Raises PRINCIPAL_NOT_FOUND."""
        found = self._directory.principals.get(principal_id)
        if found is None or found.deleted or reach not in (None, found.tenant_id):
            raise not_found(Reason.PRINCIPAL_NOT_FOUND, principal_id, field=field)
        return found

    def _changeable(self, principal_id: str, call: CallFacts, field: str = "principal_id") -> StoredPrincipal:
        """Return a principal that the caller may change. Who administers a tenant does not change those who
        administer the server, or it could act as one. Raises PRINCIPAL_NOT_FOUND, PERMISSION_DENIED."""
        found = self.principal(principal_id, field, call.reach)
        if call.reach is not None and self._administers(found):
            message = f"'{found.name}' administers the server: only another such administrator changes it."
            raise error(Reason.PERMISSION_DENIED, message, field=field)
        return found

    async def create_key(self, wanted: ApiKey, origin: Origin, call: CallFacts) -> MadeKey:
        """Create a key. Only its principal, label and limits are read from ``wanted``. Raises
        PRINCIPAL_NOT_FOUND, PROJECT_NOT_FOUND, FIELD_INVALID, LIMIT_EXCEEDED."""
        token = ""

        async def plan(now: int) -> PlannedAccess:
            nonlocal token
            owner = self._changeable(wanted.principal_id, call, "key.principal_id")
            check_key(wanted, now)
            lookup = self._projects_of(owner.tenant_id)
            projects = [
                (await lookup.project(each, field=f"key.project_ids[{index}]")).id
                for index, each in enumerate(wanted.project_ids)
            ]
            self._check_key_count(owner.id, now)
            made, token = _made_key(
                replace(wanted, tenant_id=owner.tenant_id, project_ids=tuple(projects)), now, origin
            )
            details: JsonDict = {"principal": owner.name, "label": made.label, "scopes": list(made.scopes)}
            return PlannedAccess(made, [PutAccess(made)], details=details)

        made = await self._changes.execute(ApiKey, plan, origin, call)
        return MadeKey(key=self._directory.keys.get(made.id, made), token=token)

    async def rotate_key(
        self, key_id: str, grace_ms: int, expires_ms: int, origin: Origin, call: CallFacts
    ) -> MadeKey:
        """Create a key that replaces another, which stays valid for ``grace_ms``. Without ``expires_ms`` it
        lives as long as the old one did. Raises KEY_NOT_FOUND, FIELD_INVALID."""
        token = ""

        async def plan(now: int) -> PlannedAccess:
            nonlocal token
            old = self._changeable_key(key_id, call)
            check_rotation(old, grace_ms, now)
            lifetime = old.expires_ms - old.created_ms if old.expires_ms else 0
            expires = expires_ms or (now + lifetime if lifetime else 0)
            made, token = _made_key(replace(old, expires_ms=expires), now, origin)
            check_key(made, now)
            ended = replace(
                old,
                expires_ms=min(now + grace_ms, old.expires_ms or now + grace_ms),
                revoked_ms=0 if grace_ms else now,
                replaced_by=made.id,
                version=old.version + 1,
                updated_ms=now,
                updated_by=origin.principal.text,
            )
            return PlannedAccess(made, [PutAccess(made), PutAccess(ended)], details={"replaces": old.id})

        made = await self._changes.execute(ApiKey, plan, origin, call)
        replaced = next((k for k in self._directory.keys.values() if k.replaced_by == made.id), None)
        return MadeKey(key=self._directory.keys.get(made.id, made), token=token, replaced=replaced)

    async def revoke_key(self, key_id: str, origin: Origin, call: CallFacts) -> ApiKey:
        """Revoke a key for good. A revoked key stays as it is. Raises KEY_NOT_FOUND."""

        async def plan(now: int) -> PlannedAccess:
            stored = self._changeable_key(key_id, call)
            if stored.revoked_ms:
                return PlannedAccess(stored, [])
            made = _revoked(stored, now, origin.principal.text)
            return PlannedAccess(made, [PutAccess(made)], details={"label": made.label})

        return await self._changes.execute(ApiKey, plan, origin, call)

    def _changeable_key(self, key_id: str, call: CallFacts) -> ApiKey:
        """Return a key that the caller may change: its own, or one of a principal that it may change. Raises
        KEY_NOT_FOUND, PERMISSION_DENIED."""
        found = self._directory.keys.get(key_id)
        if found is None or call.reach not in (None, found.tenant_id):
            raise not_found(Reason.KEY_NOT_FOUND, key_id, field="key_id")
        owner = self._directory.principals.get(found.principal_id)
        if found.id != call.key_id and owner is not None and not owner.deleted:
            self._changeable(owner.id, call, "key_id")
        return found

    async def create_binding(self, wanted: RoleBinding, origin: Origin, call: CallFacts) -> RoleBinding:
        """Give a role. ``tenant_id`` is `SERVER_TENANT` for the role of administrators, or the id or name of
        a tenant. Raises FIELD_INVALID, PERMISSION_DENIED, TENANT_NOT_FOUND, PRINCIPAL_NOT_FOUND,
        PROJECT_NOT_FOUND, ALREADY_EXISTS."""
        check_binding(wanted)

        async def plan(now: int) -> PlannedAccess:
            member, tenant_id = self._member(wanted, origin.principal.tenant, call)
            project_id = ""
            if wanted.project_id:
                lookup = self._projects_of(tenant_id)
                project_id = (await lookup.project(wanted.project_id, field="role_binding.project_id")).id
            made = replace(
                wanted,
                tenant_id=tenant_id,
                id=random_id("role", now),
                project_id=project_id,
                version=1,
                created_ms=now,
                updated_by=origin.principal.text,
            )
            details: JsonDict = {"role": str(made.role), "member": member}
            return PlannedAccess(made, [PutAccess(made)], project_id, details)

        return await self._changes.execute(RoleBinding, plan, origin, call)

    async def delete_binding(self, binding_id: str, origin: Origin, call: CallFacts) -> None:
        """Take a role away. Raises ROLE_BINDING_NOT_FOUND, and FIELD_INVALID for the last administrator."""

        async def plan(_now: int) -> PlannedAccess:
            found = self._directory.bindings.get(binding_id)
            if found is None or call.reach not in (None, found.tenant_id):
                raise not_found(Reason.ROLE_BINDING_NOT_FOUND, binding_id, field="role_binding_id")
            if found.tenant_id == SERVER_TENANT:
                self._check_administrators(found.id, "role_binding_id")
            details: JsonDict = {"role": str(found.role), "member": found.principal_id or found.group}
            return PlannedAccess(found, [DropAccess(found)], found.project_id, details)

        await self._changes.execute(RoleBinding, plan, origin, call)

    def _member(self, wanted: RoleBinding, own: str, call: CallFacts) -> tuple[str, str]:
        """Return the name of the member of a role binding, and the tenant where the role holds. ``own`` is
        the tenant of the caller."""
        if wanted.tenant_id == SERVER_TENANT:
            if call.reach is not None:
                message = "Only an administrator of the server gives roles on the server."
                raise error(Reason.PERMISSION_DENIED, message, field="role_binding.place")
            if not wanted.principal_id:
                return wanted.group, SERVER_TENANT
            return self.principal(wanted.principal_id, "role_binding.principal_id").name, SERVER_TENANT
        if not wanted.principal_id:
            key = wanted.tenant_id or own
            return wanted.group, self.tenant(key, "role_binding.tenant_id", call.reach).id
        member = self.principal(wanted.principal_id, "role_binding.principal_id", call.reach)
        if wanted.tenant_id:
            tenant = self.tenant(wanted.tenant_id, "role_binding.tenant_id", call.reach)
            if tenant.id != member.tenant_id:
                message = f"'{member.name}' belongs to another tenant: its roles hold there."
                raise error(Reason.FIELD_INVALID, message, field="role_binding.tenant_id")
        return member.name, member.tenant_id

    def _administers(self, principal: StoredPrincipal) -> bool:
        """Return True for a role on the server, its own or one of its groups."""
        return any(each.tenant_id == SERVER_TENANT for each in self._directory.roles_of(principal))

    def _check_administrators(self, without: str, field: str) -> None:
        """Raise FIELD_INVALID if the server has administrators, and none without this principal or role."""
        if self._directory.administrators() and not self._directory.administrators(without):
            message = "The server would have no administrator left. Give another principal the role first."
            raise error(Reason.FIELD_INVALID, message, field=field)

    def _check_key_count(self, principal_id: str, now: int) -> None:
        valid = sum(key.is_valid(now) for key in self._directory.keys_of(principal_id))
        if valid >= MAX_VALID_KEYS:
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"The principal has {valid} valid keys; the maximum is {MAX_VALID_KEYS}. Revoke some.",
                field="key.principal_id",
                limit=str(MAX_VALID_KEYS),
            )


def _made_key(wanted: ApiKey, now: int, origin: Origin) -> tuple[ApiKey, str]:
    """Return a new key with the limits of ``wanted``, and the whole key as its owner sends it."""
    key_id, secret = secrets.token_hex(_KEY_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    made = ApiKey(
        id=key_id,
        tenant_id=wanted.tenant_id,
        principal_id=wanted.principal_id,
        digest=secret_digest(secret),
        label=wanted.label,
        scopes=wanted.scopes,
        project_ids=wanted.project_ids,
        expires_ms=wanted.expires_ms,
        created_ms=now,
        updated_ms=now,
        updated_by=origin.principal.text,
    )
    return made, f"{KEY_PREFIX}{key_id}_{secret}"


def _revoked(key: ApiKey, now: int, by: str) -> ApiKey:
    return replace(key, revoked_ms=now, version=key.version + 1, updated_ms=now, updated_by=by)


def _check_etag(resource: Tenant | StoredPrincipal, expected: str) -> None:
    if expected and expected != resource_etag(resource):
        noun = "tenant" if isinstance(resource, Tenant) else "principal"
        raise error(
            Reason.ETAG_MISMATCH,
            f"The etag is '{expected[:100]}', but the {noun} has changed. Read it again, then retry.",
            field="etag",
        )
