"""Callers with tokens of issuers: each user of an issuer has a stored principal, made at its first call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from wonder_server.core.errors import WonderError
from wonder_server.core.idempotency import Origin
from wonder_server.core.identity import PrincipalKind, server_part
from wonder_server.core.ids import random_id
from wonder_server.core.tenancy.resources import StoredPrincipal, Tenant
from wonder_server.logs import logger
from wonder_server.ports.issuers import TokenVerifier, VerifiedToken
from wonder_server.ports.tenancy import PutAccess
from wonder_server.services.tenancy.changes import AccessChanges, CallFacts, PlannedAccess
from wonder_server.services.tenancy.directory import Caller, PrincipalDirectory
from wonder_server.services.tenancy.requests import MAX_EXTERNAL_BYTES

_log = logger("rpc")

_MAX_NAMES: Final = 100
"""Names that are tried for a new principal."""


class Logins:
    """Finds callers by their tokens. ``tenant`` returns a tenant by id or name, and raises
    TENANT_NOT_FOUND."""

    def __init__(
        self,
        verifier: TokenVerifier,
        directory: PrincipalDirectory,
        changes: AccessChanges,
        tenant: Callable[[str], Tenant],
    ) -> None:
        self._verifier = verifier
        self._directory = directory
        self._changes = changes
        self._tenant = tenant

    async def caller_of(self, token: str, now_ms: int) -> Caller | None:
        """Return the caller with a token; None unless the token is valid and its principal is active.

        A new user gets a principal; changed groups are stored, because they give roles to work that goes on
        after the call.
        """
        verified = await self._verifier.verify(token, now_ms)
        if verified is None or len(verified.external_id.encode()) > MAX_EXTERNAL_BYTES:
            return None
        try:
            tenant_id = self._tenant(verified.tenant).id
            stored = self._directory.principal_of_external(tenant_id, verified.external_id)
            if stored is None or (stored.is_active and _has_news(verified, stored)):
                stored = await self._store(verified, tenant_id)
        except WonderError as problem:
            _log.warning("login_not_stored", issuer=verified.issuer, problem=problem.fault.message)
            return None
        return self._directory.caller_of_login(stored, verified.expires_ms)

    async def _store(self, verified: VerifiedToken, tenant_id: str) -> StoredPrincipal:
        # Not the user: until it has a principal, its name may be that of another.
        server = server_part("login", tenant_id)

        async def plan(now: int) -> PlannedAccess:
            stored = self._directory.principal_of_external(tenant_id, verified.external_id)
            if stored is not None and not _has_news(verified, stored):
                return PlannedAccess(stored, [])
            if stored is None:
                made = StoredPrincipal(
                    id=random_id("prin", now),
                    tenant_id=tenant_id,
                    kind=PrincipalKind.USER,
                    name=self._free_name(verified, tenant_id),
                    external=verified.external_id,
                    groups=verified.groups,
                    groups_ms=verified.issued_ms,
                    created_ms=now,
                    updated_ms=now,
                    updated_by=server.text,
                )
            else:
                made = replace(
                    stored,
                    groups=verified.groups,
                    groups_ms=verified.issued_ms,
                    version=stored.version + 1,
                    updated_ms=now,
                    updated_by=server.text,
                )
            details = {"issuer": verified.issuer, "groups": list(verified.groups)}
            return PlannedAccess(made, [PutAccess(made)], details={**details, "name": made.name})

        call = CallFacts(method="Login")
        return await self._changes.execute(StoredPrincipal, plan, Origin(server, ""), call)

    def _free_name(self, verified: VerifiedToken, tenant_id: str) -> str:
        """Return a name that no principal of the tenant has or had. A token does not choose whose name it
        gets: a taken one is of no other principal."""
        digest = hashlib.sha256(verified.external_id.encode()).hexdigest()[:12]
        names = [
            verified.name,
            *(f"{verified.name[:50]} {digest} {n}".removesuffix(" 0") for n in range(_MAX_NAMES)),
        ]
        return next(
            (each for each in names if not self._directory.has_name(tenant_id, PrincipalKind.USER, each)),
            verified.external_id,
        )


def _has_news(verified: VerifiedToken, stored: StoredPrincipal) -> bool:
    """Return True if a token names other groups and is newer than the one that named the stored ones: a user
    with two tokens does not write with each call."""
    return stored.groups != verified.groups and verified.issued_ms > stored.groups_ms
