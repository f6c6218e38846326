"""Who commits and why; and that a request which comes again commits once (AIP-155)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import Commit, Repository, Signed
from wonder_server.services.catalog_writes import Once

T = TypeVar("T")

MAX_MESSAGE_BYTES: Final = 16 << 10
MAX_AUTHOR_BYTES: Final = 512


def signed_by(author: str, message: str, once: Once | None = None) -> Signed:
    """What stands on a commit. FIELD_INVALID where it is too long."""
    for field, value, most in (("author", author, MAX_AUTHOR_BYTES), ("message", message, MAX_MESSAGE_BYTES)):
        if len(value.encode("utf-8", "replace")) > most:
            raise error(Reason.FIELD_INVALID, f"{field} has at most {most} bytes.", field=field)
    if once is None:
        return Signed(author=author, message=message)
    key = hashlib.blake2b(once.request_id.encode("utf-8", "replace"), digest_size=20).hexdigest()
    return Signed(author=author, message=message, key=key, mark=once.fingerprint)


class Asked:
    """Requests that are being carried out; those that were are recognised by their commits."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    async def once(
        self, repository: Repository, signed: Signed, act: Callable[[], Awaitable[T]]
    ) -> T | Commit:
        """What ``act`` gives; or the commit that the same request has made before. Whoever asks may go away:
        what was begun is done. REQUEST_ID_REUSED if the key came with another mark."""
        if not signed.key:
            return await act()
        lock = self._locks.setdefault(signed.key, asyncio.Lock())

        async def alone() -> T | Commit:
            async with lock:
                if (before := await repository.done(signed.key)) is None:
                    return await act()
                commit, mark = before
                if mark != signed.mark:
                    raise error(
                        Reason.REQUEST_ID_REUSED,
                        "This request_id was used for another request; choose a new one.",
                        field="request_id",
                    )
                return commit

        try:
            return await asyncio.shield(asyncio.ensure_future(alone()))
        finally:
            if not lock.locked():
                self._locks.pop(signed.key, None)
