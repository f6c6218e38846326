"""Git: the repositories of artifacts and of projects, and the worktrees of conversations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.git.hosts.host_folders import HostAccess
from wonder_server.adapters.git.origins import GitOrigins
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import GIT_ENVIRONMENT, Git, ThreadPool
from wonder_server.adapters.git.workspaces import GitWorkspaces
from wonder_server.compose.background import open_background
from wonder_server.core.errors import WonderError
from wonder_server.logs import logger
from wonder_server.ports.holds import Holds
from wonder_server.ports.repositories import Repositories
from wonder_server.ports.workspaces import Origins, Workspaces
from wonder_server.settings import Settings, inherited_environment

_log = logger("server")

ExecutorFactory = Callable[[int, str], Executor]
"""Make an executor of so many threads; the text names them."""

GIT_THREADS: Final = 8
"""Git commands that run at the same time."""

LOCAL_GIT_THREADS: Final = 4
"""Repositories in folders of this machine that are copied or merged into at the same time."""

REMOTE_GIT_THREADS: Final = 16
"""Repositories on other machines that are copied or pushed to at the same time. Most of these threads wait
for the network."""

PACK_INTERVAL_S: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class GitStores:
    """Repositories and worktrees, by their ports."""

    artifacts: Repositories
    repositories: Repositories
    origins: Origins
    workspaces: Workspaces
    holds: Sequence[Holds] = ()
    """The repositories, whose removals wait for a backup."""


@asynccontextmanager
async def open_git(
    settings: Settings, egress: Egress, new_executor: ExecutorFactory
) -> AsyncIterator[GitStores]:
    """Open the repositories of the data folder, remove leftovers of a crash, and pack daily."""
    data = settings.data_dir
    git = Git(inherited_environment(GIT_ENVIRONMENT))
    async with AsyncExitStack() as stack:
        pool, local_pool, remote_pool = (
            ThreadPool(threads, name, new_executor)
            for threads, name in (
                (GIT_THREADS, "git"),
                (LOCAL_GIT_THREADS, "git-near"),
                (REMOTE_GIT_THREADS, "git-far"),
            )
        )
        for each in (pool, local_pool, remote_pool):
            stack.push_async_callback(each.close)
        stack.callback(git.stop)
        if problem := await pool.run(git.probe):
            _log.warning("git_unavailable", problem=problem)
        artifacts = GitRepositories(git, pool, data / "artifacts")
        await artifacts.remove_leftovers()
        repositories = GitRepositories(git, pool, data / "repositories")
        await repositories.remove_leftovers()
        workspaces = GitWorkspaces(repositories, pool, data / "worktrees", settings.worktree_bytes)
        await workspaces.remove_leftovers()
        origins = GitOrigins(
            repositories,
            local_pool,
            egress,
            HostAccess(data, settings.repository_roots, settings.repository_update_checkouts),
            remote_pool=remote_pool,
            max_fetch_bytes=settings.repository_bytes,
        )
        background = await stack.enter_async_context(open_background())
        background.start("packing", pack_daily(artifacts))
        background.start("packing", pack_daily(repositories))
        yield GitStores(
            artifacts=artifacts,
            repositories=repositories,
            origins=origins,
            workspaces=workspaces,
            holds=(artifacts, repositories),
        )


async def pack_daily(repositories: GitRepositories) -> None:
    """Pack the repositories now and once a day."""
    while True:
        try:
            await repositories.pack()
        except WonderError as problem:
            _log.warning("repository_packing_failed", problem=str(problem))
        await asyncio.sleep(PACK_INTERVAL_S)
