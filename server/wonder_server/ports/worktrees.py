"""Folders in which conversations work on the files of their project's repositories (features F3, F5).

A worktree belongs to one branch of one project; all who work on that branch share it: a conversation, the
workflows that it starts, and the agents that those call. It is a plain folder with one folder below it for
each repository of the project, named as the project names it; there is no ``.git`` in it, and whatever agents
put there is never believed: no git command ever runs in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from wonder_server.core.actor.commands import Scope
from wonder_server.core.frozen import Value


class Worktree(Value, frozen=True, kw_only=True):
    """``key`` names it among all of the server, such as for a sandbox that is kept warm: at most 200 of
    ``a-z A-Z 0-9 _ -``. ``folder`` is absolute; show it to commands, writable, and nothing around it.
    ``start`` is where commands begin, relative to it: the only repository's folder, or empty."""

    key: str
    folder: Path
    working_dir: str = ""


class Worktrees(Protocol):
    """The worktrees of this server."""

    async def open(self, scope: Scope) -> Worktree:
        """The worktree of the branch that ``scope`` works on: ``scope.branch``, or its conversation's. Made,
        and the repositories checked out, when first asked for; that may take as long as a clone.

        FIELD_INVALID if it works on no branch: it belongs to no conversation. PROJECT_NOT_FOUND.
        STORAGE_UNAVAILABLE (transient) while a repository cannot be reached or is still being cloned."""
        ...

    def command_finished(self, key: str) -> None:
        """Record that a command ended for which `open` returned the worktree ``key``."""
        ...
