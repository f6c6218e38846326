"""Author, message and idempotency key of commits; a repeated request commits once (AIP-155)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from wonder_server.core.errors import Reason, error
from wonder_server.core.frozen import Value
from wonder_server.ports.repositories import Commit, CommitMetadata, Repository
from wonder_server.services.catalog.transactions import IdempotencyKey

T = TypeVar("T")

MAX_MESSAGE_BYTES: Final = 16 << 10
MAX_AUTHOR_BYTES: Final = 512


class CommitRequest(Value, frozen=True, kw_only=True):
    """Author, message and idempotency key of a requested commit."""

    author: str = ""
    message: str = ""
    idempotency_key: IdempotencyKey | None = None


ANONYMOUS: Final = CommitRequest()
"""A commit without author, message and idempotency key."""


def commit_metadata(request: CommitRequest, default_message: str = "") -> CommitMetadata:
    """Return the metadata of the commit that ``request`` asks for. Raises FIELD_INVALID if a text is too
    long."""
    author, message, key = request.author, request.message or default_message, request.idempotency_key
    for field, value, limit in (
        ("author", author, MAX_AUTHOR_BYTES),
        ("message", message, MAX_MESSAGE_BYTES),
    ):
        size = len(value.encode("utf-8", "replace"))
        if size > limit:
            raise error(
                Reason.FIELD_INVALID, f"{field} has {size} bytes; the maximum is {limit}.", field=field
            )
    if key is None:
        return CommitMetadata(author=author, message=message)
    digest = hashlib.blake2b(key.request_id.encode("utf-8", "replace"), digest_size=20).hexdigest()
    return CommitMetadata(author=author, message=message, key=digest, fingerprint=key.fingerprint)


class InFlightRequests:
    """Requests that are executing. A completed request is recognized by the key of its commit."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    async def execute_once(
        self, repository: Repository, metadata: CommitMetadata, execute: Callable[[], Awaitable[T]]
    ) -> T | Commit:
        """Return the result of ``execute``, or the commit of an earlier request with the same key.

        Execution continues if the caller is cancelled. Raises REQUEST_ID_REUSED if the earlier request had
        another fingerprint."""
        if not metadata.key:
            return await execute()
        lock = self._locks.setdefault(metadata.key, asyncio.Lock())

        async def execute_locked() -> T | Commit:
            async with lock:
                if (before := await repository.find_by_key(metadata.key)) is None:
                    return await execute()
                commit, fingerprint = before
                if fingerprint != metadata.fingerprint:
                    raise error(
                        Reason.REQUEST_ID_REUSED,
                        "This request_id was used for another request; choose a new one.",
                        field="request_id",
                    )
                return commit

        try:
            return await asyncio.shield(asyncio.ensure_future(execute_locked()))
        finally:
            if not lock.locked():
                self._locks.pop(metadata.key, None)
