"""Helpers of repository tests: a user's origin, and a server's services that work on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.git.hosts.host_folders import HostAccess
from wonder_server.adapters.git.origins import GitOrigins
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.adapters.git.workspaces import GitWorkspaces
from wonder_server.core.actor.commands import Scope
from wonder_server.core.definitions.resources import Project, Repository
from wonder_server.core.errors import Reason, error
from wonder_server.services.content.checkout import RepositoryAccess
from wonder_server.services.content.merges import MergeRequest, MergeResult
from wonder_server.services.content.repositories import RepositoryService


def need_git() -> None:
    problem = Git(os.environ).probe()
    if problem:
        pytest.skip(f"repositories cannot be tried: {problem}", allow_module_level=True)


class UsersRepository:
    """A user's repository, changed with the user's git."""

    def __init__(self, folder: Path, *, bare: bool = False, **files: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        for path, content in (files or {"readme": "hello\n", "src": "one\ntwo\nthree\n"}).items():
            (folder / path).write_text(content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", "first")
        if bare:
            self.git("checkout", "--quiet", "--detach")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=Uli", "-c", "user.email=uli@example.com", "-c", "commit.gpgsign=false"]
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            env=environment,
        )
        return done.stdout.strip()

    def show(self, path: str, branch: str = "main") -> str:
        return self.git("show", f"{branch}:{path}")

    def change(self, path: str, content: str, message: str = "by a user") -> None:
        (self.folder / path).write_text(content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", message)


class FixedProjects:
    """A fixed set of projects."""

    def __init__(self, **projects: dict[str, str]) -> None:
        self.projects = {
            name: Project(
                id=f"proj_{name}",
                name=name,
                repositories=tuple(Repository(name=repo, url=url) for repo, url in repositories.items()),
            )
            for name, repositories in projects.items()
        }

    async def get_cached(self, key: str) -> Project:
        found = self.projects.get(key.removeprefix("proj_"))
        if found is None:
            raise error(Reason.PROJECT_NOT_FOUND, "There is no such project.", field="project_id")
        return found


class RepositoryStack:
    """The repository services of a server. `restarted` returns them after a restart."""

    def __init__(
        self,
        folder: Path,
        projects: FixedProjects,
        *,
        roots: Sequence[Path] | None = None,
        updates_checkouts: bool = True,
        most: int = 1 << 30,
    ) -> None:
        """``roots``: folders that may contain repositories; None means the parent of ``folder``."""
        self.folder, self.projects = folder, projects
        self.roots = [folder.parent] if roots is None else roots
        self.updates_checkouts = updates_checkouts
        self.released: list[str] = []
        self.pool = ThreadPool(4, "git")
        self.repositories = GitRepositories(Git(os.environ), self.pool, folder / "repositories")
        self.workspaces = GitWorkspaces(self.repositories, self.pool, folder / "worktrees", most)
        self.egress = Egress()
        self.origins = GitOrigins(
            self.repositories,
            self.pool,
            self.egress,
            HostAccess(folder, self.roots, updates_checkouts),
        )
        access = RepositoryAccess(
            repositories=self.repositories,
            origins=self.origins,
            workspaces=self.workspaces,
            projects=projects,
        )
        self.repos = RepositoryService(access, release=self._release)

    async def _release(self, key: str) -> None:
        self.released.append(key)

    def restarted(self) -> RepositoryStack:
        return RepositoryStack(
            self.folder, self.projects, roots=self.roots, updates_checkouts=self.updates_checkouts
        )

    async def close(self) -> None:
        await self.origins.close()
        await self.pool.close()
        await self.egress.close()


async def merge(repos: RepositoryService, scope: Scope, author: str = "ada", **request: Any) -> MergeResult:
    """Merge the branch of ``scope``; ``request`` has the other fields of the `MergeRequest`."""
    return await repos.merges.merge(scope, MergeRequest(author=author, **request))


def scope(conversation: str = "conv_1", project: str = "web", branch: str = "") -> Scope:
    return Scope(project_id=f"proj_{project}", conversation_id=conversation, branch=branch)
