"""The ports ``Repository`` and ``Repositories`` over bare git repositories ``<name>.git`` in one folder."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from wonder_server.adapters.git.storage import diffing, merging, queries
from wonder_server.adapters.git.storage.bare_repository import BareRepository, RefConflictError
from wonder_server.adapters.git.storage.command import Git, RunOptions, ThreadPool
from wonder_server.adapters.git.storage.request_batcher import RequestBatcher
from wonder_server.adapters.git.storage.write_batches import WriteRequest, content_id, write_all
from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import (
    Change,
    Commit,
    CommitMetadata,
    Diff,
    File,
    KeyedCommit,
    Merged,
    SearchResult,
)

T = TypeVar("T")

MAX_ATTEMPTS: Final = 5
"""Attempts for a change whose branch other changes move meanwhile."""
MAX_PACKS: Final = 50
"""Number of packs from which a repository is packed. Each fetch with new objects leaves one."""

PACK_THRESHOLD: Final = 27
"""Loose objects in one of git's 256 folders that trigger packing: about 7,000 in total."""

PACK_TIMEOUT_S: Final = 600.0
REQUEST_MAX_AGE: Final = "25.hours"
"""Maximum age of the commits in which `GitRepository.find_by_key` searches."""


class GitRepository:
    """Implements the port ``Repository``. Writes run one at a time."""

    def __init__(self, bare: BareRepository, pool: ThreadPool) -> None:
        self.bare = bare
        self._pool = pool
        self.write_lock = asyncio.Lock()
        self._writes: RequestBatcher[WriteRequest, Commit] = RequestBatcher(
            self._write_groups, lambda write: write.size
        )
        self._lookups: RequestBatcher[str, tuple[Commit, str] | None] = RequestBatcher(self._find_by_keys)

    # --- reading ----------------------------------------------------------------------------------

    async def commit(self, at: str) -> Commit | None:
        return await self.run_in_thread(partial(_commit, self.bare, at))

    async def files(self, at: str, prefix: str = "", after: str = "", limit: int = 0) -> list[File]:
        return await self.run_in_thread(partial(queries.files, self.bare, at, prefix, after, limit))

    async def read(self, at: str, path: str, max_bytes: int) -> File | None:
        return await self.run_in_thread(partial(queries.read, self.bare, at, path, max_bytes))

    async def search(self, at: str, words: Sequence[str], prefix: str, limit: int) -> SearchResult:
        return await self.run_in_thread(partial(queries.search, self.bare, at, words, prefix, limit))

    async def history(
        self, at: str, paths: Sequence[str], skip: int, limit: int, *, current_only: bool = False
    ) -> list[Commit]:
        work = partial(queries.history, self.bare, at, paths, skip, limit, current_only=current_only)
        return await self.run_in_thread(work)

    async def diff(self, base: str, at: str, paths: Sequence[str], max_bytes: int) -> Diff:
        return await self.run_in_thread(partial(diffing.diff, self.bare, base, at, paths, max_bytes))

    # --- writing ----------------------------------------------------------------------------------

    async def write(
        self,
        branch: str,
        changes: Sequence[Change],
        metadata: CommitMetadata,
        *,
        begin: str = "",
        expected: Mapping[str, str] | None = None,
    ) -> Commit:
        return await self._writes.submit(WriteRequest(branch, changes, metadata, begin, expected or {}))

    async def merge(
        self,
        target: str,
        source: str,
        metadata: CommitMetadata,
        *,
        resolutions: Sequence[Change] = (),
        dry: bool = False,
    ) -> Merged:
        return await self._run_write(partial(merge, self.bare, target, source, metadata, resolutions, dry))

    async def find_by_key(self, key: str) -> tuple[Commit, str] | None:
        return await self._lookups.submit(key)

    async def keyed_commits(self, limit: int) -> list[KeyedCommit]:
        return await self.run_in_thread(partial(_keyed_commits, self.bare, limit))

    async def delete_branch(self, branch: str) -> None:
        await self._run_write(partial(self.bare.delete_branch, branch))

    # --- helpers ----------------------------------------------------------------------------------

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread of the pool."""
        return await self._pool.run(work)

    async def _write_groups(self, writes: Sequence[WriteRequest]) -> Sequence[Commit | Exception]:
        """Execute concurrent writes, grouped by branch."""
        branches: dict[str, list[WriteRequest]] = {}
        for write in writes:
            branches.setdefault(write.branch, []).append(write)
        answers: dict[int, Commit | Exception] = {}
        for group in branches.values():
            results: Sequence[Commit | Exception]
            try:
                results = await self._run_write(partial(write_all, self.bare, group))
            except Exception as problem:
                results = [problem] * len(group)
            answers.update(zip(map(id, group), results, strict=True))
        return [answers[id(write)] for write in writes]

    async def _find_by_keys(self, keys: Sequence[str]) -> Sequence[tuple[Commit, str] | Exception | None]:
        return await self.run_in_thread(partial(_find_by_keys, self.bare, keys))

    async def _run_write(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread, one call at a time. It completes even if the caller is cancelled."""
        return await asyncio.shield(asyncio.ensure_future(self._run_exclusive(work)))

    async def _run_exclusive(self, work: Callable[[], T]) -> T:
        async with self.write_lock:
            return await self.run_in_thread(partial(retry_on_conflict, work))


