"""Who is at work in which worktree, and which of them are no more.

What makes branch and files, and what removes them, is done under the worktree's lock, so that neither happens
in the midst of the other. Keys are those of worktrees: a project, a dash, and a conversation or branch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final
from weakref import WeakValueDictionary

from wonder_server.core.errors import Reason, error

MAX_DELETED_OWNERS: Final = 10_000
"""Conversations and projects that are known to be no more. What was under way when they ended is over long
before as many others have; after a restart nothing is under way."""


class WorktreeLocks:
    """One server's."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._commands: Counter[str] = Counter()
        self._deleted: dict[str, None] = {}

    def lock(self, key: str) -> asyncio.Lock:
        """For who makes or removes branch and files of this worktree."""
        return self._locks.setdefault(key, asyncio.Lock())

    def acquire(self, key: str) -> None:
        """A command is to run among these files, until `leave` is said."""
        self._commands[key] += 1

    def release(self, key: str) -> None:
        """It has run. Without `enter` nothing happens."""
        self._commands[key] -= 1
        if self._commands[key] <= 0:
            del self._commands[key]

    def in_use(self, key: str) -> bool:
        """Whether commands may run there."""
        return key in self._commands

    def mark_deleted(self, owner: str) -> None:
        """This conversation or project is no more."""
        self._deleted[owner] = None
        while len(self._deleted) > MAX_DELETED_OWNERS:
            del self._deleted[next(iter(self._deleted))]

    def check_not_deleted(self, key: str) -> None:
        """Raises PROJECT_NOT_FOUND or CONVERSATION_NOT_FOUND if its owner is no more, so that nothing is made
        again. To be asked under the lock."""
        project_id, _, name = key.rpartition("-")
        if project_id in self._deleted:
            raise error(Reason.PROJECT_NOT_FOUND, "The project of this work was deleted.", field="project_id")
        if name in self._deleted:
            raise error(
                Reason.CONVERSATION_NOT_FOUND,
                "The conversation of this work was deleted, and its branch and files with it.",
                field="conversation_id",
            )
