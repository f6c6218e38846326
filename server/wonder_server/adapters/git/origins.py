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
from wonder_server.adapters.git.hosts.host_folders import HostFolders, is_local
from wonder_server.adapters.git.hosts.local_origins import LocalOrigins
from wonder_server.adapters.git.repositories import GitRepositories, retry_on_conflict
from wonder_server.adapters.git.storage import merging, queries
from wonder_server.adapters.git.storage.bare_repository import BareRepository, RefConflictError
from wonder_server.adapters.git.storage.command import GitError, ThreadPool
from wonder_server.adapters.git.storage.references import BrokenReferenceError, HostRepositoryError
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.paths import check_repository_url, repository_host
from wonder_server.logs import logger
from wonder_server.ports.repositories import Change, CommitMetadata, Merged
from wonder_server.ports.workspaces import Remote

_log = logger("git")

T = TypeVar("T")

COPY_TIMEOUT_S: Final = 1_800.0
"""For making a copy, or bringing it up to date."""

IDLE_TIMEOUT_S: Final = 30.0
"""Seconds without a byte after which a connection to a git server ends. A server that prepares an answer
sends a keep-alive packet every 5 seconds (``uploadpack.keepAlive``)."""

MAX_PER_PROJECT: Final = 2
"""Copies and merges of one project at a time. Others of the project wait without a thread."""

PUSH_TIMEOUT_S: Final = 120.0
FETCH_WAIT_S: Final = 20.0
"""How long somebody waits for a copy before they hear that it takes its time."""

COPY_MAX_AGE_S: Final = 2.0
"""A copy that was brought up to date so shortly ago is up to date, unless a merge depends on it."""

_PUSH_REJECTED: Final = re.compile(r"!\s.*\[(?:remote )?rejected\] \((.*)\)")
_DEFAULT_BRANCH: Final = re.compile(r"^ref: refs/heads/(\S+)\tHEAD$", re.MULTILINE)


