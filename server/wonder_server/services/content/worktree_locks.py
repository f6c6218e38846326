"""Locks of worktrees, running commands, and deleted owners.

Creation and removal of a branch and its files hold the worktree's lock, so they exclude each other. A key
names a project and a conversation or branch, joined by a dash."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final
from weakref import WeakValueDictionary

from wonder_server.core.errors import Reason, not_found

MAX_DELETED_OWNERS: Final = 10_000
"""Maximum number of deleted conversations and projects to remember. Calls that were pending at a deletion end
long before as many others are deleted; a restart has no pending calls."""


class WorktreeLocks:
    """The locks of one server."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._commands: Counter[str] = Counter()
        self._deleted: dict[str, None] = {}

    def lock(self, key: str) -> asyncio.Lock:
        """Return the lock that creation and removal of this worktree hold."""
        return self._locks.setdefault(key, asyncio.Lock())

    def acquire(self, key: str) -> None:
        """Record that a command will run in this worktree, until `release`."""
        self._commands[key] += 1

    def release(self, key: str) -> None:
        """Record that a command ended. Do nothing without an `acquire`."""
        self._commands[key] -= 1
        if self._commands[key] <= 0:
            del self._commands[key]

    def in_use(self, key: str) -> bool:
        """Return True if commands may run in this worktree."""
        return key in self._commands

    def mark_deleted(self, owner: str) -> None:
        """Record that this conversation or project was deleted."""
        self._deleted[owner] = None
        while len(self._deleted) > MAX_DELETED_OWNERS:
            del self._deleted[next(iter(self._deleted))]

    def check_not_deleted(self, key: str) -> None:
        """Raise PROJECT_NOT_FOUND or CONVERSATION_NOT_FOUND if the owner of the worktree was deleted, so that
        it is not created again. The caller holds the lock."""
        project_id, _, name = key.rpartition("-")
        if project_id in self._deleted:
            place = ": it was deleted"
            raise not_found(Reason.PROJECT_NOT_FOUND, project_id, field="project_id", place=place)
        if name in self._deleted:
            place = ": it was deleted, with its branch and files"
            raise not_found(Reason.CONVERSATION_NOT_FOUND, name, field="conversation_id", place=place)
