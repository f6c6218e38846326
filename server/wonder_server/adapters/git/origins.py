"""The port ``Origins``: repositories elsewhere (*origins*), and the server's copies of them.

A copy has the origin's branches under ``origin/…`` beside those of conversations. The server writes only
merges to an origin. It pushes each in one step that requires the origin's branch to be at the expected
commit.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from wonder_server.adapters.egress.dialing import check_host
from wonder_server.adapters.egress.proxy import Egress, Lease
from wonder_server.adapters.git.hosts.host_folders import HostAccess, HostFolders, is_local
from wonder_server.adapters.git.hosts.local_origins import LocalOrigins
from wonder_server.adapters.git.repositories import GitRepositories, retry_on_conflict
from wonder_server.adapters.git.storage import merging, queries
from wonder_server.adapters.git.storage.bare_repository import BareRepository, RefConflictError
from wonder_server.adapters.git.storage.command import FILE_BLOCK_BYTES, GitError, ThreadPool
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
"""Timeout for creating or updating a copy, in seconds."""

IDLE_TIMEOUT_S: Final = 30.0
"""Seconds without a byte after which a connection to a git server ends. A git server that prepares an answer
sends a keep-alive packet every 5 seconds (``uploadpack.keepAlive``)."""

SLOW_TIMEOUT_S: Final = 300.0
"""Seconds in which a connection to a git server must move 4 KiB. A server that sends a byte a second would
otherwise occupy a thread for half an hour, the timeout of a copy."""

DEFAULT_FETCH_BYTES: Final = 8 << 30
"""Maximum bytes that one fetch writes, unless the operator sets another limit."""

MAX_PER_PROJECT: Final = 2
"""Maximum number of concurrent copies and merges of one project. Further ones wait without a thread."""

PUSH_TIMEOUT_S: Final = 120.0
FETCH_WAIT_S: Final = 20.0
"""Seconds after which a caller that waits for a copy gets a transient error. The copy continues."""

COPY_MAX_AGE_S: Final = 2.0
"""Seconds for which an updated copy counts as up to date, except for merges."""

_PUSH_REJECTED: Final = re.compile(r"!\s.*\[(?:remote )?rejected\] \((.*)\)")
_DEFAULT_BRANCH: Final = re.compile(r"^ref: refs/heads/(\S+)\tHEAD$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Connection:
    """An origin, its copy, and the egress lease for git commands on it (None for a folder of the host)."""

    origin: Remote
    bare: BareRepository
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class _RecentCopy:
    """The last update of a copy: the origin's address and default branch, and the monotonic time."""

    url: str
    at_s: float
    default_branch: str


@dataclass(frozen=True, slots=True)
class _MergeRequest:
    """The arguments of `GitOrigins.publish`."""

    target: str
    source: str
    metadata: CommitMetadata
    resolutions: Sequence[Change]
    dry: bool