class GitOrigins:
    """Implements the port ``Origins``. ``forbidden`` is the server's data folder, ``roots`` the folders of
    the host below which repositories may lie. ``updates_checkouts``: a merge also updates the working folder
    in which its target is checked out. Whatever goes to another machine goes through ``egress``, in the
    threads of ``far`` (default ``pool``), so that a slow git server does not delay folders of the host."""

    def __init__(
        self,
        repositories: GitRepositories,
        pool: ThreadPool,
        forbidden: Path,
        egress: Egress,
        roots: Sequence[Path] = (),
        *,
        updates_checkouts: bool = False,
        remote_pool: ThreadPool | None = None,
    ) -> None:
        self._repositories = repositories
        self._pool = pool
        self._remote_pool = remote_pool or pool
        self._project_slots: dict[str, asyncio.Semaphore] = {}
        self._egress = egress
        self._hosts = HostFolders(roots, forbidden)
        self._local = LocalOrigins(self._hosts, updates_checkouts=updates_checkouts)
        self._copy_tasks: dict[str, asyncio.Task[str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._recent_copies: dict[str, tuple[float, str]] = {}

    async def check(self, url: str, network: NetworkPolicy) -> None:
        await self.permit(url)
        if is_local(url):
            await self._pool.run(partial(self._check_local, url))
        elif (place := repository_host(url)) is not None:
            check_host(*place, network)

    async def permit(self, url: str) -> None:
        check_repository_url(url)
        if is_local(url):
            await self._pool.run(partial(self._hosts.check, url))

    async def fetch(self, origin: Remote, *, refresh: bool = False) -> str:
        await self.permit(origin.url)
        known = self._recent_copies.get(origin.name)
        if known and not refresh and time.monotonic() - known[0] < COPY_MAX_AGE_S:
            return origin.default_branch or known[1]
        task = self._copy_tasks.get(origin.name)
        if task is None or refresh:
            task = asyncio.create_task(self._run_copy(origin))
            self._copy_tasks[origin.name] = task
            task.add_done_callback(partial(self._on_copy_done, origin.name))
        try:
            async with asyncio.timeout(FETCH_WAIT_S):
                default_branch = await asyncio.shield(task)
        except TimeoutError:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                "The repository is still being copied; try again in a moment.",
                transient=True,
                retry_after_ms=5_000,
            ) from None
        return origin.default_branch or default_branch

    async def publish(
        self,
        origin: Remote,
        target: str,
        source: str,
        metadata: CommitMetadata,
        *,
        resolutions: Sequence[Change] = (),
        dry: bool = False,
    ) -> Merged:
        await self.permit(origin.url)
        bare = self._repositories.of(origin.name).bare

        async def merged() -> Merged:
            async with self._lease(origin) as lease:
                merge = partial(self._merge, bare, origin, lease, target, source, metadata, resolutions, dry)
                return await self._run_exclusive(origin, partial(retry_on_conflict, merge))

        # To its end, whoever still waits.
        return await asyncio.shield(asyncio.ensure_future(merged()))

    async def close(self) -> None:
        """Stop copies that are under way; the next start begins them anew."""
        self._repositories.git.stop()
        for task in list(self._copy_tasks.values()):
            task.cancel()
        await asyncio.gather(*self._copy_tasks.values(), return_exceptions=True)

    def _on_copy_done(self, name: str, task: asyncio.Task[str]) -> None:
        if self._copy_tasks.get(name) is task:
            del self._copy_tasks[name]
        if not task.cancelled():
            task.exception()  # Seen, even if nobody waits any more.

    async def _run_copy(self, origin: Remote) -> str:
        bare = self._repositories.of(origin.name).bare
        async with self._lease(origin) as lease:
            default_branch = await self._run_exclusive(origin, partial(self._copy, bare, origin, lease))
        self._recent_copies[origin.name] = (time.monotonic(), default_branch)
        return default_branch

    @asynccontextmanager
    async def _lease(self, origin: Remote) -> AsyncIterator[Lease | None]:
        """The way out for git commands on this origin; None for a folder of this machine."""
        if is_local(origin.url):
            yield None
            return
        # By ssh and git's own protocol nobody goes through an HTTP proxy of the operator.
        chained = origin.url.startswith(("http://", "https://"))
        who = f"repository {origin.name}"
        with await self._egress.lease(origin.network, who, chained=chained, idle_s=IDLE_TIMEOUT_S) as lease:
            yield lease

    async def _run_exclusive(self, origin: Remote, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread: one call at a time for one origin, `SHARE` for one project."""
        pool = self._pool if is_local(origin.url) else self._remote_pool
        share = self._project_slots.setdefault(origin.project, asyncio.Semaphore(MAX_PER_PROJECT))
        async with self._locks.setdefault(origin.url, asyncio.Lock()), share:
            return await pool.run(work)

    # --- in a thread ------------------------------------------------------------------------------

    def _check_local(self, url: str) -> None:
        try:
            with self._hosts.open(url) as host:
                host.branches(), host.default_branch()
        except (HostRepositoryError, BrokenReferenceError) as problem:
            raise error(
                Reason.FIELD_INVALID, f"'{url}' cannot be used as a repository: {problem}.", field="url"
            ) from None

    def _copy(self, bare: BareRepository, origin: Remote, lease: Lease | None) -> str:
        """Bring the copy up to date. Returns the branch that the origin's HEAD names, or ``main``."""
        bare.create()
        try:
            if is_local(origin.url):
                return self._local.copy(bare, origin.url, COPY_TIMEOUT_S) or "main"
            default_branch = _DEFAULT_BRANCH.search(
                bare.git.run_remote(
                    bare.folder,
                    "ls-remote",
                    "--symref",
                    "--",
                    origin.url,
                    "HEAD",
                    seconds=PUSH_TIMEOUT_S,
                    lease=lease,
                ).out.decode("utf-8", "replace")
            )
            bare.git.run_remote(
                bare.folder, "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head",
                "--no-auto-gc", "--no-recurse-submodules", "--", origin.url,
                "+refs/heads/*:refs/heads/origin/*", "^refs/heads/wonder/*", seconds=COPY_TIMEOUT_S,
                lease=lease,
            )  # fmt: skip
        except (GitError, HostRepositoryError, BrokenReferenceError, WonderError) as problem:
            raise _egress_refusal(lease) or _unreachable(origin, problem) from None
        return default_branch[1] if default_branch else "main"

    def _merge(
        self,
        bare: BareRepository,
        origin: Remote,
        lease: Lease | None,
        target: str,
        source: str,
        metadata: CommitMetadata,
        resolutions: Sequence[Change],
        dry: bool,
    ) -> Merged:
        self._copy(bare, origin, lease)
        ours = bare.head(f"origin/{target}")
        if not ours and queries.has_branches(bare, "origin"):
            raise error(
                Reason.FIELD_INVALID, f"The repository has no branch '{target}'.", field="target_branch"
            )
        if ours and merging.is_ancestor(bare, source, ours):
            return Merged(commit=queries.with_paths(bare, bare.commits([ours]))[0])
        tree, conflicts = merging.merge_with_resolutions(bare, ours, source, resolutions)
        if conflicts or dry:
            return Merged(tree=tree, conflicts=conflicts)
        made = bare.write_commit(tree, [ours, source] if ours else [source], metadata)
        self._push(bare, origin, lease, target, made, ours)
        try:
            bare.set_branch(f"origin/{target}", made, ours)
        except RefConflictError:
            pass  # Another copy came in between: it has what was pushed.
        return Merged(commit=queries.with_paths(bare, bare.commits([made]))[0], tree=tree)

    def _push(
        self, bare: BareRepository, origin: Remote, lease: Lease | None, target: str, made: str, ours: str
    ) -> None:
        """The one step that makes a merge count. `Moved` if somebody else was faster."""
        if is_local(origin.url):
            try:
                return self._local.push(bare, origin.url, target, made, ours, PUSH_TIMEOUT_S)
            except (GitError, HostRepositoryError, BrokenReferenceError) as problem:
                raise _unreachable(origin, problem) from None
        reference = f"refs/heads/{target}"
        try:
            bare.git.run_remote(
                bare.folder, "push", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no",
                f"--force-with-lease={reference}:{ours}", "--", origin.url, f"{made}:{reference}",
                seconds=PUSH_TIMEOUT_S, lease=lease,
            )  # fmt: skip
        except GitError as problem:
            refused = _PUSH_REJECTED.search(f"{problem.output}\n{problem.complaint}")
            if refused is None:
                raise _egress_refusal(lease) or _unreachable(origin, problem) from None
            if refused[1] in ("stale info", "fetch first", "non-fast-forward", "failed to update ref"):
                raise RefConflictError from None
            raise error(
                Reason.RESOURCE_IN_USE,
                f"The repository does not take the merge into '{target}': {refused[1][:200]}.",
                id=target,
            ) from None


def _egress_refusal(lease: Lease | None) -> WonderError | None:
    """Why the egress policy refused a connection of the command, if it did."""
    problem = lease.problem if lease is not None else None
    return problem if problem is not None and problem.fault.reason is Reason.PERMISSION_DENIED else None


def _unreachable(origin: Remote, problem: Exception) -> WonderError:
    if isinstance(problem, HostRepositoryError | BrokenReferenceError):
        return error(
            Reason.STORAGE_UNAVAILABLE,
            f"The repository cannot be used: {problem}.",
            transient=True,
        )
    if isinstance(problem, WonderError) and problem.fault.reason is Reason.FIELD_INVALID:
        return problem
    text = problem.fault.message if isinstance(problem, WonderError) else getattr(problem, "complaint", "")
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
