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

from wonder_server.adapters.git import checkouts, folders, merging, reading
from wonder_server.adapters.git.bare import EMPTY_TREE, Bare, Moved
from wonder_server.adapters.git.checkouts import Glances
from wonder_server.adapters.git.repositories import GitRepositories, again
from wonder_server.adapters.git.run import Pool
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.repositories import Change, Commit, Merged, Signed
from wonder_server.ports.workspaces import Work

T = TypeVar("T")

REMEMBERED: Final = 32
"""Folders whose files' looks are kept in memory: some 300 bytes a file."""

UNCOMMITTED: Final = Signed(author="wonder", message="Work that nobody has committed")


class GitWorkspaces:
    """Implements the port ``Workspaces``. ``most``: bytes that the files of one worktree may have."""

    def __init__(
        self, repositories: GitRepositories, pool: Pool, folder: Path, most: int = checkouts.MOST
    ) -> None:
        self._most = most
        self._repositories = repositories
        self._pool = pool
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}
        self._glances: dict[tuple[str, str], Glances] = {}
        self._glancing = threading.Lock()

    async def begin(self, work: Work | None, key: str, begin: str = "") -> Path:
        root = self._folder / key
        if work is None:
            await self._do(key, partial(root.mkdir, parents=True, exist_ok=True))
        else:
            await self._do(key, partial(self._begin, work, begin))
        return root

    async def now(self, work: Work) -> Commit | None:
        return await self._do(work.key, partial(self._now, work))

    async def put(self, work: Work, path: str, content: bytes | None, expected: str | None = None) -> str:
        return await self._do(work.key, partial(self._put, work, path, content, expected))

    async def commit(self, work: Work, signed: Signed | None, expected: str = "") -> Commit | None:
        return await self._do(work.key, partial(self._commit, work, signed, expected))

    async def update(
        self, work: Work, source: str, signed: Signed, resolutions: Sequence[Change] = ()
    ) -> Merged:
        return await self._do(work.key, partial(self._update, work, source, signed, resolutions))

    async def retire(self, work: Work, merged: str) -> bool:
        return await self._do(work.key, partial(self._retire, work, merged))

    async def remove(self, key: str, works: Sequence[Work]) -> None:
        await self._do(key, partial(self._remove, key, works))

    async def keys(self) -> list[str]:
        """The worktrees that are there."""
        return await self._pool.do(self._keys)

    async def tidy(self) -> None:
        """At a start: clear away what a crash left half made or half removed."""
        await self._pool.do(self._tidy)

    async def _do(self, key: str, act: Callable[[], T]) -> T:
        """In a thread, one at a time in one worktree, to its end whoever still waits."""

        async def alone() -> T:
            async with self._locks.setdefault(key, asyncio.Lock()):
                return await self._pool.do(partial(again, act))

        return await asyncio.shield(asyncio.ensure_future(alone()))

    # --- in a thread ------------------------------------------------------------------------------

    def _keys(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(path.name for path in self._folder.iterdir() if not path.name.startswith("."))
        return []

    def _bare(self, work: Work) -> Bare:
        return self._repositories.of(work.name).bare

    def _files(self, work: Work) -> Path:
        return self._folder / work.key / work.folder

    def _state(self, work: Work) -> Path:
        return self._folder / ".state" / f"{work.key}.{work.folder}.json"

    def _begin(self, work: Work, begin: str) -> None:
        bare = self._bare(work)
        bare.make()
        head = bare.head(work.branch)
        if not head and begin:
            bare.move(work.branch, begin, "")
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
                checkouts.check_out(bare, head, fresh, self._most)
            fresh.rename(files)
        self._state(work).unlink(missing_ok=True)

    def _snapshot(self, work: Work) -> tuple[Bare, str, str]:
        """The repository, the branch's newest commit, and the tree of the files: empty if it is the same."""
        bare, files = self._bare(work), self._files(work)
        head = bare.head(work.branch)
        if not files.is_dir() or files.is_symlink():
            return bare, head, ""
        self._follow(work, bare, head)
        glances = self._glances_at(work)
        tree = checkouts.snapshot(bare, files, head, glances, self._most)
        same = bare.commits([head])[0].tree if head else EMPTY_TREE
        return bare, head, "" if tree == same else tree

    def _glances_at(self, work: Work) -> Glances:
        """Kept for the folders that were looked at last; what is forgotten is read again."""
        place = (work.key, work.folder)
        with self._glancing:
            found = self._glances.pop(place, None) or Glances()
            while len(self._glances) >= REMEMBERED:
                del self._glances[next(iter(self._glances))]
            self._glances[place] = found
        return found

    def _now(self, work: Work) -> Commit | None:
        if not self._bare(work).exists():
            return None
        bare, head, tree = self._snapshot(work)
        if tree:
            head = self._uncommitted(bare, head, tree)
        return reading.with_paths(bare, bare.commits([head]))[0] if head else None

    def _uncommitted(self, bare: Bare, head: str, tree: str) -> str:
        """The commit of this tree that is always the same."""
        since = bare.commits([head])[0].created_ms // 1_000 if head else 1
        return bare.put_commit(tree, [head] if head else [], UNCOMMITTED, max(since, 1))

    def _put(self, work: Work, path: str, content: bytes | None, expected: str | None) -> str:
        files = self._files(work)
        wanted = checkouts.blob_id(content) if content is not None else ""
        if expected is not None and expected != wanted:
            there = folders.read(files, path)
            found = checkouts.blob_id(there) if there is not None else ""
            if found not in (expected, wanted):  # It may be written again.
                raise error(
                    Reason.ETAG_MISMATCH,
                    f"'{path}' was changed since it was read; read it again and retry.",
                    field="etag",
                    etag=found or "none",
                )
        folders.write(files, path, content)
        return wanted

    def _commit(self, work: Work, signed: Signed | None, expected: str) -> Commit | None:
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
            made = shown if signed is None else bare.put_commit(tree, [head] if head else [], signed)
            bare.move(work.branch, made, head)
            head = made
        return reading.with_paths(bare, bare.commits([head]))[0] if head else None

    def _update(self, work: Work, source: str, signed: Signed, resolutions: Sequence[Change]) -> Merged:
        ours = self._commit(work, None, "")
        bare = self._bare(work)
        theirs = bare.resolve(source)
        if not theirs or (ours is not None and merging.is_behind(bare, theirs, ours.id)):
            return Merged(commit=ours, tree=ours.tree if ours else "")
        tree, conflicts = merging.merged(bare, ours.id if ours else "", theirs, resolutions)
        if conflicts:
            return Merged(tree=tree, conflicts=conflicts)
        made = bare.put_commit(tree, [ours.id, theirs] if ours else [theirs], signed)
        self._note(work, ours.tree if ours else EMPTY_TREE, tree)
        try:
            bare.move(work.branch, made, ours.id if ours else "")
        except Moved:
            self._state(work).unlink(missing_ok=True)
            raise
        self._follow(work, bare, made)
        return Merged(commit=reading.with_paths(bare, bare.commits([made]))[0], tree=tree)

    # --- what was under way -----------------------------------------------------------------------

    def _note(self, work: Work, old: str, new: str) -> None:
        """Write down that the files are to become those of another tree."""
        place = self._state(work)
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_suffix(".new")
        with draft.open("w") as file:
            json.dump({"old": old, "new": new}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)

    def _follow(self, work: Work, bare: Bare, head: str) -> None:
        """Let the files follow a branch that has moved, if that was written down and has happened."""
        try:
            noted = json.loads(self._state(work).read_text())
        except (FileNotFoundError, ValueError):
            return
        if head and bare.commits([head])[0].tree == noted["new"] and self._files(work).is_dir():
            bare.make()
            checkouts.apply(bare, self._files(work), noted["old"], noted["new"])
        self._state(work).unlink(missing_ok=True)

    # --- what is no more --------------------------------------------------------------------------

    def _retire(self, work: Work, merged: str) -> bool:
        try:
            _, head, tree = self._snapshot(work)
        except WonderError:  # What was written meanwhile cannot be read whole: it is no part of the merge.
            return False
        if tree or head != merged:
            return False
        # The files first: after a crash between the two, they are there again as they were merged.
        self._clear(self._files(work))
        self._end(work)
        return True

    def _remove(self, key: str, works: Sequence[Work]) -> None:
        # The branches first: after a crash between the two, the folder tells whose they were.
        for work in works:
            self._end(work)
        self._clear(self._folder / key)

    def _end(self, work: Work) -> None:
        self._state(work).unlink(missing_ok=True)
        self._bare(work).drop(work.branch)
        with self._glancing:
            self._glances.pop((work.key, work.folder), None)

    def _clear(self, path: Path) -> None:
        if not path.exists() and not path.is_symlink():
            return
        # Out of the way with one step: a crash leaves no half of it.
        (self._folder / ".new").mkdir(exist_ok=True)
        gone = Path(tempfile.mkdtemp(dir=self._folder / ".new"))
        path.rename(gone / "gone")
        with contextlib.suppress(OSError):  # A command may put more there until it is ended: see `_tidy`.
            folders.remove(gone)

    def _tidy(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            folders.remove(self._folder / ".new")
