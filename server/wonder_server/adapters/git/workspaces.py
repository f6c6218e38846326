"""Branches with their files: ``<key>/<repository>`` holds files, and nothing else; all else is elsewhere.

A change of a branch that changes files too is written down first (``.state``), so that after a crash between
the two the files follow: nobody must think that somebody had undone the change.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from wonder_server.adapters.git.repositories import GitRepositories, retry_on_conflict
from wonder_server.adapters.git.storage import merging, queries
from wonder_server.adapters.git.storage.bare_repository import EMPTY_TREE, BareRepository, RefConflictError
from wonder_server.adapters.git.storage.command import ThreadPool
from wonder_server.adapters.git.worktree import checkout, safe_files
from wonder_server.adapters.git.worktree.checkout import StatCache
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.repositories import Change, Commit, CommitMetadata, Merged
from wonder_server.ports.workspaces import WorkBranch

T = TypeVar("T")

MAX_STAT_CACHES: Final = 32
"""Folders whose files' looks are kept in memory: some 300 bytes a file."""

UNCOMMITTED_METADATA: Final = CommitMetadata(author="wonder", message="Work that nobody has committed")


class GitWorkspaces:
    """Implements the port ``Workspaces``. ``most``: bytes that the files of one worktree may have."""

    def __init__(
        self,
        repositories: GitRepositories,
        pool: ThreadPool,
        folder: Path,
        max_bytes: int = checkout.DEFAULT_MAX_BYTES,
    ) -> None:
        self._max_bytes = max_bytes
        self._repositories = repositories
        self._pool = pool
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}
        self._stat_caches: dict[tuple[str, str], StatCache] = {}
        self._stat_cache_lock = threading.Lock()

    async def begin(self, work: WorkBranch | None, key: str, begin: str = "") -> Path:
        root = self._folder / key
        if work is None:
            await self._run_exclusive(key, partial(root.mkdir, parents=True, exist_ok=True))
        else:
            await self._run_exclusive(key, partial(self._begin, work, begin))
        return root

    async def head(self, work: WorkBranch) -> Commit | None:
        return await self._run_exclusive(work.key, partial(self._head, work))

    async def put(
        self, work: WorkBranch, path: str, content: bytes | None, expected: str | None = None
    ) -> str:
        return await self._run_exclusive(work.key, partial(self._put, work, path, content, expected))

    async def commit(
        self, work: WorkBranch, metadata: CommitMetadata | None, expected: str = ""
    ) -> Commit | None:
        return await self._run_exclusive(work.key, partial(self._commit, work, metadata, expected))

    async def update(
        self, work: WorkBranch, source: str, metadata: CommitMetadata, resolutions: Sequence[Change] = ()
    ) -> Merged:
        return await self._run_exclusive(work.key, partial(self._update, work, source, metadata, resolutions))

    async def retire(self, work: WorkBranch, merged: str) -> bool:
        return await self._run_exclusive(work.key, partial(self._retire, work, merged))

    async def remove(self, key: str, works: Sequence[WorkBranch]) -> None:
        await self._run_exclusive(key, partial(self._remove, key, works))

    async def keys(self) -> list[str]:
        """The worktrees that are there."""
        return await self._pool.run(self._keys)

    async def remove_leftovers(self) -> None:
        """At a start: clear away what a crash left half made or half removed."""
        await self._pool.run(self._remove_leftovers)

    async def _run_exclusive(self, key: str, act: Callable[[], T]) -> T:
        """In a thread, one at a time in one worktree, to its end whoever still waits."""

        async def alone() -> T:
            async with self._locks.setdefault(key, asyncio.Lock()):
                return await self._pool.run(partial(retry_on_conflict, act))

        return await asyncio.shield(asyncio.ensure_future(alone()))

    # --- in a thread ------------------------------------------------------------------------------

    def _keys(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(path.name for path in self._folder.iterdir() if not path.name.startswith("."))
        return []

    def _bare(self, work: WorkBranch) -> BareRepository:
        return self._repositories.of(work.name).bare

    def _files(self, work: WorkBranch) -> Path:
        return self._folder / work.key / work.folder

    def _pending_path(self, work: WorkBranch) -> Path:
        return self._folder / ".state" / f"{work.key}.{work.folder}.json"

    def _begin(self, work: WorkBranch, begin: str) -> None:
        bare = self._bare(work)
        bare.create()
        head = bare.head(work.branch)
        if not head and begin:
            bare.set_branch(work.branch, begin, "")
            head = begin
        files = self._files(work)
        if files.is_dir() and not files.is_symlink():
            return
        files.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            files.unlink()  # Whoever put a file or a link here cannot make us follow it.
        (self._folder / ".new").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder / ".new") as draft:
            fresh = Path(draft) / "files"
            fresh.mkdir()
            if head:
                checkout.check_out(bare, head, fresh, self._max_bytes)
            fresh.rename(files)
        self._pending_path(work).unlink(missing_ok=True)

    def _snapshot(self, work: WorkBranch) -> tuple[BareRepository, str, str]:
        """The repository, the branch's newest commit, and the tree of the files: empty if it is the same."""
        bare, files = self._bare(work), self._files(work)
        head = bare.head(work.branch)
        if not files.is_dir() or files.is_symlink():
            return bare, head, ""
        self._apply_pending(work, bare, head)
        stat_cache = self._stat_cache_of(work)
        tree = checkout.snapshot(bare, files, head, stat_cache, self._max_bytes)
        same = bare.commits([head])[0].tree if head else EMPTY_TREE
        return bare, head, "" if tree == same else tree

    def _stat_cache_of(self, work: WorkBranch) -> StatCache:
        """Kept for the folders that were looked at last; what is forgotten is read again."""
        place = (work.key, work.folder)
        with self._stat_cache_lock:
            found = self._stat_caches.pop(place, None) or StatCache()
            while len(self._stat_caches) >= MAX_STAT_CACHES:
                del self._stat_caches[next(iter(self._stat_caches))]
            self._stat_caches[place] = found
        return found

    def _head(self, work: WorkBranch) -> Commit | None:
        if not self._bare(work).exists():
            return None
        bare, head, tree = self._snapshot(work)
        if tree:
            head = self._uncommitted(bare, head, tree)
        return queries.with_paths(bare, bare.commits([head]))[0] if head else None

    def _uncommitted(self, bare: BareRepository, head: str, tree: str) -> str:
        """The commit of this tree that is always the same."""
        since = bare.commits([head])[0].created_ms // 1_000 if head else 1
        return bare.write_commit(tree, [head] if head else [], UNCOMMITTED_METADATA, max(since, 1))

    def _put(self, work: WorkBranch, path: str, content: bytes | None, expected: str | None) -> str:
        files = self._files(work)
        wanted = checkout.blob_id(content) if content is not None else ""
        if expected is not None and expected != wanted:
            there = safe_files.read(files, path)
            found = checkout.blob_id(there) if there is not None else ""
            if found not in (expected, wanted):  # It may be written again.
                raise error(
                    Reason.ETAG_MISMATCH,
                    f"'{path}' was changed since it was read; read it again and retry.",
                    field="etag",
                    etag=found or "none",
                )
        safe_files.write(files, path, content)
        return wanted

    def _commit(self, work: WorkBranch, metadata: CommitMetadata | None, expected: str) -> Commit | None:
        bare, head, tree = self._snapshot(work)
        shown = self._uncommitted(bare, head, tree) if tree else head
        if expected and expected != shown:
            raise error(
                Reason.ETAG_MISMATCH,
                "The conversation's work has changed since; look at it again.",
                field="expected_head_commit",
                etag=shown,
            )
        if tree:
            made = shown if metadata is None else bare.write_commit(tree, [head] if head else [], metadata)
            bare.set_branch(work.branch, made, head)
            head = made
        return queries.with_paths(bare, bare.commits([head]))[0] if head else None

    def _update(
        self, work: WorkBranch, source: str, metadata: CommitMetadata, resolutions: Sequence[Change]
    ) -> Merged:
        ours = self._commit(work, None, "")
        bare = self._bare(work)
        theirs = bare.resolve(source)
        if not theirs or (ours is not None and merging.is_ancestor(bare, theirs, ours.id)):
            return Merged(commit=ours, tree=ours.tree if ours else "")
        tree, conflicts = merging.merge_with_resolutions(bare, ours.id if ours else "", theirs, resolutions)
        if conflicts:
            return Merged(tree=tree, conflicts=conflicts)
        made = bare.write_commit(tree, [ours.id, theirs] if ours else [theirs], metadata)
        self._record_pending(work, ours.tree if ours else EMPTY_TREE, tree)
        try:
            bare.set_branch(work.branch, made, ours.id if ours else "")
        except RefConflictError:
            self._pending_path(work).unlink(missing_ok=True)
            raise
        self._apply_pending(work, bare, made)
        return Merged(commit=queries.with_paths(bare, bare.commits([made]))[0], tree=tree)

    # --- what was under way -----------------------------------------------------------------------

    def _record_pending(self, work: WorkBranch, old: str, new: str) -> None:
        """Write down that the files are to become those of another tree."""
        place = self._pending_path(work)
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_suffix(".new")
        with draft.open("w") as file:
            json.dump({"old": old, "new": new}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)

    def _apply_pending(self, work: WorkBranch, bare: BareRepository, head: str) -> None:
        """Let the files follow a branch that has moved, if that was written down and has happened."""
        try:
            noted = json.loads(self._pending_path(work).read_text())
        except (FileNotFoundError, ValueError):
            return
        if head and bare.commits([head])[0].tree == noted["new"] and self._files(work).is_dir():
            bare.create()
            checkout.apply_tree_diff(bare, self._files(work), noted["old"], noted["new"])
        self._pending_path(work).unlink(missing_ok=True)

    # --- what is no more --------------------------------------------------------------------------

    def _retire(self, work: WorkBranch, merged: str) -> bool:
        try:
            _, head, tree = self._snapshot(work)
        except WonderError:  # What was written meanwhile cannot be read whole: it is no part of the merge.
            return False
        if tree or head != merged:
            return False
        # The files first: after a crash between the two, they are there again as they were merged.
        self._remove_files(self._files(work))
        self._remove_branch(work)
        return True

    def _remove(self, key: str, works: Sequence[WorkBranch]) -> None:
        # The branches first: after a crash between the two, the folder tells whose they were.
        for work in works:
            self._remove_branch(work)
        self._remove_files(self._folder / key)

    def _remove_branch(self, work: WorkBranch) -> None:
        self._pending_path(work).unlink(missing_ok=True)
        self._bare(work).delete_branch(work.branch)
        with self._stat_cache_lock:
            self._stat_caches.pop((work.key, work.folder), None)

    def _remove_files(self, path: Path) -> None:
        if not path.exists() and not path.is_symlink():
            return
        # Out of the way with one step: a crash leaves no half of it.
        (self._folder / ".new").mkdir(exist_ok=True)
        gone = Path(tempfile.mkdtemp(dir=self._folder / ".new"))
        path.rename(gone / "gone")
        with contextlib.suppress(OSError):  # A command may put more there until it is ended: see `_tidy`.
            safe_files.remove(gone)

    def _remove_leftovers(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            safe_files.remove(self._folder / ".new")
