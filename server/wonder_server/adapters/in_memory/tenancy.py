"""Tenants, principals, keys, role bindings and the audit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TypeVar

from wonder_server.core.errors import Reason, error
from wonder_server.core.idempotency import request_id_reused
from wonder_server.core.tenancy.audit import AuditEntry, AuditQuery
from wonder_server.core.tenancy.resources import (
    AccessResource,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
    Tenant,
    unique_name,
)
from wonder_server.ports.catalog import Answer
from wonder_server.ports.tenancy import AccessChange, PutAccess, StoredTenancy

R = TypeVar("R", Tenant, StoredPrincipal, ApiKey, RoleBinding)


class MemoryTenancy:
    """Implements the ports ``TenancyStore`` and ``Audit``. Lost with the process."""

    def __init__(self) -> None:
        self._rows: dict[str, AccessResource] = {}
        self._entries: dict[str, AuditEntry] = {}
        self._answers: dict[str, Answer] = {}
        self._used: dict[str, int] = {}

    async def load(self) -> StoredTenancy:
        return StoredTenancy(
            tenants=self._all(Tenant),
            principals=self._all(StoredPrincipal),
            keys=self._all(ApiKey),
            bindings=self._all(RoleBinding),
        )

    async def commit(
        self, changes: Sequence[AccessChange], audit: Sequence[AuditEntry] = (), answer: Answer | None = None
    ) -> None:
        rows = dict(self._rows)
        for change in changes:
            _execute(rows, change)
        if answer is not None:
            if answer.request_id in self._answers:
                raise request_id_reused()
            self._answers[answer.request_id] = answer
        self._rows = rows
        self._entries |= {entry.id: entry for entry in audit}

    async def answer(self, request_id: str) -> Answer | None:
        return self._answers.get(request_id)

    async def touch(self, used: dict[str, int]) -> None:
        for key_id, at_ms in used.items():
            if key_id in self._rows:
                self._used[key_id] = max(at_ms, self._used.get(key_id, 0))

    async def last_used(self, key_ids: Sequence[str]) -> dict[str, int]:
        return {each: self._used[each] for each in key_ids if each in self._used}

    async def record(self, entries: Sequence[AuditEntry]) -> None:
        await self.commit((), entries)

    async def entries(self, query: AuditQuery) -> list[AuditEntry]:
        newest_first = sorted(self._entries.values(), key=lambda entry: entry.id, reverse=True)
        return [entry for entry in newest_first if _selects(query, entry)][: query.limit]

    async def forget_before(self, at_ms: int) -> int:
        old = [entry.id for entry in self._entries.values() if entry.at_ms < at_ms]
        for each in old:
            del self._entries[each]
        return len(old)

    def _all(self, shape: type[R]) -> list[R]:
        return sorted((row for row in self._rows.values() if isinstance(row, shape)), key=lambda row: row.id)


def _execute(rows: dict[str, AccessResource], change: AccessChange) -> None:
    resource = change.resource
    stored = rows.get(resource.id)
    if not isinstance(change, PutAccess):
        if stored is None or stored.version != resource.version:
            raise _stale()
        del rows[resource.id]
        return
    others = [row for row in rows.values() if type(row) is type(resource) and row.id != resource.id]
    taken = any(unique_name(row) == unique_name(resource) for row in others)
    if isinstance(resource, StoredPrincipal) and resource.external:
        external = {(row.tenant_id, row.external) for row in others if isinstance(row, StoredPrincipal)}
        taken = taken or (resource.tenant_id, resource.external) in external
    if taken or (stored is not None and resource.version == 1):
        raise error(Reason.ALREADY_EXISTS, f"A {type(resource).__name__} like this exists.", field="name")
    if resource.version > 1 and (stored is None or stored.version != resource.version - 1):
        raise _stale()
    rows[resource.id] = resource


def _selects(query: AuditQuery, entry: AuditEntry) -> bool:
    wanted = {
        field.name: value
        for field in fields(query)
        if (value := getattr(query, field.name)) and hasattr(entry, field.name)
    }
    if query.tenant_id is not None:
        wanted["tenant_id"] = query.tenant_id
    return (
        all(getattr(entry, name) == value for name, value in wanted.items())
        and entry.at_ms >= query.start_ms
        and (not query.end_ms or entry.at_ms < query.end_ms)
        and (not query.before or entry.id < query.before)
    )


def _stale() -> Exception:
    return error(Reason.ETAG_MISMATCH, "Another request changed the resource meanwhile.", field="etag")