class GitRepositories:
    """Implements the port ``Repositories``."""

    def __init__(self, git: Git, pool: ThreadPool, folder: Path) -> None:
        self.git = git
        self._pool = pool
        self._folder = folder
        self._known: dict[str, GitRepository] = {}
        self._removing = asyncio.Lock()
        """Held while files are removed, and while none may be."""

    def of(self, name: str) -> GitRepository:
        found = self._known.get(name)
        if found is None:
            bare = BareRepository(self.git, self._folder / f"{name}.git")
            found = self._known[name] = GitRepository(bare, self._pool)
        return found

    def id_of(self, content: bytes) -> str:
        return content_id(content)

    async def remove(self, name: str) -> None:
        repository = self.of(name)
        async with self._removing, repository.write_lock:
            await self._pool.run(repository.bare.remove)
        self._known.pop(name, None)

    async def names(self) -> list[str]:
        return await self._pool.run(self._names)

    async def remove_leftovers(self) -> None:
        """Remove the drafts that a crash left. Call this at startup."""
        await self._pool.run(self._remove_leftovers)

    async def pack(self) -> None:
        """Pack repositories with many loose objects or packs, and delete objects unreferenced for two weeks.

        Slow.
        """
        for name in await self.names():
            async with self._removing:
                await self._pool.run(partial(_pack, self.of(name).bare))

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Implements the port ``Holds``: removals and packing wait for the end of the block."""
        async with self._removing:
            yield

    def _names(self) -> list[str]:
        return sorted(path.name.removesuffix(".git") for path in self._folder.glob("[!.]*.git"))

    def _remove_leftovers(self) -> None:
        for leftover in (*self._folder.glob(".new-*"), *self._folder.glob(".old-*")):
            shutil.rmtree(leftover, ignore_errors=True)
        for draft in self._folder.glob("*.new-branches"):
            draft.unlink(missing_ok=True)


# --- run in a thread ------------------------------------------------------------------------------


def retry_on_conflict(work: Callable[[], T]) -> T:
    """Return the result of ``work``, repeating it after a `RefConflictError`. STORAGE_UNAVAILABLE if all
    fail."""
    for _ in range(MAX_ATTEMPTS):
        try:
            return work()
        except RefConflictError:
            continue
    raise error(
        Reason.STORAGE_UNAVAILABLE,
        f"Other changes moved the branch during all {MAX_ATTEMPTS} attempts. Try again.",
        transient=True,
    )


def _pack(bare: BareRepository) -> None:
    # One of the 256 folders represents all, as in git's own estimate.
    loose = bare.folder / "objects" / "17"
    has_many = loose.is_dir() and sum(1 for _ in loose.iterdir()) >= PACK_THRESHOLD
    packs = sum(1 for _ in bare.folder.glob("objects/pack/*.pack"))
    if bare.exists() and (has_many or packs >= MAX_PACKS):
        options = RunOptions(seconds=PACK_TIMEOUT_S)
        bare.git.run(bare.folder, "gc", "--quiet", "--prune=2.weeks.ago", options=options)


def _commit(bare: BareRepository, at: str) -> Commit | None:
    if re.fullmatch(r"[0-9a-f]{40}", at):
        found = at if bare.has_commit(at) else ""
    else:
        found = bare.head(at)
    return queries.with_paths(bare, bare.commits([found]))[0] if found else None


def merge(
    bare: BareRepository,
    target: str,
    source: str,
    metadata: CommitMetadata,
    resolutions: Sequence[Change],
    dry: bool,
) -> Merged:
    """Merge ``source`` into the branch ``target``; see the port. Raises `RefConflictError`."""
    ours, theirs = bare.head(target), bare.resolve(source)
    if not theirs or (ours and merging.is_ancestor(bare, theirs, ours)):
        merging.refuse_unneeded(resolutions)
        return Merged(commit=queries.with_paths(bare, bare.commits([ours]))[0] if ours else None)
    tree, conflicts = merging.merge_with_resolutions(bare, ours, theirs, resolutions)
    if conflicts or dry:
        return Merged(tree=tree, conflicts=conflicts)
    merged = bare.write_commit(tree, [ours, theirs] if ours else [theirs], metadata)
    bare.set_branch(target, merged, ours)
    return Merged(commit=queries.with_paths(bare, bare.commits([merged]))[0], tree=tree)


def _find_by_keys(bare: BareRepository, keys: Sequence[str]) -> list[tuple[Commit, str] | Exception | None]:
    if not bare.exists():
        return [None] * len(keys)
    by_key: dict[str, tuple[str, str]] = {}
    for key, commit_id, fingerprint in _commits_by(bare, *(f"--committer=<{each}[.]" for each in keys)):
        by_key.setdefault(key, (commit_id, fingerprint))
    found = {key: by_key[key] for key in keys if key in by_key}
    commits = queries.with_paths(bare, bare.commits([commit_id for commit_id, _ in found.values()]))
    by_id = {commit.id: commit for commit in commits}
    return [(by_id[found[key][0]], found[key][1]) if key in found else None for key in keys]


def _keyed_commits(bare: BareRepository, limit: int) -> list[KeyedCommit]:
    if not bare.exists():
        return []
    found = _commits_by(bare, f"--max-count={limit}", r"--committer=<[0-9a-f]\{8,\}[.]")
    commits = queries.with_paths(bare, bare.commits([commit_id for _, commit_id, _ in found]))
    return [
        KeyedCommit(key=key, fingerprint=fingerprint, commit=commit)
        for (key, _, fingerprint), commit in zip(found, commits, strict=True)
    ]


def _commits_by(bare: BareRepository, *selection: str) -> list[tuple[str, str, str]]:
    """Return the recent commits that ``selection`` finds, newest first, as key, id and fingerprint."""
    listed = bare.git.run(
        bare.folder, "rev-list", "--branches", f"--since={REQUEST_MAX_AGE}", "--no-commit-header",
        "--format=%H %ce", *selection,
    )  # fmt: skip
    found: list[tuple[str, str, str]] = []
    for line in listed.text.splitlines():
        commit_id, _, committer = line.partition(" ")
        key, _, fingerprint = committer.partition("@")[0].partition(".")
        found.append((key, commit_id, fingerprint))
    return found
