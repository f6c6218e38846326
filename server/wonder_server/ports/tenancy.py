"""The store of tenants, principals, keys and role bindings, and of the audit of their changes.

There are few of them, and each call needs some, so the server holds all in memory (``services/tenancy``). The
store loads them once and writes changes; it guards what two writers could break: unique names, consecutive
versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wonder_server.core.tenancy.audit import AuditEntry, AuditQuery
from wonder_server.core.tenancy.resources import (
    AccessResource,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
    Tenant,
)
from wonder_server.ports.catalog import Answer


@dataclass(frozen=True, slots=True)
class PutAccess:
    """Store this version of a resource. Version 1 must be new; any other must follow the stored version.

    Errors: ALREADY_EXISTS if a name, or the external name of a principal, is in use; ETAG_MISMATCH if another
    version was stored meanwhile.
    """

    resource: AccessResource


@dataclass(frozen=True, slots=True)
class DropAccess:
    """Delete a resource. ETAG_MISMATCH if the stored version is another one."""

    resource: AccessResource


AccessChange = PutAccess | DropAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTenancy:
    """Everything that is stored, in the order of ids."""

    tenants: list[Tenant] = field(default_factory=list)
    principals: list[StoredPrincipal] = field(default_factory=list)
    keys: list[ApiKey] = field(default_factory=list)
    bindings: list[RoleBinding] = field(default_factory=list)


class TenancyStore(Protocol):
    """Tenants, principals, keys and role bindings."""

    async def load(self) -> StoredTenancy:
        """Return everything. A damaged row is an error: without it, a principal could have too many
        permissions. Errors: STORAGE_UNAVAILABLE."""
        ...

    async def commit(
        self, changes: Sequence[AccessChange], audit: Sequence[AuditEntry] = (), answer: Answer | None = None
    ) -> None:
        """Execute all changes in this order, and store the audit entries and the answer, in one transaction.

        Raises ALREADY_EXISTS, ETAG_MISMATCH, and REQUEST_ID_REUSED if the id has an answer already.
        """
        ...

    async def answer(self, request_id: str) -> Answer | None: ...

    async def touch(self, used: dict[str, int]) -> None:
        """Store when keys were used last, in milliseconds by key id. It changes no version."""
        ...

    async def last_used(self, key_ids: Sequence[str]) -> dict[str, int]:
        """Return when keys were used last; those that never were are missing."""
        ...


class Audit(Protocol):
    """Entries of the audit. Nothing changes or deletes one, but for their age."""

    async def record(self, entries: Sequence[AuditEntry]) -> None:
        """Store entries that belong to no transaction, such as rejected calls."""
        ...

    async def entries(self, query: AuditQuery) -> list[AuditEntry]:
        """Return the selected entries, newest first."""
        ...

    async def forget_before(self, at_ms: int) -> int:
        """Delete the entries older than a time; return their number."""
        ...
