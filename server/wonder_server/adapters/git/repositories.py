"""Repositories in a folder: ``<name>.git``, bare, each changed by one at a time."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from wonder_server.adapters.git import diffing, merging, reading
from wonder_server.adapters.git.bare import Bare, Moved
from wonder_server.adapters.git.gathering import Gathered
from wonder_server.adapters.git.run import Git, Pool
from wonder_server.adapters.git.writing import Write, content_id, write_all
from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import Change, Commit, Diff, File, Found, Merged, Signed

T = TypeVar("T")

TRIES: Final = 5
LOOSE: Final = 27
"""Objects in one of 256 folders from which on they are packed: about 7,000 altogether."""

PACKING_S: Final = 600.0
REMEMBERED: Final = "25.hours"


class GitRepository:
    """Implements the port ``Repository``."""

    def __init__(self, bare: Bare, pool: Pool) -> None:
        self.bare = bare
        self._pool = pool
        self.writing = asyncio.Lock()
        self._writes: Gathered[Write, Commit] = Gathered(self._written, lambda write: write.size)
        self._lookups: Gathered[str, tuple[Commit, str] | None] = Gathered(self._looked_up)

    # --- reading ----------------------------------------------------------------------------------

    async def commit(self, at: str) -> Commit | None:
        return await self.do(partial(_commit, self.bare, at))

    async def files(self, at: str, prefix: str = "", after: str = "", limit: int = 0) -> list[File]:
        return await self.do(partial(reading.files, self.bare, at, prefix, after, limit))

    async def read(self, at: str, path: str, max_bytes: int) -> File | None:
        return await self.do(partial(reading.read, self.bare, at, path, max_bytes))

    async def search(self, at: str, words: Sequence[str], prefix: str, limit: int) -> Found:
        return await self.do(partial(reading.search, self.bare, at, words, prefix, limit))

    async def history(self, at: str, paths: Sequence[str], skip: int, limit: int) -> list[Commit]:
        return await self.do(partial(reading.history, self.bare, at, paths, skip, limit))

    async def diff(self, base: str, at: str, paths: Sequence[str], max_bytes: int) -> Diff:
        return await self.do(partial(diffing.diff, self.bare, base, at, paths, max_bytes))

    # --- writing ----------------------------------------------------------------------------------

    async def write(
        self,
        branch: str,
        changes: Sequence[Change],
        signed: Signed,
        *,
        begin: str = "",
        expected: Mapping[str, str] | None = None,
    ) -> Commit:
        return await self._writes.ask(Write(branch, changes, signed, begin, expected or {}))

    async def merge(
        self,
        target: str,
        source: str,
        signed: Signed,
        *,
        resolutions: Sequence[Change] = (),
        dry: bool = False,
    ) -> Merged:
        return await self._change(partial(merge, self.bare, target, source, signed, resolutions, dry))

    async def done(self, key: str) -> tuple[Commit, str] | None:
        return await self._lookups.ask(key)

    def id_of(self, content: bytes) -> str:
        return content_id(content)

    async def drop(self, branch: str) -> None:
        await self._change(partial(self.bare.drop, branch))

    # --- pieces -----------------------------------------------------------------------------------

    async def do(self, work: Callable[[], T]) -> T:
        """In a thread."""
        return await self._pool.do(work)

    async def _written(self, writes: Sequence[Write]) -> Sequence[Commit | Exception]:
        """Carry out writes of one moment, branch by branch."""
        branches: dict[str, list[Write]] = {}
        for write in writes:
            branches.setdefault(write.branch, []).append(write)
        answers: dict[int, Commit | Exception] = {}
        for group in branches.values():
            said: Sequence[Commit | Exception]
            try:
                said = await self._change(partial(write_all, self.bare, group))
            except Exception as problem:
                said = [problem] * len(group)
            answers.update(zip(map(id, group), said, strict=True))
        return [answers[id(write)] for write in writes]

    async def _looked_up(self, keys: Sequence[str]) -> Sequence[tuple[Commit, str] | Exception | None]:
        return await self.do(partial(_done_all, self.bare, keys))

    async def _change(self, work: Callable[[], T]) -> T:
        """The same, one at a time. It comes to its end even if the caller goes away: the next one waits."""
        return await asyncio.shield(asyncio.ensure_future(self._alone(work)))

    async def _alone(self, work: Callable[[], T]) -> T:
        async with self.writing:
            return await self.do(partial(again, work))


class GitRepositories:
    """Implements the port ``Repositories``."""

    def __init__(self, git: Git, pool: Pool, folder: Path) -> None:
        self.git = git
        self._pool = pool
        self._folder = folder
        self._known: dict[str, GitRepository] = {}

    def of(self, name: str) -> GitRepository:
        found = self._known.get(name)
        if found is None:
            bare = Bare(self.git, self._folder / f"{name}.git")
            found = self._known[name] = GitRepository(bare, self._pool)
        return found

    async def remove(self, name: str) -> None:
        repository = self.of(name)
        async with repository.writing:
            await self._pool.do(repository.bare.remove)
        self._known.pop(name, None)

    async def names(self) -> list[str]:
        return await self._pool.do(self._names)

    async def tidy(self) -> None:
        """At a start: clear away what a crash left half made or half removed."""
        await self._pool.do(self._tidy)

    async def pack(self) -> None:
        """Pack what has become many small files; what nobody refers to for two weeks goes. Takes its time."""
        for name in await self.names():
            await self._pool.do(partial(_pack, self.of(name).bare))

    def _names(self) -> list[str]:
        return sorted(path.name.removesuffix(".git") for path in self._folder.glob("[!.]*.git"))

    def _tidy(self) -> None:
        for left in (*self._folder.glob(".new-*"), *self._folder.glob(".old-*")):
            shutil.rmtree(left, ignore_errors=True)
        for draft in self._folder.glob("*.new-branches"):
            draft.unlink(missing_ok=True)


# --- in a thread ----------------------------------------------------------------------------------


def again(work: Callable[[], T]) -> T:
    """A change, tried again while somebody else is faster."""
    for _ in range(TRIES):
        try:
            return work()
        except Moved:
            continue
    raise error(
        Reason.STORAGE_UNAVAILABLE, "The branch is being changed all the time; try again.", transient=True
    )


def _pack(bare: Bare) -> None:
    # One of 256 folders tells of all, as it does git.
    loose = bare.folder / "objects" / "17"
    if bare.exists() and loose.is_dir() and sum(1 for _ in loose.iterdir()) >= LOOSE:
        bare.git.run(bare.folder, "gc", "--quiet", "--prune=2.weeks.ago", seconds=PACKING_S)


def _commit(bare: Bare, at: str) -> Commit | None:
    if re.fullmatch(r"[0-9a-f]{40}", at):
        found = at if bare.has_commit(at) else ""
    else:
        found = bare.head(at)
    return reading.with_paths(bare, bare.commits([found]))[0] if found else None


def merge(
    bare: Bare, target: str, source: str, signed: Signed, resolutions: Sequence[Change], dry: bool
) -> Merged:
    """See the port. `Moved` if somebody was faster."""
    ours, theirs = bare.head(target), bare.resolve(source)
    if not theirs or (ours and merging.is_behind(bare, theirs, ours)):
        return Merged(commit=reading.with_paths(bare, bare.commits([ours]))[0] if ours else None)
    tree, conflicts = merging.merged(bare, ours, theirs, resolutions)
    if conflicts or dry:
        return Merged(tree=tree, conflicts=conflicts)
    made = bare.put_commit(tree, [ours, theirs] if ours else [theirs], signed)
    bare.move(target, made, ours)
    return Merged(commit=reading.with_paths(bare, bare.commits([made]))[0], tree=tree)


def _done_all(bare: Bare, keys: Sequence[str]) -> list[tuple[Commit, str] | Exception | None]:
    if not bare.exists():
        return [None] * len(keys)
    said = bare.git.run(
        bare.folder, "rev-list", "--branches", f"--since={REMEMBERED}", "--no-commit-header",
        "--format=%H %ce", *(f"--committer=<{key}[.]" for key in keys),
    )  # fmt: skip
    made: dict[str, tuple[str, str]] = {}
    for line in said.text.split("\n"):
        commit_id, _, committer = line.partition(" ")
        key, _, mark = committer.partition("@")[0].partition(".")
        made.setdefault(key, (commit_id, mark))
    found = {key: made[key] for key in keys if key in made}
    commits = reading.with_paths(bare, bare.commits([commit_id for commit_id, _ in found.values()]))
    by_id = {commit.id: commit for commit in commits}
    return [(by_id[found[key][0]], found[key][1]) if key in found else None for key in keys]
