"""Entries of the audit in catalog.db, written in the transaction of their change."""

from __future__ import annotations

import json
import sqlite3
from typing import Final

from wonder_server.codec.seals import seal
from wonder_server.core.definitions.parse import to_json
from wonder_server.core.tenancy.audit import AuditEntry

_INSERT_ENTRY: Final = """
    INSERT INTO audit (id, at_ms, tenant, principal, method, resource, project, outcome, body, seal)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def put_entry(connection: sqlite3.Connection, entry: AuditEntry) -> None:
    """Insert an entry of the audit, in the transaction of the change."""
    body = json.dumps(to_json(entry), ensure_ascii=False)
    checksum = seal(("audit", entry.id, entry.at_ms, ""), body.encode())
    filters = entry.tenant_id, entry.principal, entry.method, entry.resource, entry.project_id
    connection.execute(_INSERT_ENTRY, (entry.id, entry.at_ms, *filters, str(entry.outcome), body, checksum))
