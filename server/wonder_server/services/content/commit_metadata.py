"""Who commits and why; and that a request which comes again commits once (AIP-155)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import Commit, CommitMetadata, Repository
from wonder_server.services.catalog.transactions import IdempotencyKey

T = TypeVar("T")

MAX_MESSAGE_BYTES: Final = 16 << 10
MAX_AUTHOR_BYTES: Final = 512


def commit_metadata(
    author: str, message: str, idempotency_key: IdempotencyKey | None = None
) -> CommitMetadata:
    """What stands on a commit. FIELD_INVALID where it is too long."""
    for field, value, most in (("author", author, MAX_AUTHOR_BYTES), ("message", message, MAX_MESSAGE_BYTES)):
        if len(value.encode("utf-8", "replace")) > most:
            raise error(Reason.FIELD_INVALID, f"{field} has at most {most} bytes.", field=field)
    if idempotency_key is None:
        return CommitMetadata(author=author, message=message)
    key = hashlib.blake2b(idempotency_key.request_id.encode("utf-8", "replace"), digest_size=20).hexdigest()
    return CommitMetadata(author=author, message=message, key=key, fingerprint=idempotency_key.fingerprint)


class InFlightRequests:
    """Requests that are being carried out; those that were are recognised by their commits."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    async def execute_once(
        self, repository: Repository, metadata: CommitMetadata, execute: Callable[[], Awaitable[T]]
    ) -> T | Commit:
        """What ``act`` gives; or the commit that the same request has made before. Whoever asks may go away:
        what was begun is done. REQUEST_ID_REUSED if the key came with another mark."""
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