class GitOrigins:
    """Implements the port ``Origins``.

    Connections to other machines go through ``egress`` and use the threads of ``remote_pool`` (default:
    ``pool``), so that a slow git server does not delay folders of the host. ``hosts`` names these folders.
    One fetch from another machine writes at most ``max_fetch_bytes``: git keeps it as one pack.
    """

    def __init__(
        self,
        repositories: GitRepositories,
        pool: ThreadPool,
        egress: Egress,
        hosts: HostAccess,
        *,
        remote_pool: ThreadPool | None = None,
        max_fetch_bytes: int = DEFAULT_FETCH_BYTES,
    ) -> None:
        self._repositories = repositories
        self._pool = pool
        self._remote_pool = remote_pool or pool
        self._project_slots: dict[str, asyncio.Semaphore] = {}
        self._egress = egress
        self._hosts = HostFolders(hosts.roots, hosts.forbidden)
        self._local = LocalOrigins(self._hosts, updates_checkouts=hosts.updates_checkouts)
        self._max_fetch_bytes = max_fetch_bytes // FILE_BLOCK_BYTES * FILE_BLOCK_BYTES
        self._copy_tasks: dict[tuple[str, str], asyncio.Task[str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._recent_copies: dict[str, _RecentCopy] = {}

    async def check(self, url: str, network: NetworkPolicy) -> None:
        await self.permit(url)
        if is_local(url):
            await self._pool.run(partial(self._check_local, url))
        elif (address := repository_host(url)) is not None:
            check_host(*address, network)

    async def permit(self, url: str) -> None:
        check_repository_url(url)
        if is_local(url):
            await self._pool.run(partial(self._hosts.check, url))

    async def fetch(self, origin: Remote, *, refresh: bool = False) -> str:
        await self.permit(origin.url)
        known = self._recent_copies.get(origin.name)
        if (
            known is not None
            and known.url == origin.url
            and not refresh
            and time.monotonic() - known.at_s < COPY_MAX_AGE_S
        ):
            return origin.default_branch or known.default_branch
        key = (origin.name, origin.url)
        task = self._copy_tasks.get(key)
        if task is None or refresh:
            task = asyncio.create_task(self._run_copy(origin))
            self._copy_tasks[key] = task
            task.add_done_callback(partial(self._on_copy_done, key))
        try:
            async with asyncio.timeout(FETCH_WAIT_S):
                default_branch = await asyncio.shield(task)
        except TimeoutError:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                "The repository is still being copied. Try again in a moment.",
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
        request = _MergeRequest(target, source, metadata, resolutions, dry)

        async def run() -> Merged:
            async with self._connect(origin) as connection:
                merge = partial(self._merge, connection, request)
                return await self._run_exclusive(origin, partial(retry_on_conflict, merge))

        # Shielded: the merge completes even if the caller is cancelled.
        return await asyncio.shield(asyncio.ensure_future(run()))

    async def close(self) -> None:
        """Stop running copies. The next start creates them again."""
        self._repositories.git.stop()
        for task in list(self._copy_tasks.values()):
            task.cancel()
        await asyncio.gather(*self._copy_tasks.values(), return_exceptions=True)

    def _on_copy_done(self, key: tuple[str, str], task: asyncio.Task[str]) -> None:
        if self._copy_tasks.get(key) is task:
            del self._copy_tasks[key]
        if not task.cancelled():
            task.exception()  # Retrieved, so that asyncio logs no warning if no caller waits.

    async def _run_copy(self, origin: Remote) -> str:
        async with self._connect(origin) as connection:
            return await self._run_exclusive(origin, partial(self._timed_copy, connection))

    @asynccontextmanager
    async def _connect(self, origin: Remote) -> AsyncIterator[_Connection]:
        """Open a connection for git commands on this origin."""
        bare = self._repositories.of(origin.name).bare
        if is_local(origin.url):
            yield _Connection(origin, bare, None)
            return
        # The operator's HTTP proxy does not serve ssh and git's own protocol.
        chained = origin.url.startswith(("http://", "https://"))
        owner = f"repository {origin.name}"
        lease = await self._egress.lease(
            origin.network, owner, chained=chained, idle_s=IDLE_TIMEOUT_S, slow_s=SLOW_TIMEOUT_S
        )
        with lease:
            yield _Connection(origin, bare, lease)

    async def _run_exclusive(self, origin: Remote, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread: one call per origin and per copy, and `MAX_PER_PROJECT` per project, at a
        time.

        After an update of the origin's address, copies of both addresses may be due. The one that begins last
        decides what the copy holds.
        """
        pool = self._pool if is_local(origin.url) else self._remote_pool
        slots = self._project_slots.setdefault(origin.project, asyncio.Semaphore(MAX_PER_PROJECT))
        copy = self._locks.setdefault(origin.name, asyncio.Lock())
        async with copy, self._locks.setdefault(origin.url, asyncio.Lock()), slots:
            return await pool.run(work)

    # --- run in a thread --------------------------------------------------------------------------

    def _check_local(self, url: str) -> None:
        try:
            with self._hosts.open(url) as host:
                host.branches(), host.default_branch()
        except (HostRepositoryError, BrokenReferenceError) as problem:
            raise error(
                Reason.FIELD_INVALID, f"'{url}' cannot be used as a repository: {problem}.", field="url"
            ) from None

    def _timed_copy(self, connection: _Connection) -> str:
        """Do as `_copy`, and note the address and the time, or that the copy may hold parts of several."""
        origin = connection.origin
        self._recent_copies.pop(origin.name, None)
        default_branch = self._copy(connection)
        self._recent_copies[origin.name] = _RecentCopy(origin.url, time.monotonic(), default_branch)
        return default_branch

    def _copy(self, connection: _Connection) -> str:
        """Create or update the copy. Return the branch that the origin's HEAD names, or ``main``."""
        bare, origin, lease = connection.bare, connection.origin, connection.lease
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
                bare.folder, "-c", "fetch.unpackLimit=1", "fetch", "--quiet", "--prune", "--no-tags",
                "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", "--", origin.url,
                "+refs/heads/*:refs/heads/origin/*", "^refs/heads/wonder/*", seconds=COPY_TIMEOUT_S,
                lease=lease, max_file_bytes=self._max_fetch_bytes,
            )  # fmt: skip
        except (GitError, HostRepositoryError, BrokenReferenceError, WonderError) as problem:
            if lease is not None and self._remove_too_large(bare):
                raise self._too_large() from None
            raise _egress_refusal(lease) or _unreachable(origin, problem) from None
        return default_branch[1] if default_branch else "main"

    def _remove_too_large(self, bare: BareRepository) -> bool:
        """Remove the unfinished packs at which a fetch was ended for its size. Return True if there were
        any."""
        found = False
        for pack in bare.folder.glob("objects/pack/tmp_pack_*"):
            with suppress(FileNotFoundError):
                # Packs that are being written for other work are smaller.
                if pack.stat().st_size >= self._max_fetch_bytes:
                    pack.unlink()
                    found = True
        return found

    def _too_large(self) -> WonderError:
        return error(
            Reason.LIMIT_EXCEEDED,
            f"The repository sends more than {self._max_fetch_bytes} bytes at once. Use a smaller one, "
            "or ask the operator to raise the setting repository_bytes.",
            limit=str(self._max_fetch_bytes),
        )

    def _merge(self, connection: _Connection, request: _MergeRequest) -> Merged:
        bare, target, source = connection.bare, request.target, request.source
        self._timed_copy(connection)
        ours = bare.head(f"origin/{target}")
        if not ours and queries.has_branches(bare, "origin"):
            raise error(
                Reason.FIELD_INVALID, f"The repository has no branch '{target}'.", field="target_branch"
            )
        if ours and merging.is_ancestor(bare, source, ours):
            return Merged(commit=queries.with_paths(bare, bare.commits([ours]))[0])
        tree, conflicts = merging.merge_with_resolutions(bare, ours, source, request.resolutions)
        if conflicts or request.dry:
            return Merged(tree=tree, conflicts=conflicts)
        merged = bare.write_commit(tree, [ours, source] if ours else [source], request.metadata)
        self._push(connection, target, merged, ours)
        try:
            bare.set_branch(f"origin/{target}", merged, ours)
        except RefConflictError:
            pass  # A concurrent copy has fetched the pushed commit.
        return Merged(commit=queries.with_paths(bare, bare.commits([merged]))[0], tree=tree)

    def _push(self, connection: _Connection, target: str, merged: str, ours: str) -> None:
        """Move the origin's branch from ``ours`` to ``merged`` in one step. `RefConflictError` if it is
        elsewhere."""
        bare, origin, lease = connection.bare, connection.origin, connection.lease
        if is_local(origin.url):
            try:
                return self._local.push(bare, origin.url, target, merged, ours, PUSH_TIMEOUT_S)
            except (GitError, HostRepositoryError, BrokenReferenceError) as problem:
                raise _unreachable(origin, problem) from None
        reference = f"refs/heads/{target}"
        try:
            bare.git.run_remote(
                bare.folder, "push", "--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no",
                f"--force-with-lease={reference}:{ours}", "--", origin.url, f"{merged}:{reference}",
                seconds=PUSH_TIMEOUT_S, lease=lease,
            )  # fmt: skip
        except GitError as problem:
            rejected = _PUSH_REJECTED.search(f"{problem.output}\n{problem.complaint}")
            if rejected is None:
                raise _egress_refusal(lease) or _unreachable(origin, problem) from None
            if rejected[1] in ("stale info", "fetch first", "non-fast-forward", "failed to update ref"):
                raise RefConflictError from None
            raise error(
                Reason.RESOURCE_IN_USE,
                f"The repository rejected the merge into '{target}': {rejected[1][:200]}.",
                id=target,
            ) from None


def _egress_refusal(lease: Lease | None) -> WonderError | None:
    """Return the error with which the egress policy refused a connection of the command, or None."""
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
    _log.warning("repository_unreachable", repository=origin.name, output=text[-500:])
    cause = _cause(text)
    return error(Reason.STORAGE_UNAVAILABLE, f"The repository cannot be reached: {cause}.", transient=True)


def _cause(text: str) -> str:
    """Return the cause in git's error output that a user can correct."""
    if any(sign in text for sign in ("Permission denied", "insufficient permission", "Read-only file")):
        return "the server may not read or write it"
    if "redirect" in text:
        return "it redirects to another address; use that address in the project"
    if "not appear to be a git repository" in text or "does not exist" in text or "not found" in text:
        return "there is no repository at this address"
    return "see git's message in the server's log"
