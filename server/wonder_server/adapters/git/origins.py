"""Repositories elsewhere, and our copies of them.

A copy holds the origin's branches under ``origin/…`` beside those of our conversations. Nothing comes back to
the origin but merges, each pushed as one step that insists on what the origin's branch was before.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from wonder_server.adapters.egress.dialing import check_host
from wonder_server.adapters.egress.proxy import Egress, Lease
from wonder_server.adapters.git import merging, reading
from wonder_server.adapters.git.bare import Bare, Moved
from wonder_server.adapters.git.hosts import HostFolders, is_local
from wonder_server.adapters.git.local_origins import LocalOrigins
from wonder_server.adapters.git.references import BrokenReference, HostProblem
from wonder_server.adapters.git.repositories import GitRepositories, again
from wonder_server.adapters.git.run import GitError, Pool
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.paths import check_repository_url, repository_host
from wonder_server.logs import logger
from wonder_server.ports.repositories import Change, Merged, Signed
from wonder_server.ports.workspaces import Origin

_log = logger("git")

T = TypeVar("T")

COPY_S: Final = 1_800.0
"""For making a copy, or bringing it up to date."""

IDLE_S: Final = 30.0
"""Seconds without a byte after which a connection to a git server ends. A server that prepares an answer
sends a keep-alive packet every 5 seconds (``uploadpack.keepAlive``)."""

SHARE: Final = 2
"""Copies and merges of one project at a time. Others of the project wait without a thread."""

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
    in which its target is checked out. Whatever goes to another machine goes through ``egress``, in the
    threads of ``far`` (default ``pool``), so that a slow git server does not delay folders of the host."""

    def __init__(
        self,
        repositories: GitRepositories,
        pool: Pool,
        forbidden: Path,
        egress: Egress,
        roots: Sequence[Path] = (),
        *,
        updates_checkouts: bool = False,
        far: Pool | None = None,
    ) -> None:
        self._repositories = repositories
        self._pool = pool
        self._far = far or pool
        self._shares: dict[str, asyncio.Semaphore] = {}
        self._egress = egress
        self._hosts = HostFolders(roots, forbidden)
        self._local = LocalOrigins(self._hosts, updates_checkouts=updates_checkouts)
        self._under_way: dict[str, asyncio.Task[str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._fresh: dict[str, tuple[float, str]] = {}

    async def look(self, url: str, network: NetworkPolicy) -> None:
        await self.permit(url)
        if is_local(url):
            await self._pool.do(partial(self._look, url))
        elif (place := repository_host(url)) is not None:
            check_host(*place, network)

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

        async def merged() -> Merged:
            async with self._lease(origin) as lease:
                merge = partial(self._merge, bare, origin, lease, target, source, signed, resolutions, dry)
                return await self._alone(origin, partial(again, merge))

        # To its end, whoever still waits.
        return await asyncio.shield(asyncio.ensure_future(merged()))

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
        async with self._lease(origin) as lease:
            told = await self._alone(origin, partial(self._copy, bare, origin, lease))
        self._fresh[origin.name] = (time.monotonic(), told)
        return told

    @asynccontextmanager
    async def _lease(self, origin: Origin) -> AsyncIterator[Lease | None]:
        """The way out for git commands on this origin; None for a folder of this machine."""
        if is_local(origin.url):
            yield None
            return
        # By ssh and git's own protocol nobody goes through an HTTP proxy of the operator.
        chained = origin.url.startswith(("http://", "https://"))
        who = f"repository {origin.name}"
        with await self._egress.lease(origin.network, who, chained=chained, idle_s=IDLE_S) as lease:
            yield lease

    async def _alone(self, origin: Origin, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread: one call at a time for one origin, `SHARE` for one project."""
        pool = self._pool if is_local(origin.url) else self._far
        share = self._shares.setdefault(origin.project, asyncio.Semaphore(SHARE))
        async with self._locks.setdefault(origin.url, asyncio.Lock()), share:
            return await pool.do(work)

    # --- in a thread ------------------------------------------------------------------------------

    def _look(self, url: str) -> None:
        try:
            with self._hosts.open(url) as host:
                host.branches(), host.default_branch()
        except (HostProblem, BrokenReference) as problem:
            raise error(
                Reason.FIELD_INVALID, f"'{url}' cannot be used as a repository: {problem}.", field="url"
            ) from None

    def _copy(self, bare: Bare, origin: Origin, lease: Lease | None) -> str:
        """Bring the copy up to date. Returns the branch that the origin's HEAD names, or ``main``."""
        bare.make()
        try:
            if is_local(origin.url):
                return self._local.copy(bare, origin.url, COPY_S) or "main"
            told = _TOLD.search(
                bare.git.reach(
                    bare.folder,
                    "ls-remote",
                    "--symref",
                    "--",
                    origin.url,
                    "HEAD",
                    seconds=PUSH_S,
                    lease=lease,
                ).out.decode("utf-8", "replace")
            )
            bare.git.reach(
                bare.folder, "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head",
                "--no-auto-gc", "--no-recurse-submodules", "--", origin.url,
                "+refs/heads/*:refs/heads/origin/*", "^refs/heads/wonder/*", seconds=COPY_S,
                lease=lease,
            )  # fmt: skip
        except (GitError, HostProblem, BrokenReference, WonderError) as problem:
            raise _refused(lease) or _unreachable(origin, problem) from None
        return told[1] if told else "main"

    def _merge(
        self,
        bare: Bare,
        origin: Origin,
        lease: Lease | None,
        target: str,
        source: str,
        signed: Signed,
        resolutions: Sequence[Change],
        dry: bool,
    ) -> Merged:
        self._copy(bare, origin, lease)
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
        self._push(bare, origin, lease, target, made, ours)
        try:
            bare.move(f"origin/{target}", made, ours)
        except Moved:
            pass  # Another copy came in between: it has what was pushed.
        return Merged(commit=reading.with_paths(bare, bare.commits([made]))[0], tree=tree)

    def _push(
        self, bare: Bare, origin: Origin, lease: Lease | None, target: str, made: str, ours: str
    ) -> None:
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
                seconds=PUSH_S, lease=lease,
            )  # fmt: skip
        except GitError as problem:
            refused = _REFUSED.search(f"{problem.said}\n{problem.text}")
            if refused is None:
                raise _refused(lease) or _unreachable(origin, problem) from None
            if refused[1] in ("stale info", "fetch first", "non-fast-forward", "failed to update ref"):
                raise Moved from None
            raise error(
                Reason.RESOURCE_IN_USE,
                f"The repository does not take the merge into '{target}': {refused[1][:200]}.",
                id=target,
            ) from None


def _refused(lease: Lease | None) -> WonderError | None:
    """Why the egress policy refused a connection of the command, if it did."""
    problem = lease.problem if lease is not None else None
    return problem if problem is not None and problem.fault.reason is Reason.PERMISSION_DENIED else None


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
    _log.warning("repository_unreachable", repository=origin.name, said=text[-500:])
    why = _why(text)
    return error(Reason.STORAGE_UNAVAILABLE, f"The repository cannot be reached: {why}.", transient=True)


def _why(text: str) -> str:
    """What people can do something about in what git said."""
    if any(sign in text for sign in ("Permission denied", "insufficient permission", "Read-only file")):
        return "the server may not read or write there"
    if "redirect" in text:
        return "it redirects to another address; give the project that address"
    if "not appear to be a git repository" in text or "does not exist" in text or "not found" in text:
        return "there is no repository there"
    return "the server's log says what git said"
