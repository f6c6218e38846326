"""Locks by key. Each exists only while a task holds it or waits for it."""

from __future__ import annotations

import asyncio


class KeyedLocks:
    """Locks that serialize tasks with the same scope and key.

    Creations with one ``request_id`` run one at a time, so that the second finds the result of the first.
    """

    def __init__(self) -> None:
        self._locks: dict[tuple[str, str], _RefCountedLock] = {}

    def __len__(self) -> int:
        """Return the number of locks in use."""
        return len(self._locks)

    def lock(self, scope: str, key: str) -> _RefCountedLock:
        """Return the lock of this key: ``async with locks.lock("conversations", request_id):``"""
        lock = self._locks.get((scope, key))
        if lock is None:
            lock = self._locks[scope, key] = _RefCountedLock(self._locks, (scope, key))
        return lock


class _RefCountedLock:
    """A lock that removes itself from the table when its last user releases it."""

    def __init__(self, locks: dict[tuple[str, str], _RefCountedLock], key: tuple[str, str]) -> None:
        self._locks = locks
        self._key = key
        self._lock = asyncio.Lock()
        self._users = 0

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._release_user()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._release_user()

    def _release_user(self) -> None:
        self._users -= 1
        if not self._users:
            self._locks.pop(self._key, None)
