"""Tenants, principals, keys, role bindings and the audit in catalog.db."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final, TypeVar

from wonder_server.adapters.sqlite.catalog.audit import put_entry
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog, read_answer, stale, store_answer
from wonder_server.adapters.sqlite.connection import SqlValue
from wonder_server.codec.seals import seal
from wonder_server.core.definitions.parse import read_record, to_json
from wonder_server.core.errors import Reason, error
from wonder_server.core.tenancy.audit import AuditEntry, AuditQuery
from wonder_server.core.tenancy.names import stored_name
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

_TABLES: Final[dict[type, str]] = {
    Tenant: "tenants",
    StoredPrincipal: "principals",
    ApiKey: "api_keys",
    RoleBinding: "role_bindings",
}

_ENTRIES: Final = """
    SELECT id, at_ms, '', CAST(body AS BLOB), seal FROM audit
    WHERE (:before = '' OR id < :before)
      AND (:tenant IS NULL OR tenant = :tenant)
      AND (:principal = '' OR principal = :principal)
      AND (:method = '' OR method = :method)
      AND (:resource = '' OR resource = :resource)
      AND (:project = '' OR project = :project)
      AND (:outcome = '' OR outcome = :outcome)
      AND at_ms >= :start_ms AND (:end_ms = 0 OR at_ms < :end_ms)
    ORDER BY id DESC LIMIT :limit
"""
_TOUCH: Final = """
    INSERT INTO key_uses (key_id, used_ms) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM api_keys WHERE id = ?1)
    ON CONFLICT (key_id) DO UPDATE SET used_ms = max(used_ms, ?2)
"""


class SqliteTenancy:
    """Implements the ports ``TenancyStore`` and ``Audit`` in the file of the catalog, so that definitions and
    their audit are one transaction."""

    def __init__(self, catalog: SqliteCatalog) -> None:
        self._database = catalog.database
        self._seals = catalog.seals

    async def load(self) -> StoredTenancy:
        def read(connection: sqlite3.Connection) -> StoredTenancy:
            return StoredTenancy(
                tenants=self._all(connection, Tenant),
                principals=self._all(connection, StoredPrincipal),
                keys=self._all(connection, ApiKey),
                bindings=self._all(connection, RoleBinding),
            )

        return await self._database.read(read)

    async def commit(
        self, changes: Sequence[AccessChange], audit: Sequence[AuditEntry] = (), answer: Answer | None = None
    ) -> None:
        def write(connection: sqlite3.Connection) -> None:
            for change in changes:
                (_put if isinstance(change, PutAccess) else _drop)(connection, change.resource)
            for entry in audit:
                put_entry(connection, entry)
            if answer is not None:
                store_answer(connection, answer)

        await self._database.write(write)

    async def answer(self, request_id: str) -> Answer | None:
        return await self._database.read(lambda connection: read_answer(connection, self._seals, request_id))

    async def touch(self, used: dict[str, int]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(_TOUCH, sorted(used.items()))

        await self._database.write(write)

    async def last_used(self, key_ids: Sequence[str]) -> dict[str, int]:
        sql = "SELECT key_id, used_ms FROM key_uses WHERE key_id IN (SELECT value FROM json_each(?))"
        wanted = json.dumps(list(key_ids))
        return dict(
            await self._database.read(lambda connection: connection.execute(sql, (wanted,)).fetchall())
        )

    async def record(self, entries: Sequence[AuditEntry]) -> None:
        await self.commit((), entries)

    async def entries(self, query: AuditQuery) -> list[AuditEntry]:
        parameters: dict[str, SqlValue] = {
            "before": query.before,
            "tenant": query.tenant_id,
            "principal": query.principal,
            "method": query.method,
            "resource": query.resource,
            "project": query.project_id,
            "outcome": str(query.outcome or ""),
            "start_ms": query.start_ms,
            "end_ms": query.end_ms,
            "limit": query.limit,
        }

        def read(connection: sqlite3.Connection) -> list[AuditEntry]:
            found = []
            for *key, data, checksum in connection.execute(_ENTRIES, parameters):
                body = self._seals.check("audit", tuple(key), data, checksum, 1)
                found.append(read_record(AuditEntry, json.loads(body)))
            return found

        return await self._database.read(read)

    async def forget_before(self, at_ms: int) -> int:
        def write(connection: sqlite3.Connection) -> int:
            return connection.execute("DELETE FROM audit WHERE at_ms < ?", (at_ms,)).rowcount

        return await self._database.write(write, frees_space=True)

    def _all(self, connection: sqlite3.Connection, shape: type[R]) -> list[R]:
        table = _TABLES[shape]
        rows = connection.execute(
            f"SELECT id, name, version, CAST(body AS BLOB), seal FROM {table} ORDER BY id"
        )
        return [
            read_record(shape, json.loads(self._seals.check(table, tuple(key), data, checksum, 1)))
            for *key, data, checksum in rows
        ]


def _put(connection: sqlite3.Connection, resource: AccessResource) -> None:
    table = _TABLES[type(resource)]
    key = resource.id, unique_name(resource), resource.version
    body = json.dumps(to_json(resource), ensure_ascii=False)
    row: dict[str, SqlValue] = dict(zip(("id", "name", "version"), key, strict=True))
    row |= {"body": body, "seal": seal((table, *key), body.encode())}
    if isinstance(resource, StoredPrincipal):
        row["external"] = stored_name(resource.tenant_id, resource.external)
    try:
        if resource.version == 1:
            names = ", ".join(row)
            values = ", ".join(f":{name}" for name in row)
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({values})", row)
            return
        changed = ", ".join(f"{name} = :{name}" for name in row if name != "id")
        sql = f"UPDATE {table} SET {changed} WHERE id = :id AND version = :version - 1"
        updated = connection.execute(sql, row).rowcount
    except sqlite3.IntegrityError:
        raise error(Reason.ALREADY_EXISTS, f"{_described(resource)} exists already.", field="name") from None
    if updated != 1:
        raise stale()


def _drop(connection: sqlite3.Connection, resource: AccessResource) -> None:
    sql = f"DELETE FROM {_TABLES[type(resource)]} WHERE id = ? AND version = ?"
    if connection.execute(sql, (resource.id, resource.version)).rowcount != 1:
        raise stale()


def _described(resource: AccessResource) -> str:
    match resource:
        case Tenant():
            return f"The tenant '{resource.name}'"
        case StoredPrincipal():
            return f"A {resource.kind} with the name '{resource.name}' or this external name"
        case ApiKey():
            return "The key"
        case RoleBinding():
            return f"This binding of the role {resource.role}"
