"""Where conversations work on code: a branch of a repository and its files (features F2, F3, F6).

Commits and branches are kept where only the server writes. Files lie in a folder that agents write to, which
is read and written file by file: git never runs in it, so that nothing planted there counts for anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.frozen import Value
from wonder_server.ports.repositories import Change, Commit, CommitMetadata, Merged


class Remote(Value, frozen=True, kw_only=True):
    """A repository of a project: ``name`` is that of our copy of it (see ``Repositories``), ``url`` where it
    comes from, ``default_branch`` what the project says, or empty. ``network``: what the project may
    reach. ``project``: the id of the project."""

    name: str
    url: str
    default_branch: str = ""
    network: NetworkPolicy = NetworkPolicy()
    project: str = ""


class WorkBranch(Value, frozen=True, kw_only=True):
    """The work on one ``branch`` of one repository. Its files are in the folder ``folder`` of the worktree
    ``key``, if they have been needed yet. ``name`` is that of our copy of the repository."""

    key: str
    folder: str
    name: str
    branch: str


class Origins(Protocol):
    """Repositories elsewhere: a folder of this machine, or a URL."""

    async def check(self, url: str, network: NetworkPolicy) -> None:
        """See that a repository is there, if it is a folder of this machine: FIELD_INVALID otherwise. What is
        farther away may be away for a while, and is not asked; PERMISSION_DENIED if ``network`` does not
        allow the address that the URL spells."""
        ...

    async def permit(self, url: str) -> None:
        """Check that the server may use this repository. FIELD_INVALID for a folder below no root, and for
        anything that is no place of a repository."""
        ...

    async def fetch(self, origin: Remote, *, refresh: bool = False) -> str:
        """See that our copy is there, with the origin's branches as ``origin/<branch>``; ``afresh``: as they
        are now. Its default branch. A copy is made in the background: STORAGE_UNAVAILABLE (transient) while
        that takes long, and where the origin cannot be reached. FIELD_INVALID for what can be no origin."""
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
        """Merge the commit ``source`` into the origin's branch ``target``, there and in our copy: done when
        the origin has taken it. FIELD_INVALID if it has no such branch; RESOURCE_IN_USE if it refuses."""
        ...


class WorkspaceAdmin(Protocol):
    """What there is, and its end."""

    async def keys(self) -> list[str]:
        """The worktrees that are there."""
        ...

    async def remove(self, key: str, works: Sequence[WorkBranch]) -> None:
        """Remove the worktree ``key`` with all its files, and the branches of ``works``, which are in it.
        What is not there is no error."""
        ...


class Workspaces(WorkspaceAdmin, Protocol):
    """Branches with their files."""

    async def begin(self, work: WorkBranch | None, key: str, begin: str = "") -> Path:
        """See that the worktree ``key`` is there, and in it the files of ``work``; a new branch begins at the
        commit ``begin``. The worktree's folder."""
        ...

    async def head(self, work: WorkBranch) -> Commit | None:
        """The branch's newest commit; or, if files have been changed since, the one that committing them
        would make, always the same for the same files. None if there is no such branch."""
        ...

    async def put(
        self, work: WorkBranch, path: str, content: bytes | None, expected: str | None = None
    ) -> str:
        """Write or remove one file; the hash of its content. ``expected``: the hash that it must have, empty
        for none: ETAG_MISMATCH otherwise. FIELD_INVALID where something is in its way."""
        ...

    async def commit(
        self, work: WorkBranch, metadata: CommitMetadata | None, expected: str = ""
    ) -> Commit | None:
        """Commit what has been changed, without ``signed`` as the one that `now` shows. The branch's newest
        commit. ``expected``: what `now` must say: ETAG_MISMATCH otherwise."""
        ...

    async def update(
        self, work: WorkBranch, source: str, metadata: CommitMetadata, resolutions: Sequence[Change] = ()
    ) -> Merged:
        """Commit what has been changed, then merge the branch or commit ``source`` into the branch and its
        files. With conflicts only the first happens. FIELD_INVALID for resolutions of other files."""
        ...

    async def retire(self, work: WorkBranch, merged: str) -> bool:
        """Remove the branch and the files of ``work``, if `now` says no more than the commit ``merged``
        (empty: that there is none); otherwise nothing is removed. Whether it was."""
        ...
