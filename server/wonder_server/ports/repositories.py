"""Files with a history: commits, branches, merges (features F1, F2, F3, F6).

A repository is opened by a name; it need not be there yet: what is not there is empty. Whatever says ``at``
takes the name of a branch or the id of a commit or tree. Paths and branches come checked (`core.paths`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from wonder_server.core.frozen import Value


class Commit(Value, frozen=True, kw_only=True):
    """One commit. ``paths`` are those that it changed against its first parent, the first 1,000 of them."""

    id: str
    tree: str
    parents: tuple[str, ...] = ()
    author: str = ""
    message: str = ""
    created_ms: int = 0
    paths: tuple[str, ...] = ()


class File(Value, frozen=True, kw_only=True):
    """One file. ``id`` is the hash of its content. ``mode`` is git's: ``100644``, ``100755`` or, of a link,
    ``120000``. ``content`` is only there where it was asked for. ``is_damaged``: the content cannot be read,
    and ``size`` is 0."""

    path: str
    id: str
    size: int = 0
    mode: str = "100644"
    content: bytes = b""
    is_damaged: bool = False


class Match(Value, frozen=True, kw_only=True):
    """A place that a search found. ``line`` counts from 1; 0: the path itself."""

    path: str
    line: int
    text: str


class Conflict(Value, frozen=True, kw_only=True):
    """A file that two branches changed in different ways. ``kind`` is ``content``, ``both_added``,
    ``deleted`` or ``binary``. Texts are empty where there is none; ``truncated``: they were left out as too
    long."""

    path: str
    kind: str
    base: str = ""
    ours: str = ""
    theirs: str = ""
    truncated: bool = False


class Change(Value, frozen=True, kw_only=True):
    """What becomes of one path: new content, or with None its end."""

    path: str
    content: bytes | None
    mode: str = "100644"


class CommitMetadata(Value, frozen=True, kw_only=True):
    """Who commits and why. ``key`` marks the request, so that it can be recognised when it comes again;
    ``mark`` tells apart requests with one key. Both are hexadecimal, or empty."""

    author: str
    message: str
    key: str = ""
    fingerprint: str = ""


class Merged(Value, frozen=True, kw_only=True):
    """How a merge ended: at ``commit``, unless there are ``conflicts``; then nothing was changed. ``tree`` is
    what the merge gives, or would; empty where there was nothing to merge."""

    commit: Commit | None = None
    tree: str = ""
    conflicts: tuple[Conflict, ...] = ()

    @property
    def is_up_to_date(self) -> bool:
        """Whether there was nothing to merge."""
        return not self.tree and not self.conflicts


class FileDiff(Value, frozen=True, kw_only=True):
    """What changed in a file: ``added``, ``modified``, ``deleted`` or ``renamed``. ``patch`` is empty for
    what is no text."""

    path: str
    change: str
    old_path: str = ""
    additions: int = 0
    deletions: int = 0
    patch: str = ""


class SearchResult(Value, frozen=True, kw_only=True):
    """What a search found, by path and line; ``truncated`` if there was more."""

    matches: tuple[Match, ...] = ()
    truncated: bool = False


class Diff(Value, frozen=True, kw_only=True):
    """Differences by path from the commit or tree ``base``; ``truncated`` if patches were left out."""

    base: str = ""
    files: tuple[FileDiff, ...] = ()
    truncated: bool = False


class Reader(Protocol):
    """What can be read of a repository. STORAGE_UNAVAILABLE where it cannot be read."""

    async def commit(self, at: str) -> Commit | None:
        """The commit, or a branch's newest; None if there is no such thing."""
        ...

    async def files(self, at: str, prefix: str = "", after: str = "", limit: int = 0) -> list[File]:
        """Files by path, after ``after``, at most ``limit`` (0: all) whose paths begin with ``prefix``."""
        ...

    async def read(self, at: str, path: str, max_bytes: int) -> File | None:
        """One file with its content; None if there is none. PAYLOAD_TOO_LARGE if it is longer."""
        ...

    async def search(self, at: str, words: Sequence[str], prefix: str, limit: int) -> SearchResult:
        """Lines, and paths, that contain all of ``words``, whatever their case."""
        ...

    async def history(self, at: str, paths: Sequence[str], skip: int, limit: int) -> list[Commit]:
        """Commits from the newest, those that changed one of ``paths`` if there are any."""
        ...

    async def diff(self, base: str, at: str, paths: Sequence[str], max_bytes: int) -> Diff:
        """What is different at ``at`` from ``base``; if both are commits, from where they parted."""
        ...


class Writer(Protocol):
    """How a repository is changed: each change is one step, done or not done whatever happens."""

    async def write(
        self,
        branch: str,
        changes: Sequence[Change],
        metadata: CommitMetadata,
        *,
        begin: str = "",
        expected: Mapping[str, str] | None = None,
    ) -> Commit:
        """One commit on ``branch``; a new branch begins where ``begin`` is. ``expected`` maps paths to the
        hash their content must have, empty for what must not be there: ETAG_MISMATCH otherwise.
        FIELD_INVALID where a file is in the way of a folder, or a branch in that of another. Without ``key``,
        what changes nothing makes no commit, and answers the newest."""
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
        """Bring what is new on ``source`` to the branch ``target``. Where there is nothing new the answer is
        the target's newest commit. ``resolutions`` say what files in conflict become; they count if they
        name all of them, FIELD_INVALID if they name another. ``dry``: only look."""
        ...

    async def find_by_key(self, key: str) -> tuple[Commit, str] | None:
        """The commit that a request with this key made within the last 25 hours, and the mark it had."""
        ...

    def id_of(self, content: bytes) -> str:
        """Return the id that a file with this content has."""
        ...

    async def delete_branch(self, branch: str) -> None:
        """Remove a branch; what is not there is no error."""
        ...


class Repository(Reader, Writer, Protocol):
    """One repository."""


class Repositories(Protocol):
    """The repositories of one kind, each under a name of ``a-z 0-9 A-Z _ - .``."""

    def of(self, name: str) -> Repository:
        """The repository of this name; it is made when first written to."""
        ...

    async def remove(self, name: str) -> None:
        """Remove it with all that is in it; what is not there is no error."""
        ...

    async def names(self) -> list[str]:
        """Those that are there."""
        ...
