"""Transactions of the catalog: serialized changes, each checked, committed once and idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from wonder_server.core.definitions.parse import read_record, to_json
from wonder_server.core.definitions.resources import Resource, etag
from wonder_server.core.errors import Reason, error
from wonder_server.ports.catalog import Answer, Catalog, Change
from wonder_server.ports.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EmptyResult:
    """The result of a change without content."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's ``request_id``, and the ``fingerprint`` of its request, which detects a reuse of the id for
    another request (AIP-155)."""

    request_id: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class PlannedChange(Generic[T]):
    """The changes of a transaction, and its result after the commit."""

    result: T
    changes: Sequence[Change] = ()


class CatalogTransactions:
    """The only writer of the catalog: while a plan reads, nothing else changes."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self.lock = asyncio.Lock()
        self._catalog = catalog
        self._clock = clock
        self._listeners: list[Callable[[Sequence[Change]], None]] = []

    def add_listener(self, listener: Callable[[Sequence[Change]], None]) -> None:
        """Call ``listener`` after each commit, successful or not, before the caller receives its result."""
        self._listeners.append(listener)

    async def execute(
        self,
        result_type: type[T],
        plan: Callable[[int], Awaitable[PlannedChange[T]]],
        *,
        idempotency_key: IdempotencyKey | None = None,
        validate_only: bool = False,
    ) -> T:
        """Call ``plan`` with the time in milliseconds, commit its changes, and return its result.

        A repeated request returns the first result. Another request with its ``request_id`` raises
        REQUEST_ID_REUSED. With ``validate_only`` nothing is committed."""
        async with self.lock:
            if idempotency_key is not None and (
                answer := await self._catalog.answer(idempotency_key.request_id)
            ):
                if answer.fingerprint != idempotency_key.fingerprint:
                    raise error(
                        Reason.REQUEST_ID_REUSED,
                        "This request_id was used for another request; choose a new one.",
                        field="request_id",
                    )
                return read_record(result_type, answer.result)
            now = self._clock.now_ms()
            planned = await plan(now)
            if not validate_only and (planned.changes or idempotency_key):
                try:
                    await self._catalog.commit(planned.changes, _answer(idempotency_key, planned.result, now))
                finally:
                    # Also after a cancel: the commit may still complete before a later read.
                    for listener in self._listeners:
                        listener(planned.changes)
            return planned.result


def _answer(idempotency_key: IdempotencyKey | None, result: object, now: int) -> Answer | None:
    if idempotency_key is None:
        return None
    return Answer(
        request_id=idempotency_key.request_id,
        fingerprint=idempotency_key.fingerprint,
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
