"""The use cases of principals, API keys and role bindings.

Each change is one transaction with its audit entry and the answer of its request. After it, the
`PrincipalDirectory` follows, so the next call sees the change.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from wonder_server.core.access.permissions import Role
from wonder_server.core.definitions.parse import read_record, to_json
from wonder_server.core.definitions.resources import Project
from wonder_server.core.errors import Reason, error, not_found
from wonder_server.core.idempotency import Origin, check_fingerprint, message_key
from wonder_server.core.ids import random_id
from wonder_server.core.json_types import JsonDict
from wonder_server.core.tenancy.audit import AuditEntry
from wonder_server.core.tenancy.resources import (
    DEFAULT_TENANT,
    SERVER_TENANT,
    AccessResource,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
    resource_etag,
)
from wonder_server.ports.catalog import Answer
from wonder_server.ports.clock import Clock
from wonder_server.ports.tenancy import AccessChange, DropAccess, PutAccess, TenancyStore
from wonder_server.services.tenancy.directory import KEY_PREFIX, PrincipalDirectory, secret_digest
from wonder_server.services.tenancy.requests import (
    check_binding,
    check_key,
    check_principal,
    check_rotation,
)

R = TypeVar("R", StoredPrincipal, ApiKey, RoleBinding)

MAX_VALID_KEYS: Final = 100
"""Keys of one principal that are valid at the same time."""
DEFAULT_GRACE_MS: Final = 24 * 3600 * 1000
_SECRET_BYTES: Final = 32
_KEY_ID_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """Facts about a call that the audit keeps, beside its origin."""

    method: str
    key_id: str = ""
    peer: str = ""
    trace_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeKey:
    """A new key. ``token`` is the whole key, "" for a repeated request. ``replaced`` is the key that a
    rotation replaced."""

    key: ApiKey
    token: str = ""
    replaced: ApiKey | None = None


class ProjectLookup(Protocol):
    """Projects by id or name."""

    async def project(self, key: str, *, field: str = "project_id") -> Project:
        """Return a project. Raises PROJECT_NOT_FOUND."""
        ...


@dataclass(frozen=True, slots=True)
class _Planned:
    """A result, the changes that make it, and what the audit says about them."""

    result: AccessResource
    changes: Sequence[AccessChange]
    project_id: str = ""
    details: JsonDict = field(default_factory=dict)


class Administration:
    """The only writer of principals, keys and role bindings."""

    def __init__(
        self, store: TenancyStore, directory: PrincipalDirectory, projects: ProjectLookup, clock: Clock
    ) -> None:
        self._store = store
        self._directory = directory
        self._projects = projects
        self._clock = clock
        self._lock = asyncio.Lock()

    async def create_principal(
        self, wanted: StoredPrincipal, origin: Origin, call: CallFacts
    ) -> StoredPrincipal:
        """Create a principal. Id, version and times of ``wanted`` are ignored. Raises FIELD_INVALID,
        ALREADY_EXISTS."""
        check_principal(wanted)

        async def plan(now: int) -> _Planned:
            made = replace(
                wanted,
                id=random_id("prin", now),
                version=1,
                created_ms=now,
                updated_ms=now,
                updated_by=origin.principal.text,
            )
            details: JsonDict = {"kind": str(made.kind), "name": made.name}
            return _Planned(made, [PutAccess(made)], details=details)

        return await self._execute(StoredPrincipal, plan, origin, call)

    async def update_principal(
        self,
        principal_id: str,
        edit: Callable[[StoredPrincipal], StoredPrincipal],
        etag: str,
        origin: Origin,
        call: CallFacts,
    ) -> StoredPrincipal:
        """Save the principal that ``edit`` returns for the stored one. Raises PRINCIPAL_NOT_FOUND,
        ETAG_MISMATCH, FIELD_INVALID, ALREADY_EXISTS."""

        async def plan(now: int) -> _Planned:
            stored = self.principal(principal_id)
            _check_etag(stored, etag)
            edited = edit(stored)
            check_principal(edited)
            disabled_ms = (stored.disabled_ms or now) if edited.disabled_ms else 0
            made = replace(
                edited,
                disabled_ms=disabled_ms,
                version=stored.version + 1,
                updated_ms=now,
                updated_by=origin.principal.text,
            )
            return _Planned(made, [PutAccess(made)], details={"disabled": bool(disabled_ms)})

        return await self._execute(StoredPrincipal, plan, origin, call)

    async def delete_principal(self, principal_id: str, etag: str, origin: Origin, call: CallFacts) -> None:
        """Delete a principal, its keys and its role bindings; its name stays taken. Raises
        PRINCIPAL_NOT_FOUND, ETAG_MISMATCH, FIELD_INVALID for the last administrator."""

        async def plan(now: int) -> _Planned:
            stored = self.principal(principal_id)
            _check_etag(stored, etag)
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
            return _Planned(made, [PutAccess(made), *revoked, *dropped], details=details)

        await self._execute(StoredPrincipal, plan, origin, call)

    def principal(self, principal_id: str, field: str = "principal_id") -> StoredPrincipal:
        """Return a principal. Raises PRINCIPAL_NOT_FOUND."""
        found = self._directory.principals.get(principal_id)
        if found is None or found.deleted:
            raise not_found(Reason.PRINCIPAL_NOT_FOUND, principal_id, field=field)
        return found

    async def create_key(self, wanted: ApiKey, origin: Origin, call: CallFacts) -> MadeKey:
        """Create a key. Only its principal, label and limits are read from ``wanted``. Raises
        PRINCIPAL_NOT_FOUND, PROJECT_NOT_FOUND, FIELD_INVALID, LIMIT_EXCEEDED."""
        token = ""

        async def plan(now: int) -> _Planned:
            nonlocal token
            owner = self.principal(wanted.principal_id, "key.principal_id")
            check_key(wanted, now)
            projects = [
                (await self._projects.project(each, field=f"key.project_ids[{index}]")).id
                for index, each in enumerate(wanted.project_ids)
            ]
            self._check_key_count(owner.id, now)
            made, token = _made_key(
                replace(wanted, tenant_id=owner.tenant_id, project_ids=tuple(projects)), now, origin
            )
            details: JsonDict = {"principal": owner.name, "label": made.label, "scopes": list(made.scopes)}
            return _Planned(made, [PutAccess(made)], details=details)

        made = await self._execute(ApiKey, plan, origin, call)
        return MadeKey(key=self._directory.keys.get(made.id, made), token=token)

    async def rotate_key(
        self, key_id: str, grace_ms: int, expires_ms: int, origin: Origin, call: CallFacts
    ) -> MadeKey:
        """Create a key that replaces another, which stays valid for ``grace_ms``. Without ``expires_ms`` it
        lives as long as the old one did. Raises KEY_NOT_FOUND, FIELD_INVALID."""
        token = ""

        async def plan(now: int) -> _Planned:
            nonlocal token
            old = self.key(key_id)
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
            return _Planned(made, [PutAccess(made), PutAccess(ended)], details={"replaces": old.id})

        made = await self._execute(ApiKey, plan, origin, call)
        replaced = next((k for k in self._directory.keys.values() if k.replaced_by == made.id), None)
        return MadeKey(key=self._directory.keys.get(made.id, made), token=token, replaced=replaced)

    async def revoke_key(self, key_id: str, origin: Origin, call: CallFacts) -> ApiKey:
        """Revoke a key for good. A revoked key stays as it is. Raises KEY_NOT_FOUND."""

        async def plan(now: int) -> _Planned:
            stored = self.key(key_id)
            if stored.revoked_ms:
                return _Planned(stored, [])
            made = _revoked(stored, now, origin.principal.text)
            return _Planned(made, [PutAccess(made)], details={"label": made.label})

        return await self._execute(ApiKey, plan, origin, call)

    def key(self, key_id: str) -> ApiKey:
        """Return a key. Raises KEY_NOT_FOUND."""
        found = self._directory.keys.get(key_id)
        if found is None:
            raise not_found(Reason.KEY_NOT_FOUND, key_id, field="key_id")
        return found

    async def create_binding(self, wanted: RoleBinding, origin: Origin, call: CallFacts) -> RoleBinding:
        """Give a role. ``tenant_id`` is `SERVER_TENANT` for the role of administrators. Raises FIELD_INVALID,
        PRINCIPAL_NOT_FOUND, PROJECT_NOT_FOUND, ALREADY_EXISTS."""
        check_binding(wanted)

        async def plan(now: int) -> _Planned:
            member = wanted.group
            if wanted.principal_id:
                member = self.principal(wanted.principal_id, "role_binding.principal_id").name
            project_id = (
                wanted.project_id
                and (await self._projects.project(wanted.project_id, field="role_binding.project_id")).id
            )
            made = replace(
                wanted,
                id=random_id("role", now),
                project_id=project_id,
                version=1,
                created_ms=now,
                updated_by=origin.principal.text,
            )
            details: JsonDict = {"role": str(made.role), "member": member}
            return _Planned(made, [PutAccess(made)], project_id, details)

        return await self._execute(RoleBinding, plan, origin, call)

    async def delete_binding(self, binding_id: str, origin: Origin, call: CallFacts) -> None:
        """Take a role away. Raises ROLE_BINDING_NOT_FOUND."""

        async def plan(_now: int) -> _Planned:
            found = self._directory.bindings.get(binding_id)
            if found is None:
                raise not_found(Reason.ROLE_BINDING_NOT_FOUND, binding_id, field="role_binding_id")
            details: JsonDict = {"role": str(found.role), "member": found.principal_id or found.group}
            return _Planned(found, [DropAccess(found)], found.project_id, details)

        await self._execute(RoleBinding, plan, origin, call)

    def administrators(self) -> list[StoredPrincipal]:
        """Return the active principals that administer the server."""
        ids = {
            each.principal_id
            for each in self._directory.bindings.values()
            if each.tenant_id == SERVER_TENANT and each.role is Role.ADMIN
        }
        found = [self._directory.principals.get(each) for each in sorted(ids)]
        return [each for each in found if each is not None and each.is_active]

    def _check_key_count(self, principal_id: str, now: int) -> None:
        valid = sum(key.is_valid(now) for key in self._directory.keys_of(principal_id))
        if valid >= MAX_VALID_KEYS:
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"The principal has {valid} valid keys; the maximum is {MAX_VALID_KEYS}. Revoke some.",
                field="key.principal_id",
                limit=str(MAX_VALID_KEYS),
            )

    async def _execute(
        self,
        shape: type[R],
        plan: Callable[[int], Awaitable[_Planned]],
        origin: Origin,
        call: CallFacts,
    ) -> R:
        """Execute a change once: a repeated request gets the first result. Goes on if the caller leaves."""
        return await asyncio.shield(asyncio.ensure_future(self._execute_locked(shape, plan, origin, call)))

    async def _execute_locked(
        self,
        shape: type[R],
        plan: Callable[[int], Awaitable[_Planned]],
        origin: Origin,
        call: CallFacts,
    ) -> R:
        async with self._lock:
            key = message_key(origin)
            if key is not None and (earlier := await self._store.answer(key.qualified_id)) is not None:
                check_fingerprint(earlier.fingerprint, key)
                return read_record(shape, earlier.result)
            now = self._clock.now_ms()
            planned = await plan(now)
            assert isinstance(planned.result, shape)
            answer = None
            if key is not None:
                answer = Answer(
                    request_id=key.qualified_id,
                    fingerprint=key.fingerprint,
                    result=to_json(planned.result),
                    created_ms=now,
                )
            if planned.changes or answer is not None:
                entries = [_entry(planned, origin, call, now)] if planned.changes else []
                await self._store.commit(planned.changes, entries, answer)
            self._directory.apply(planned.changes)
            return planned.result


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


def _entry(planned: _Planned, origin: Origin, call: CallFacts, now: int) -> AuditEntry:
    return AuditEntry(
        id=random_id("aud", now),
        at_ms=now,
        tenant_id=origin.principal.tenant or DEFAULT_TENANT,
        principal=origin.principal.text,
        method=call.method,
        resource=planned.result.id,
        project_id=planned.project_id,
        key_id=call.key_id,
        request_id=origin.request_id,
        peer=call.peer,
        trace_id=call.trace_id,
        details=planned.details,
    )


def _check_etag(resource: StoredPrincipal, expected: str) -> None:
    if expected and expected != resource_etag(resource):
        raise error(
            Reason.ETAG_MISMATCH,
            f"The etag is '{expected[:100]}', but the principal has changed. Read it again, then retry.",
            field="etag",
        )
