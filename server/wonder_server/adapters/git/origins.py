"""Repositories elsewhere, and our copies of them.

A copy holds the origin's branches under ``origin/…`` beside those of our conversations. Nothing comes back to
the origin but merges, each pushed as one step that insists on what the origin's branch was before.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from wonder_server.adapters.git import merging, reading
from wonder_server.adapters.git.bare import Bare, Moved
from wonder_server.adapters.git.repositories import GitRepositories, again
from wonder_server.adapters.git.run import GitError, Pool
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.paths import check_repository_url
from wonder_server.logs import logger
from wonder_server.ports.repositories import Change, Merged, Signed
from wonder_server.ports.workspaces import Origin

_log = logger("git")

T = TypeVar("T")

COPY_S: Final = 1_800.0
"""For making a copy, or bringing it up to date."""

PUSH_S: Final = 120.0
PATIENCE_S: Final = 20.0
"""How long somebody waits for a copy before they hear that it takes its time."""

FRESH_S: Final = 2.0
"""A copy that was brought up to date so shortly ago is up to date, unless a merge depends on it."""

_FOLLOWING: Final = ("--receive-pack=git -c receive.denyCurrentBranch=updateInstead receive-pack",)
"""A folder in which somebody works follows the merge, if nothing there would be lost."""

_REFUSED: Final = re.compile(r"!\s.*\[(?:remote )?rejected\] \((.*)\)")
_TOLD: Final = re.compile(r"^ref: refs/heads/(\S+)\tHEAD$", re.MULTILINE)


class GitOrigins:
    """Implements the port ``Origins``. ``forbidden``: the server's own folder, nobody's repository."""

    def __init__(self, repositories: GitRepositories, pool: Pool, forbidden: Path) -> None:
        self._repositories = repositories
        self._pool = pool
        self._forbidden = forbidden.resolve()
        self._under_way: dict[str, asyncio.Task[str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._fresh: dict[str, tuple[float, str]] = {}

    async def look(self, url: str) -> None:
        origin = Origin(name="new", url=url)
        self._check(origin)
        if _is_local(origin):
            await self._pool.do(partial(self._look, origin))

    async def fetch(self, origin: Origin, *, afresh: bool = False) -> str:
        self._check(origin)
        known = self._fresh.get(origin.name)
        if known and not afresh and time.monotonic() - known[0] < FRESH_S:
            return origin.default_branch or known[1]
        task = self._under_way.get(origin.name)
        if task is None or afresh:
            task = asyncio.create_task(self._copied(origin))
            self._under_way[origin.name] = task
            task.add_done_callback(partial(self._ended, origin.name))
        try:
            async with asyncio.timeout(PATIENCE_S):
                told = await asyncio.shield(task)
        except TimeoutError:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                "The repository is still being copied; try again in a moment.",
                transient=True,
                retry_after_ms=5_000,
            ) from None
        return origin.default_branch or told

    async def publish(
        self,
        origin: Origin,
        target: str,
        source: str,
        signed: Signed,
        *,
        resolutions: Sequence[Change] = (),
        dry: bool = False,
    ) -> Merged:
        self._check(origin)
        bare = self._repositories.of(origin.name).bare
        merge = partial(self._merge, bare, origin, target, source, signed, resolutions, dry)
        # To its end, whoever still waits.
        return await asyncio.shield(asyncio.ensure_future(self._alone(origin.url, partial(again, merge))))

    async def close(self) -> None:
        """Stop copies that are under way; the next start begins them anew."""
        self._repositories.git.stop()
        for task in list(self._under_way.values()):
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    def _ended(self, name: str, task: asyncio.Task[str]) -> None:
        if self._under_way.get(name) is task:
            del self._under_way[name]
        if not task.cancelled():
            task.exception()  # Seen, even if nobody waits any more.

    async def _copied(self, origin: Origin) -> str:
        bare = self._repositories.of(origin.name).bare
        told = await self._alone(origin.url, partial(self._copy, bare, origin))
        self._fresh[origin.name] = (time.monotonic(), told)
        return told

    async def _alone(self, url: str, work: Callable[[], T]) -> T:
        """In a thread, one thing at a time with one origin."""
        async with self._locks.setdefault(url, asyncio.Lock()):
            return await self._pool.do(work)

    # --- in a thread ------------------------------------------------------------------------------

    def _check(self, origin: Origin) -> None:
        """Raises FIELD_INVALID for what can be no origin."""
        check_repository_url(origin.url)
        path = origin.url.removeprefix("file://")
        if _is_local(origin) and Path(path).resolve().is_relative_to(self._forbidden):
            raise error(
                Reason.FIELD_INVALID, "The server's own folder is no project's repository.", field="url"
            )

    def _look(self, origin: Origin) -> None:
        try:
            self._repositories.git.reach(
                self._forbidden, "ls-remote", "--heads", "--", origin.url, seconds=PATIENCE_S
            )
        except GitError as problem:
            why = _why(problem.text)
            raise error(
                Reason.FIELD_INVALID, f"'{origin.url}' cannot be used as a repository: {why}.", field="url"
            ) from None

    def _copy(self, bare: Bare, origin: Origin) -> str:
        bare.make()
        try:
            told = _TOLD.search(
                bare.git.reach(
                    bare.folder, "ls-remote", "--symref", "--", origin.url, "HEAD", seconds=PUSH_S
                ).out.decode("utf-8", "replace")
            )
            bare.git.reach(
                bare.folder, "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head",
                "--no-auto-gc", "--no-recurse-submodules", "--", origin.url,
                "+refs/heads/*:refs/heads/origin/*", "^refs/heads/wonder/*", seconds=COPY_S,
            )  # fmt: skip
        except (GitError, WonderError) as problem:
            raise _unreachable(origin, problem) from None
        return told[1] if told else "main"

    def _merge(
        self,
        bare: Bare,
        origin: Origin,
        target: str,
        source: str,
        signed: Signed,
        resolutions: Sequence[Change],
        dry: bool,
    ) -> Merged:
        self._copy(bare, origin)
        ours = bare.head(f"origin/{target}")
        if not ours and reading.has_branches(bare, "origin"):
            raise error(
                Reason.FIELD_INVALID, f"The repository has no branch '{target}'.", field="target_branch"
            )
        if ours and merging.is_behind(bare, source, ours):
            return Merged(commit=reading.with_paths(bare, bare.commits([ours]))[0])
        tree, conflicts = merging.merged(bare, ours, source, resolutions)
        if conflicts or dry:
            return Merged(tree=tree, conflicts=conflicts)
        made = bare.put_commit(tree, [ours, source] if ours else [source], signed)
        self._push(bare, origin, target, made, ours)
        try:
            bare.move(f"origin/{target}", made, ours)
        except Moved:
            pass  # Another copy came in between: it has what was pushed.
        return Merged(commit=reading.with_paths(bare, bare.commits([made]))[0], tree=tree)

    def _push(self, bare: Bare, origin: Origin, target: str, made: str, ours: str) -> None:
        """The one step that makes a merge count. `Moved` if somebody else was faster."""
        reference = f"refs/heads/{target}"
        try:
            bare.git.reach(
                bare.folder, "push", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no",
                f"--force-with-lease={reference}:{ours}",
                *(_FOLLOWING if _is_local(origin) else ()), "--", origin.url, f"{made}:{reference}",
                seconds=PUSH_S,
            )  # fmt: skip
        except GitError as problem:
            refused = _REFUSED.search(f"{problem.said}\n{problem.text}")
            if refused is None:
                raise _unreachable(origin, problem) from None
            if refused[1] in ("stale info", "fetch first", "non-fast-forward", "failed to update ref"):
                raise Moved from None
            raise error(
                Reason.RESOURCE_IN_USE,
                f"The repository does not take the merge into '{target}': {refused[1][:200]}.",
                id=target,
            ) from None


def _is_local(origin: Origin) -> bool:
    return origin.url.startswith(("/", "file://"))


def _unreachable(origin: Origin, problem: GitError | WonderError) -> WonderError:
    text = problem.text if isinstance(problem, GitError) else problem.fault.message
    _log.warning("repository cannot be reached", repository=origin.name, said=text[-500:])
    why = _why(text)
    return error(Reason.STORAGE_UNAVAILABLE, f"The repository cannot be reached: {why}.", transient=True)


def _why(text: str) -> str:
    """What people can do something about in what git said."""
    if "dubious ownership" in text:
        return "it belongs to another user of this machine; git wants it named in safe.directory"
    if "not appear to be a git repository" in text or "does not exist" in text or "not found" in text:
        return "there is no repository there"
    return "the server's log says what git said"
