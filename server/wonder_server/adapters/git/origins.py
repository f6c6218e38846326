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
from wonder_server.adapters.git.hosts import HostFolders, HostProblem, is_local
from wonder_server.adapters.git.local_origins import LocalOrigins
from wonder_server.adapters.git.references import BrokenReference
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

_REFUSED: Final = re.compile(r"!\s.*\[(?:remote )?rejected\] \((.*)\)")
_TOLD: Final = re.compile(r"^ref: refs/heads/(\S+)\tHEAD$", re.MULTILINE)


class GitOrigins:
    """Implements the port ``Origins``. ``forbidden`` is the server's data folder, ``roots`` the folders of
    the host below which repositories may lie. ``updates_checkouts``: a merge also updates the working folder
    in which its target is checked out."""

    def __init__(
        self,
        repositories: GitRepositories,
        pool: Pool,
        forbidden: Path,
        roots: Sequence[Path] = (),
        *,
        updates_checkouts: bool = False,
    ) -> None:
        self._repositories = repositories
        self._pool = pool
        self._hosts = HostFolders(roots, forbidden)
        self._local = LocalOrigins(self._hosts, updates_checkouts=updates_checkouts)
        self._under_way: dict[str, asyncio.Task[str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._fresh: dict[str, tuple[float, str]] = {}

    async def look(self, url: str) -> None:
        await self.permit(url)
        if is_local(url):
            await self._pool.do(partial(self._look, url))

    async def permit(self, url: str) -> None:
        check_repository_url(url)
        if is_local(url):
            await self._pool.do(partial(self._hosts.check, url))

    async def fetch(self, origin: Origin, *, afresh: bool = False) -> str:
        await self.permit(origin.url)
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
        await self.permit(origin.url)
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

    def _look(self, url: str) -> None:
        try:
            with self._hosts.open(url) as host:
                host.branches(), host.default_branch()
        except (HostProblem, BrokenReference) as problem:
            raise error(
                Reason.FIELD_INVALID, f"'{url}' cannot be used as a repository: {problem}.", field="url"
            ) from None

    def _copy(self, bare: Bare, origin: Origin) -> str:
        """Bring the copy up to date. Returns the branch that the origin's HEAD names, or ``main``."""
        bare.make()
        try:
            if is_local(origin.url):
                return self._local.copy(bare, origin.url, COPY_S) or "main"
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
        except (GitError, HostProblem, BrokenReference, WonderError) as problem:
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
        if is_local(origin.url):
            try:
                return self._local.hand(bare, origin.url, target, made, ours, PUSH_S)
            except (GitError, HostProblem, BrokenReference) as problem:
                raise _unreachable(origin, problem) from None
        reference = f"refs/heads/{target}"
        try:
            bare.git.reach(
                bare.folder, "push", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no",
                f"--force-with-lease={reference}:{ours}", "--", origin.url, f"{made}:{reference}",
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


def _unreachable(origin: Origin, problem: Exception) -> WonderError:
    if isinstance(problem, HostProblem | BrokenReference):
        return error(
            Reason.STORAGE_UNAVAILABLE,
            f"The repository cannot be used: {problem}.",
            transient=True,
        )
    if isinstance(problem, WonderError) and problem.fault.reason is Reason.FIELD_INVALID:
        return problem
    text = problem.fault.message if isinstance(problem, WonderError) else getattr(problem, "text", "")
    _log.warning("repository cannot be reached", repository=origin.name, said=text[-500:])
    why = _why(text)
    return error(Reason.STORAGE_UNAVAILABLE, f"The repository cannot be reached: {why}.", transient=True)


def _why(text: str) -> str:
    """What people can do something about in what git said."""
    if any(sign in text for sign in ("Permission denied", "insufficient permission", "Read-only file")):
        return "the server may not read or write there"
    if "not appear to be a git repository" in text or "does not exist" in text or "not found" in text:
        return "there is no repository there"
    return "the server's log says what git said"
