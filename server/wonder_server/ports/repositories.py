"""Files with a history: commits, branches, merges (features F1, F2, F3, F6).

A repository is opened by name. One that does not exist reads as empty. Parameter ``at`` is the name of a
branch or the id of a commit or tree. The caller validates paths and branches (`core.paths`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from wonder_server.core.frozen import Value


class Commit(Value, frozen=True, kw_only=True):
    """One commit. ``paths`` are the paths changed against its first parent, at most 1,000."""

    id: str
    tree: str
    parents: tuple[str, ...] = ()
    author: str = ""
    message: str = ""
    created_ms: int = 0
    paths: tuple[str, ...] = ()


class File(Value, frozen=True, kw_only=True):
    """One file. ``id`` is the hash of its content. ``mode`` is git's: ``100644``, ``100755`` or ``120000``
    for a link. ``content`` is set only on request. ``is_damaged``: the content cannot be read, and ``size``
    is 0."""

    path: str
    id: str
    size: int = 0
    mode: str = "100644"
    content: bytes = b""
    is_damaged: bool = False


class Match(Value, frozen=True, kw_only=True):
    """One match of a search. ``line`` counts from 1; 0 is the path itself."""

    path: str
    line: int
    text: str


class Conflict(Value, frozen=True, kw_only=True):
    """A file that two branches changed differently. ``kind`` is ``content``, ``both_added``, ``deleted`` or
    ``binary``. A missing text is empty; ``truncated``: the texts were left out because they are too long."""

    path: str
    kind: str
    base: str = ""
    ours: str = ""
    theirs: str = ""
    truncated: bool = False


class Change(Value, frozen=True, kw_only=True):
    """The change of one path: its new content, or None to delete it."""

    path: str
    content: bytes | None
    mode: str = "100644"


class CommitMetadata(Value, frozen=True, kw_only=True):
    """Author and message of a commit. ``key`` identifies the request, so that a repetition is recognised;
    ``fingerprint`` distinguishes requests with the same key. Both are hexadecimal, or empty."""

    author: str
    message: str
    key: str = ""
    fingerprint: str = ""


class KeyedCommit(Value, frozen=True, kw_only=True):
    """A commit with the key and the fingerprint of its request, as in `CommitMetadata`."""

    key: str
    fingerprint: str
    commit: Commit


class Merged(Value, frozen=True, kw_only=True):
    """The result of a merge: ``commit``, or ``conflicts`` if nothing was changed. ``tree`` is the merged
    content; empty if there was nothing to merge."""

    commit: Commit | None = None
    tree: str = ""
    conflicts: tuple[Conflict, ...] = ()

    @property
    def is_up_to_date(self) -> bool:
        """True if there was nothing to merge."""
        return not self.tree and not self.conflicts


class FileDiff(Value, frozen=True, kw_only=True):
    """The difference of one file: ``added``, ``modified``, ``deleted`` or ``renamed``. ``patch`` is empty for
    a binary file."""

    path: str
    change: str
    old_path: str = ""
    additions: int = 0
    deletions: int = 0
    patch: str = ""


class SearchResult(Value, frozen=True, kw_only=True):
    """Matches by path and line; ``truncated`` if there were more."""

    matches: tuple[Match, ...] = ()
    truncated: bool = False


class Diff(Value, frozen=True, kw_only=True):
    """Differences by path from the commit or tree ``base``; ``truncated`` if patches were left out."""

    base: str = ""
    files: tuple[FileDiff, ...] = ()
    truncated: bool = False


class Reader(Protocol):
    """Read access to a repository. Raises STORAGE_UNAVAILABLE if the repository cannot be read."""

    async def commit(self, at: str) -> Commit | None:
        """Return the commit, or the newest commit of a branch; None if it does not exist."""
        ...

    async def files(self, at: str, prefix: str = "", after: str = "", limit: int = 0) -> list[File]:
        """Return files by path, after ``after``, whose paths start with ``prefix``; at most ``limit`` (0:
        all)."""
        ...

    async def read(self, at: str, path: str, max_bytes: int) -> File | None:
        """Return one file with its content, or None. Raises PAYLOAD_TOO_LARGE if it is larger than
        ``max_bytes``."""
        ...

    async def search(self, at: str, words: Sequence[str], prefix: str, limit: int) -> SearchResult:
        """Return lines and paths that contain all of ``words``, ignoring case."""
        ...

    async def history(
        self, at: str, paths: Sequence[str], skip: int, limit: int, *, current_only: bool = False
    ) -> list[Commit]:
        """Return commits, newest first; with ``paths`` only those that changed one of them. With
        ``current_only``, omit the changes of the side that a merge discarded."""
        ...

    async def diff(self, base: str, at: str, paths: Sequence[str], max_bytes: int) -> Diff:
        """Return the differences of ``at`` from ``base``; for two commits, from their merge base."""
        ...


class Writer(Protocol):
    """Write access to a repository. Each change is atomic."""

    async def write(
        self,
        branch: str,
        changes: Sequence[Change],
        metadata: CommitMetadata,
        *,
        begin: str = "",
        expected: Mapping[str, str] | None = None,
    ) -> Commit:
        """Write one commit on ``branch`` and return it. A new branch starts at ``begin``.

        ``expected`` maps paths to the required hash of their content, empty for a path that must not exist;
        ETAG_MISMATCH otherwise. FIELD_INVALID if a file and a folder, or two branches, have conflicting
        names. Without ``key``, an empty change makes no commit and returns the newest.
        """
        ...

    async def merge(
        self,
        target: str,
        source: str,
        metadata: CommitMetadata,
        *,
        resolutions: Sequence[Change] = (),
        dry: bool = False,
    ) -> Merged:
        """Merge ``source`` into the branch ``target``. If there is nothing to merge, the result has the
        target's newest commit.

        ``resolutions`` are the contents of conflicting files. They apply if they cover all conflicts;
        FIELD_INVALID if they name another file. ``dry`` changes nothing.
        """
        ...

    async def find_by_key(self, key: str) -> tuple[Commit, str] | None:
        """Return the commit of a request with this key from the last 25 hours, and its fingerprint; None if
        there is none."""
        ...

    async def keyed_commits(self, limit: int) -> list[KeyedCommit]:
        """Return the newest commits of requests from the last 25 hours, at most ``limit``."""
        ...

    async def delete_branch(self, branch: str) -> None:
        """Delete a branch if it exists."""
        ...


class Repository(Reader, Writer, Protocol):
    """One repository."""


class Repositories(Protocol):
    """The repositories of one kind, each with a name of ``a-z 0-9 A-Z _ - .``."""

    def of(self, name: str) -> Repository:
        """Return the repository of this name. It is created at the first write."""
        ...

    def id_of(self, content: bytes) -> str:
        """Return the id of a file with this content."""
        ...

    async def remove(self, name: str) -> None:
        """Delete a repository with its content, if it exists."""
        ...

    async def names(self) -> list[str]:
        """Return the names of existing repositories."""
        ...
