"""Transactions of the catalog: serialized changes, each checked, committed once and idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakMethod

from wonder_server.core.definitions.parse import read_record, to_json
from wonder_server.core.definitions.resources import Resource, etag
from wonder_server.core.errors import Reason, error
from wonder_server.core.idempotency import (
    SERVER_ORIGIN,
    IdempotencyKey,
    Origin,
    check_fingerprint,
    message_key,
)
from wonder_server.ports.catalog import Answer, Change
from wonder_server.ports.clock import Clock
from wonder_server.ports.scoped import ScopedCatalog
from wonder_server.services.catalog.audit_entries import audit_entries

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EmptyResult:
    """The result of a change without content."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The time of a change in milliseconds, and the principal that makes it, as records keep it."""

    at_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class PlannedChange(Generic[T]):
    """The changes of a transaction, and its result after the commit."""

    result: T
    changes: Sequence[Change] = ()


Listener = Callable[[Sequence[Change]], None]


class CatalogTransactions:
    """The only writer of the catalog: while a plan reads, nothing else changes.

    ``whole`` is the view of everything, in the tenant of the change. Plans check with it that no reference
    breaks, since a definition can be used where its author sees nothing.
    """

    def __init__(self, whole: ScopedCatalog, clock: Clock) -> None:
        self.lock = asyncio.Lock()
        self.whole = whole
        self._catalog = whole
        self._clock = clock
        self._listeners: list[WeakMethod[Listener]] = []

    def within(self, catalog: ScopedCatalog) -> CatalogTransactions:
        """Return the same writer for the changes of another access scope."""
        made = copy(self)
        made._catalog = catalog
        made.whole = catalog.whole_tenant() or self.whole
        return made

    def add_listener(self, listener: Listener) -> None:
        """Call the method ``listener`` after each commit of any scope, successful or not, before the caller
        receives its result. It is not called once its object is gone."""
        self._listeners.append(WeakMethod(listener))

    async def execute(
        self,
        result_type: type[T],
        plan: Callable[[Stamp], Awaitable[PlannedChange[T]]],
        *,
        origin: Origin = SERVER_ORIGIN,
        validate_only: bool = False,
    ) -> T:
        """Call ``plan`` with time and principal, commit its changes, and return its result.

        A repeated request returns the first result. Another request with its ``request_id`` raises
        REQUEST_ID_REUSED. With ``validate_only`` nothing is committed."""
        async with self.lock:
            key, earlier = message_key(origin), await self.answered(result_type, origin)
            if earlier is not None:
                return earlier
            now = self._clock.now_ms()
            planned = await plan(Stamp(now, origin.principal.text))
            if not validate_only and (planned.changes or key):
                try:
                    entries = audit_entries(planned.changes, origin, now)
                    await self._catalog.commit(planned.changes, _answer(key, planned.result, now), entries)
                finally:
                    # Also after a cancel: the commit may still complete before a later read.
                    self._notify(planned.changes)
            return planned.result

    async def answered(self, result_type: type[T], origin: Origin) -> T | None:
        """Return the result of an earlier execution of the request, or None. Raises REQUEST_ID_REUSED."""
        key = message_key(origin)
        if key is None or (answer := await self._catalog.answer(key.qualified_id)) is None:
            return None
        check_fingerprint(answer.fingerprint, key)
        return read_record(result_type, answer.result)

    async def knows(self, origin: Origin) -> bool:
        """Return True if a request with this id was executed, whatever its content."""
        key = message_key(origin)
        return key is not None and await self._catalog.answer(key.qualified_id) is not None

    def _notify(self, changes: Sequence[Change]) -> None:
        alive = [listener for listener in self._listeners if listener() is not None]
        self._listeners[:] = alive
        for listener in alive:
            if (method := listener()) is not None:
                method(changes)


def _answer(key: IdempotencyKey | None, result: object, now: int) -> Answer | None:
    if key is None:
        return None
    return Answer(
        request_id=key.qualified_id,
        fingerprint=key.fingerprint,
        result=to_json(result),
        created_ms=now,
    )


def check_etag(resource: Resource | None, expected: str) -> None:
    """Raise ETAG_MISMATCH unless ``expected`` is empty or the etag of the resource."""
    if expected and (resource is None or expected != etag(resource)):
        raise error(
            Reason.ETAG_MISMATCH,
            f"The etag is '{expected[:100]}', but the resource has changed. Read it again, then retry.",
            field="etag",
        )
