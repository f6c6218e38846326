"""Principals, keys and role bindings in memory: each call needs some of them.

`PrincipalDirectory` holds what the store holds. `Administration` updates it after each commit, so a
revocation takes effect with the next call.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from wonder_server.core.access.permissions import WHO_AM_I, Role
from wonder_server.core.identity import Principal, PrincipalKind
from wonder_server.core.tenancy.resources import (
    DEFAULT_TENANT,
    SERVER_TENANT,
    AccessResource,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
    Tenant,
)
from wonder_server.core.tenancy.roles import NOTHING, Grants, grants_of
from wonder_server.ports.tenancy import AccessChange, PutAccess, StoredTenancy

KEY_PREFIX: Final = "wk_"
_MAX_CALLERS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller: its principal with all permissions that it has anywhere, and what they are by
    project. ``key`` is the key of the call, if it has one; ``bindings`` are the role bindings that hold."""

    principal: Principal
    grants: Grants
    stored: StoredPrincipal | None = None
    key: ApiKey | None = None
    bindings: Sequence[RoleBinding] = ()
    expires_ms: int = 0
    """Time from which the caller's token is not valid; 0 for a key, which says it itself."""
    _narrowed: dict[str, Principal] = field(default_factory=dict)

    def narrowed(self, permission: str) -> Principal:
        """Return the principal for a call that needs a permission. Made once for each permission."""
        known = self._narrowed.get(permission)
        if known is None:
            known = self._narrowed[permission] = replace(self.principal, permission=permission)
        return known


