"""Changes of tenants, principals, keys and role bindings.

Each is one transaction with its audit entry and the answer of its request. After it, the `PrincipalDirectory`
follows, so the next call sees the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from wonder_server.core.definitions.parse import read_record, to_json
from wonder_server.core.idempotency import Origin, check_fingerprint, message_key
from wonder_server.core.identity import AuditedCall
from wonder_server.core.ids import random_id
from wonder_server.core.json_types import JsonDict
from wonder_server.core.tenancy.audit import AuditEntry
from wonder_server.core.tenancy.resources import (
    SERVER_TENANT,
    AccessResource,
    ApiKey,
    RoleBinding,
    StoredPrincipal,
    Tenant,
)
from wonder_server.ports.catalog import Answer
from wonder_server.ports.clock import Clock
from wonder_server.ports.tenancy import AccessChange, TenancyStore
from wonder_server.services.tenancy.directory import PrincipalDirectory

R = TypeVar("R", Tenant, StoredPrincipal, ApiKey, RoleBinding)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts(AuditedCall):
    """Facts about a call of an administrator. ``reach`` is the tenant whose resources the caller administers,
    None for every tenant."""

    reach: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedAccess:
    """A result, the changes that make it, and what the audit says about them."""

    result: AccessResource
    changes: Sequence[AccessChange]
    project_id: str = ""
    details: JsonDict = field(default_factory=dict)


class AccessChanges:
    """The only writer of tenants, principals, keys and role bindings."""

    def __init__(self, store: TenancyStore, directory: PrincipalDirectory, clock: Clock) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._lock = asyncio.Lock()

    async def execute(
        self,
        shape: type[R],
        plan: Callable[[int], Awaitable[PlannedAccess]],
        origin: Origin,
        call: CallFacts,
    ) -> R:
        """Execute a change once: a repeated request gets the first result. Goes on if the caller leaves."""
        return await asyncio.shield(asyncio.ensure_future(self._execute_once(shape, plan, origin, call)))

    async def _execute_once(
        self,
        shape: type[R],
        plan: Callable[[int], Awaitable[PlannedAccess]],
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


def _entry(planned: PlannedAccess, origin: Origin, call: CallFacts, now: int) -> AuditEntry:
    return AuditEntry(
        id=random_id("aud", now),
        at_ms=now,
        tenant_id=_tenant_of(planned.result, origin),
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


def _tenant_of(resource: AccessResource, origin: Origin) -> str:
    """Return the tenant whose administrators read the audit of a change."""
    # Tenants, and roles on the server, are for those who administer the server.
    if isinstance(resource, Tenant) or resource.tenant_id == SERVER_TENANT:
        return origin.principal.tenant
    return resource.tenant_id
