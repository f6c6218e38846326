"""Idempotent requests (feature B13): what a ``request_id`` is compared by."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from wonder_server.core.errors import Reason, error
from wonder_server.ports.journal import Answered, Request


def request(scope: str, request_id: str, **asked: Any) -> Request | None:
    """The request's identity, or None if the client gave it no id.

    ``request_id`` is the key that ``rpc/once.py`` makes of it, with the caller's name. ``asked`` is what must
    be the same for it to be the same request.
    """
    if not request_id:
        return None
    text = json.dumps(asked, sort_keys=True, ensure_ascii=False, default=str)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Request(scope, request_id, digest)


def first_answer(before: Answered | None, asked: Request) -> dict[str, str] | None:
    """What ``asked`` was told the first time; None if this is the first time. Errors: REQUEST_ID_REUSED."""
    if before is not None and before.fingerprint != asked.fingerprint:
        raise error(
            Reason.REQUEST_ID_REUSED,
            "This request_id was used before for a different request; use a fresh one.",
            field="request_id",
        )
    return None if before is None else before.answer


class Creations:
    """Lets creations with one ``request_id`` pass one at a time, so that the second finds the first."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, str], _Counted] = {}

    def one(self, scope: str, key: str) -> _Counted:
        """``async with creations.one("conversations", request_id):``"""
        lock = self._locks.get((scope, key))
        if lock is None:
            lock = self._locks[scope, key] = _Counted(self._locks, (scope, key))
        return lock


class _Counted:
    """A lock that is forgotten when the last one leaves."""

    def __init__(self, locks: dict[tuple[str, str], _Counted], key: tuple[str, str]) -> None:
        self._locks = locks
        self._key = key
        self._lock = asyncio.Lock()
        self._inside = 0

    async def __aenter__(self) -> None:
        self._inside += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        self._inside -= 1
        if not self._inside:
            self._locks.pop(self._key, None)
