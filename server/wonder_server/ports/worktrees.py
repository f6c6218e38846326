"""Worktrees: folders in which conversations work on the files of their project's repositories (features F3,
F5).

A worktree belongs to one branch of one project. Everyone who works on that branch shares it: a conversation,
the workflows that it starts, and the agents that those call. It is a plain folder with one subfolder for each
repository of the project, named as in the project. It contains no ``.git``, and the server never runs a git
command in it, so files that agents write there cannot affect git.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from wonder_server.core.actor.commands import Scope
from wonder_server.core.frozen import Value


class Worktree(Value, frozen=True, kw_only=True):
    """``key`` identifies the worktree in the server, such as for a sandbox: at most 200 of ``a-z A-Z 0-9 _
    -``. ``folder`` is absolute; commands see it, writable, and nothing around it. ``working_dir`` is where
    commands start, relative to it: the only repository's folder, or empty."""

    key: str
    folder: Path
    working_dir: str = ""


class Worktrees(Protocol):
    """The worktrees of this server."""

    async def open(self, scope: Scope) -> Worktree:
        """Return the worktree of the branch that ``scope`` works on: ``scope.branch``, or its conversation's
        branch.

        The first call creates it and checks the repositories out, which may take as long as a clone.
        FIELD_INVALID if the scope has no branch, since it belongs to no conversation. PROJECT_NOT_FOUND.
        STORAGE_UNAVAILABLE (transient) while a repository cannot be reached or is being cloned.
        """
        ...

    def command_finished(self, key: str) -> None:
        """Record that a command ended for which `open` returned the worktree ``key``."""
        ...