class PrincipalDirectory:
    """The stored principals, keys and role bindings.

    ``version`` increases with each change. `Caller` objects are made once for each key and version.
    """

    def __init__(self) -> None:
        self.version = 0
        self.on_changed: Callable[[], object] = lambda: None
        """Called after each change, to end the calls of what was revoked."""
        self.tenants: dict[str, Tenant] = {}
        """The tenants but ``default``."""
        self.principals: dict[str, StoredPrincipal] = {}
        self.keys: dict[str, ApiKey] = {}
        self.bindings: dict[str, RoleBinding] = {}
        self._keys_of: defaultdict[str, set[str]] = defaultdict(set)
        self._bindings_of: defaultdict[str, set[str]] = defaultdict(set)
        """Ids of bindings by principal, and by group with a leading space."""
        self._by_external: dict[tuple[str, str], str] = {}
        """Ids by tenant and external name."""
        self._by_name: dict[tuple[str, PrincipalKind, str], str] = {}
        self._callers: dict[str, Caller] = {}
        self._uses: dict[str, int] = {}

    def load(self, stored: StoredTenancy) -> None:
        """Add everything that the store holds."""
        everything: list[AccessResource] = [
            *stored.tenants,
            *stored.principals,
            *stored.keys,
            *stored.bindings,
        ]
        for resource in everything:
            self._put(resource)
        self._changed()

    def apply(self, changes: Sequence[AccessChange]) -> None:
        """Follow changes that the store has committed."""
        for change in changes:
            if isinstance(change, PutAccess):
                self._put(change.resource)
            else:
                self._drop(change.resource)
        self._changed()

    def keys_of(self, principal_id: str) -> list[ApiKey]:
        """Return the keys of a principal, revoked ones too."""
        return [self.keys[each] for each in sorted(self._keys_of.get(principal_id, ()))]

    def bindings_of(self, principal_id: str) -> list[RoleBinding]:
        """Return the role bindings of a principal itself, in the order of ids."""
        return [self.bindings[each] for each in sorted(self._bindings_of.get(principal_id, ()))]

    def has_name(self, tenant_id: str, kind: PrincipalKind, name: str) -> bool:
        """Return True if a principal has or had this name."""
        return (tenant_id, kind, name) in self._by_name

    def administrators(self, without: str = "") -> list[StoredPrincipal]:
        """Return the active principals that administer the server, by roles of their own or of their groups;
        ``without`` is the id of a principal or of a role binding that is left out."""
        return [
            each
            for each in self.principals.values()
            if each.is_active
            and each.id != without
            and any(
                role.tenant_id == SERVER_TENANT and role.role is Role.ADMIN and role.id != without
                for role in self.roles_of(each)
            )
        ]

    def principal_of_external(self, tenant_id: str, external: str) -> StoredPrincipal | None:
        """Return the principal of a tenant that an issuer knows by this name."""
        found = self._by_external.get((tenant_id, external))
        return self.principals[found] if found is not None else None

    def caller_of_login(self, stored: StoredPrincipal, expires_ms: int) -> Caller | None:
        """Return the caller with a token of an issuer; None if its principal is disabled or deleted."""
        if not stored.is_active:
            return None
        place = f"{stored.id} {expires_ms}"
        known = self._callers.get(place)
        if known is None:
            if len(self._callers) >= _MAX_CALLERS:
                self._callers.clear()
            known = self._callers[place] = replace(self._made(stored, None), expires_ms=expires_ms)
        return known

    def caller_of_key(self, token: str, now_ms: int) -> Caller | None:
        """Return the caller with a key, ``wk_<id>_<secret>``; None unless it is valid now."""
        key_id, _, secret = token.removeprefix(KEY_PREFIX).partition("_")
        key = self.keys.get(key_id)
        # Compare with something for an unknown key too, so that the time says nothing about ids.
        expected = key.digest if key is not None else _NO_DIGEST
        is_known = hmac.compare_digest(expected, secret_digest(secret)) and key is not None
        if key is None or not is_known or not key.is_valid(now_ms):
            return None
        self._uses[key.id] = now_ms
        return self._caller(key)

    def is_still_valid(self, caller: Caller, now_ms: int) -> bool:
        """Return True if a call with the same key or token would be served now with the same permissions."""
        if caller.key is None:
            stored = self.principals.get(caller.stored.id) if caller.stored is not None else None
            now = self.caller_of_login(stored, caller.expires_ms) if stored is not None else None
            return now is not None and now_ms < caller.expires_ms and now.grants == caller.grants
        key = self.keys.get(caller.key.id)
        if key is None or not key.is_valid(now_ms):
            return False
        now = self._caller(key)
        return now is not None and now.grants == caller.grants

    def take_uses(self) -> dict[str, int]:
        """Return the time of the last call of each key since the last take, in milliseconds."""
        uses, self._uses = self._uses, {}
        return uses

    def grants_of_recorded(self, principal: Principal) -> Grants:
        """Return the permissions of a principal that a record names, now: nothing if it is disabled, deleted
        or unknown. A key that limits them does so after its end too. Groups are those of its last token."""
        stored_id = self._by_name.get((principal.tenant, principal.kind, principal.subject))
        stored = self.principals[stored_id] if stored_id is not None else None
        if stored is None or not stored.is_active:
            return NOTHING
        if principal.limited_by and principal.limited_by not in self.keys:
            return NOTHING
        key = self.keys.get(principal.limited_by)
        return grants_of(stored.kind, stored.tenant_id, self.roles_of(stored), key)

    def _caller(self, key: ApiKey) -> Caller | None:
        known = self._callers.get(key.id)
        if known is not None:
            return known
        stored = self.principals.get(key.principal_id)
        if stored is None or not stored.is_active:
            return None
        made = self._callers[key.id] = self._made(stored, key)
        return made

    def _made(self, stored: StoredPrincipal, key: ApiKey | None) -> Caller:
        bindings = self.roles_of(stored, with_key=key is not None)
        grants = grants_of(stored.kind, stored.tenant_id, bindings, key)
        is_limited = key is not None and (key.scopes or key.project_ids)
        principal = Principal(
            kind=stored.kind,
            subject=stored.name,
            tenant=stored.tenant_id,
            limited_by=key.id if key is not None and is_limited else "",
            # Who it is may be asked without any role.
            permissions=grants.anywhere | {WHO_AM_I},
        )
        return Caller(principal, grants, stored, key, bindings)

    def roles_of(self, stored: StoredPrincipal, *, with_key: bool = False) -> list[RoleBinding]:
        """Return the role bindings of a principal and of its groups.

        Roles on the server come by a group only with a token of the issuer of the tenant ``default``: who
        administers a tenant makes keys of its principals.
        """
        names = [f" {group}" for group in stored.groups]
        of_groups = [self.bindings[each] for name in names for each in self._bindings_of.get(name, ())]
        if with_key or stored.tenant_id != DEFAULT_TENANT:
            of_groups = [each for each in of_groups if each.tenant_id != SERVER_TENANT]
        found = {each.id: each for each in (*self.bindings_of(stored.id), *of_groups)}
        return [found[each] for each in sorted(found)]

    def _put(self, resource: AccessResource) -> None:
        match resource:
            case Tenant():
                self.tenants[resource.id] = resource
            case StoredPrincipal():
                self._forget_external(resource.id)
                self.principals[resource.id] = resource
                if resource.external:
                    self._by_external[resource.tenant_id, resource.external] = resource.id
                self._by_name[resource.tenant_id, resource.kind, resource.name] = resource.id
            case ApiKey():
                self.keys[resource.id] = resource
                self._keys_of[resource.principal_id].add(resource.id)
            case RoleBinding():
                self.bindings[resource.id] = resource
                self._bindings_of[_member(resource)].add(resource.id)

    def _drop(self, resource: AccessResource) -> None:
        match resource:
            case Tenant():
                self.tenants.pop(resource.id, None)
            case ApiKey():
                self.keys.pop(resource.id, None)
                self._keys_of[resource.principal_id].discard(resource.id)
            case RoleBinding():
                self.bindings.pop(resource.id, None)
                self._bindings_of[_member(resource)].discard(resource.id)
            case StoredPrincipal():
                self._forget_external(resource.id)
                self.principals.pop(resource.id, None)
                self._by_name.pop((resource.tenant_id, resource.kind, resource.name), None)

    def _forget_external(self, principal_id: str) -> None:
        known = self.principals.get(principal_id)
        if known is not None:
            self._by_external.pop((known.tenant_id, known.external), None)

    def _changed(self) -> None:
        self.version += 1
        self._callers.clear()
        self.on_changed()


def secret_digest(secret: str) -> str:
    """Return the stored form of a key's secret. It has 256 random bits, so one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


_NO_DIGEST: Final = "0" * 64


def _member(binding: RoleBinding) -> str:
    return binding.principal_id or f" {binding.group}"
