"""The port ``Workspaces``: branches with their files. ``<key>/<repository>`` contains only the files of a
branch.

A change of a branch that also changes files is recorded first (in ``.state``). After a crash between the two
changes, the next access updates the files. Otherwise the old files would look like an edit that reverts the
change.
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
"""Maximum number of worktrees whose file states are cached, about 300 bytes a file."""

UNCOMMITTED_METADATA: Final = CommitMetadata(author="wonder", message="Uncommitted work")
"""Metadata of the commit of uncommitted files. It never changes: the commit id depends on it."""


class GitWorkspaces:
    """Implements the port ``Workspaces``. ``max_bytes`` limits the total size of the files of one
    worktree."""

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
        """Return the keys of all worktrees."""
        return await self._pool.run(self._keys)

    async def remove_leftovers(self) -> None:
        """Remove what a crash left half created or half removed. Call this at startup."""
        await self._pool.run(self._remove_leftovers)

    async def _run_exclusive(self, key: str, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread, one call at a time per worktree. It completes even if the caller is
        cancelled."""

        async def run() -> T:
            async with self._locks.setdefault(key, asyncio.Lock()):
                return await self._pool.run(partial(retry_on_conflict, work))

        return await asyncio.shield(asyncio.ensure_future(run()))

    # --- run in a thread --------------------------------------------------------------------------

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
            files.unlink()  # Remove a file or link that a command put here; it is not followed.
        (self._folder / ".new").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder / ".new") as draft:
            fresh = Path(draft) / "files"
            fresh.mkdir()
            if head:
                checkout.check_out(bare, head, fresh, self._max_bytes)
            fresh.rename(files)
        self._pending_path(work).unlink(missing_ok=True)

    def _snapshot(self, work: WorkBranch) -> tuple[BareRepository, str, str]:
        """Return the repository, the branch's newest commit, and the tree of the files: "" if they are
        equal."""
        bare, files = self._bare(work), self._files(work)
        head = bare.head(work.branch)
        if not files.is_dir() or files.is_symlink():
            return bare, head, ""
        self._apply_pending(work, bare, head)
        stat_cache = self._stat_cache_of(work)
        tree = checkout.snapshot(bare, files, head, stat_cache, self._max_bytes)
        committed = bare.commits([head])[0].tree if head else EMPTY_TREE
        return bare, head, "" if tree == committed else tree

    def _stat_cache_of(self, work: WorkBranch) -> StatCache:
        """Return the cache of a worktree. The caches of the least recently used worktrees are dropped."""
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
        """Return the commit of a tree of uncommitted files. The same files always give the same commit."""
        since = bare.commits([head])[0].created_ms // 1_000 if head else 1
        return bare.write_commit(tree, [head] if head else [], UNCOMMITTED_METADATA, max(since, 1))

    def _put(self, work: WorkBranch, path: str, content: bytes | None, expected: str | None) -> str:
        files = self._files(work)
        wanted = checkout.blob_id(content) if content is not None else ""
        if expected is not None and expected != wanted:
            current = safe_files.read(files, path)
            found = checkout.blob_id(current) if current is not None else ""
            if found not in (expected, wanted):  # A repeated write finds its own result.
                raise error(
                    Reason.ETAG_MISMATCH,
                    f"'{path}' has changed since it was read. Read it again and repeat the change.",
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
                "The conversation's work has changed. Read it again and repeat the request.",
                field="expected_head_commit",
                etag=shown,
            )
        if tree:
            parents = [head] if head else []
            new_head = shown if metadata is None else bare.write_commit(tree, parents, metadata)
            bare.set_branch(work.branch, new_head, head)
            head = new_head
        return queries.with_paths(bare, bare.commits([head]))[0] if head else None

    def _update(
        self, work: WorkBranch, source: str, metadata: CommitMetadata, resolutions: Sequence[Change]
    ) -> Merged:
        ours = self._commit(work, None, "")
        bare = self._bare(work)
        theirs = bare.resolve(source)
        if not theirs or (ours is not None and merging.is_ancestor(bare, theirs, ours.id)):
            merging.refuse_unneeded(resolutions)
            return Merged(commit=ours, tree=ours.tree if ours else "")
        tree, conflicts = merging.merge_with_resolutions(bare, ours.id if ours else "", theirs, resolutions)
        if conflicts:
            return Merged(tree=tree, conflicts=conflicts)
        merged = bare.write_commit(tree, [ours.id, theirs] if ours else [theirs], metadata)
        self._record_pending(work, ours.tree if ours else EMPTY_TREE, tree)
        try:
            bare.set_branch(work.branch, merged, ours.id if ours else "")
        except RefConflictError:
            self._pending_path(work).unlink(missing_ok=True)
            raise
        self._apply_pending(work, bare, merged)
        return Merged(commit=queries.with_paths(bare, bare.commits([merged]))[0], tree=tree)

    # --- pending updates of files -----------------------------------------------------------------

    def _record_pending(self, work: WorkBranch, old: str, new: str) -> None:
        """Record that the files must change from the tree ``old`` to the tree ``new``."""
        path = self._pending_path(work)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        with draft.open("w") as file:
            json.dump({"old": old, "new": new}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def _apply_pending(self, work: WorkBranch, bare: BareRepository, head: str) -> None:
        """Apply a recorded update of the files if the branch has moved to its tree, and delete the record."""
        try:
            pending = json.loads(self._pending_path(work).read_text())
        except (FileNotFoundError, ValueError):
            return
        if head and bare.commits([head])[0].tree == pending["new"] and self._files(work).is_dir():
            bare.create()
            checkout.apply_tree_diff(bare, self._files(work), pending["old"], pending["new"])
        self._pending_path(work).unlink(missing_ok=True)

    # --- removal ----------------------------------------------------------------------------------

    def _retire(self, work: WorkBranch, merged: str) -> bool:
        try:
            _, head, tree = self._snapshot(work)
        except WonderError:  # Files that cannot be read were written after the merge and are no part of it.
            return False
        if tree or head != merged:
            return False
        # Remove the files first: after a crash in between, the next access writes them again from the branch.
        self._remove_files(self._files(work))
        self._remove_branch(work)
        return True

    def _remove(self, key: str, works: Sequence[WorkBranch]) -> None:
        # Remove the branches first: after a crash in between, the folder still names the owner.
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
        # A rename removes the folder in one step, so a crash never leaves half of it.
        (self._folder / ".new").mkdir(exist_ok=True)
        trash = Path(tempfile.mkdtemp(dir=self._folder / ".new"))
        path.rename(trash / "gone")
        with contextlib.suppress(OSError):  # A running command may add files; the next start removes them.
            safe_files.remove(trash)

    def _remove_leftovers(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            safe_files.remove(self._folder / ".new")
