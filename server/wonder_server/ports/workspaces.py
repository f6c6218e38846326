"""Workspaces: branches of repositories, with their files, on which conversations work (features F2, F3,
F6).

Commits and branches are stored where only the server writes. Files are in a folder that agents write to. The
server reads and writes it file by file and never runs git in it, so git settings placed there have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.frozen import Value
from wonder_server.ports.repositories import Change, Commit, CommitMetadata, Merged


class Remote(Value, frozen=True, kw_only=True):
    """A repository of a project. ``name`` is the name of the server's copy (see ``Repositories``), ``url``
    its source, ``default_branch`` the project's setting, or empty. ``network`` is the project's network
    policy, ``project`` its id."""

    name: str
    url: str
    default_branch: str = ""
    network: NetworkPolicy = NetworkPolicy()
    project: str = ""


class WorkBranch(Value, frozen=True, kw_only=True):
    """The work on one ``branch`` of one repository. Its files, once needed, are in the folder ``folder`` of
    the worktree ``key``. ``name`` is the name of the server's copy of the repository."""

    key: str
    folder: str
    name: str
    branch: str


class Origins(Protocol):
    """Source repositories: a folder of this machine, or a URL."""

    async def check(self, url: str, network: NetworkPolicy) -> None:
        """Check that a folder of this machine is a repository: FIELD_INVALID otherwise.

        A remote repository is not contacted, since it may be temporarily unavailable. PERMISSION_DENIED if
        ``network`` does not allow the address in the URL.
        """
        ...

    async def permit(self, url: str) -> None:
        """Check that the server may use this repository. FIELD_INVALID for a folder outside of every root,
        and for an invalid location."""
        ...

    async def fetch(self, origin: Remote, *, refresh: bool = False) -> str:
        """Ensure that the server's copy exists, with the source's branches as ``origin/<branch>``, and return
        its default branch.

        ``refresh`` updates the branches. A copy is made in the background: STORAGE_UNAVAILABLE (transient)
        while that takes long, and if the source cannot be reached. FIELD_INVALID for an invalid source.
        """
        ...

    async def publish(
        self,
        origin: Remote,
        target: str,
        source: str,
        metadata: CommitMetadata,
        *,
        resolutions: Sequence[Change] = (),
        dry: bool = False,
    ) -> Merged:
        """Merge the commit ``source`` into the source repository's branch ``target``, there and in the
        copy.

        It is done when the source repository has accepted it. FIELD_INVALID if the branch does not exist;
        RESOURCE_IN_USE if the repository rejects the change.
        """
        ...


class WorkspaceAdmin(Protocol):
    """List and removal of worktrees."""

    async def keys(self) -> list[str]:
        """Return the keys of existing worktrees."""
        ...

    async def remove(self, key: str, works: Sequence[WorkBranch]) -> None:
        """Remove the worktree ``key`` with all its files, and the branches of ``works``, which belong to it,
        if they exist."""
        ...


class Workspaces(WorkspaceAdmin, Protocol):
    """Branches with their files."""

    async def begin(self, work: WorkBranch | None, key: str, begin: str = "") -> Path:
        """Ensure that the worktree ``key`` contains the files of ``work``, and return its folder. A new
        branch starts at the commit ``begin``."""
        ...

    async def head(self, work: WorkBranch) -> Commit | None:
        """Return the branch's newest commit; None if there is no such branch.

        If files have been changed since, return the commit that `commit` would make; it is the same for the
        same files.
        """
        ...

    async def put(
        self, work: WorkBranch, path: str, content: bytes | None, expected: str | None = None
    ) -> str:
        """Write or delete one file and return the hash of its content.

        ``expected`` is the required hash of the present content, empty for none: ETAG_MISMATCH otherwise.
        FIELD_INVALID if a file and a folder have the same name.
        """
        ...

    async def commit(
        self, work: WorkBranch, metadata: CommitMetadata | None, expected: str = ""
    ) -> Commit | None:
        """Commit the changed files and return the branch's newest commit.

        Without ``metadata`` the commit is the one that `head` returns. ``expected`` is the required id of
        `head`: ETAG_MISMATCH otherwise.
        """
        ...

    async def update(
        self, work: WorkBranch, source: str, metadata: CommitMetadata, resolutions: Sequence[Change] = ()
    ) -> Merged:
        """Commit the changed files, then merge the branch or commit ``source`` into the branch and its
        files.

        With conflicts only the commit is made. FIELD_INVALID for resolutions of other files.
        """
        ...

    async def retire(self, work: WorkBranch, merged: str) -> bool:
        """Remove the branch and the files of ``work`` if `head` is the commit ``merged`` (empty: none).
        Return True if removed."""
        ...
