"""The branch of a scope in one repository of its project, and the ports that reach it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final, Protocol

from wonder_server.core.actor.commands import NO_BRANCH, Scope, branch_of
from wonder_server.core.definitions.resources import DEFAULT_PROJECT, NetworkPolicy, Project, Repository
from wonder_server.core.errors import Reason, error
from wonder_server.core.paths import check_work_branch
from wonder_server.ports.repositories import Repositories
from wonder_server.ports.repositories import Repository as RepositoryCopy
from wonder_server.ports.workspaces import Origins, Remote, WorkBranch, Workspaces

_CONVERSATION: Final = re.compile(r"wonder/conv-([0-9A-Za-z]{1,64})\Z")
_MAX_NAMES_IN_ERROR: Final = 20


class Projects(Protocol):
    """The part of the catalog that resolves projects."""

    async def get_cached(self, key: str) -> Project:
        """Return the project with this id or name. Raises PROJECT_NOT_FOUND."""
        ...


def work_branch(scope: Scope) -> str:
    """Return the branch of ``scope``. Raises FIELD_INVALID if it has none."""
    branch = branch_of(scope)
    if branch in ("", NO_BRANCH):
        raise error(
            Reason.FIELD_INVALID,
            "The task has no branch. Set `context.branch` or `context.conversation_id` "
            "(`wonder run TASK --branch NAME`, or `--conversation ID`).",
            field="context.branch",
        )
    return check_work_branch(branch, "context.branch")


def worktree_key(project_id: str, branch: str) -> str:
    """Return the key of the worktree of ``branch`` in a project."""
    if found := _CONVERSATION.match(branch):
        return f"{project_id}-conv_{found[1]}"
    return f"{project_id}-b_{hashlib.blake2b(branch.encode(), digest_size=16).hexdigest()}"


class Checkout:
    """One branch of one repository of one project."""

    def __init__(self, project: Project, repository: Repository, branch: str) -> None:
        self.repository = repository
        self.branch = branch
        self.name = f"{project.id}.{repository.name}"
        self.origin = Remote(
            name=self.name,
            url=repository.url,
            default_branch=repository.default_branch,
            network=project.network or NetworkPolicy(),
            project=project.id,
        )
        self.work = WorkBranch(
            key=worktree_key(project.id, branch), folder=repository.name, name=self.name, branch=branch
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryAccess:
    """The ports that reach the repositories of projects, and the lookup of a scope's checkout."""

    repositories: Repositories
    origins: Origins
    workspaces: Workspaces
    projects: Projects

    def copy_of(self, checkout: Checkout) -> RepositoryCopy:
        """Return the server's copy of the repository of ``checkout``."""
        return self.repositories.of(checkout.name)

    async def project(self, scope: Scope) -> Project:
        """Return the project of ``scope``; an empty project id is the project ``default``. Raises
        PROJECT_NOT_FOUND."""
        return await self.projects.get_cached(scope.project_id or DEFAULT_PROJECT)

    async def checkout(self, scope: Scope, repository: str) -> Checkout:
        """Return the checkout of ``scope`` in the named repository of its project; the name may be empty if
        the project has only one. Raises FIELD_INVALID, PROJECT_NOT_FOUND, STORAGE_UNAVAILABLE."""
        branch, project = work_branch(scope), await self.project(scope)
        names = [each.name for each in project.repositories]
        if not names:
            raise error(
                Reason.FIELD_INVALID,
                f"The project '{project.name}' has no repository. Add one with "
                f"`wonder project repository {project.name} NAME URL`, or UpdateProject.",
                field="repository",
            )
        if repository not in names and (repository or len(names) > 1):
            problem = f"has no repository '{repository[:100]}'" if repository else "has several repositories"
            raise error(
                Reason.FIELD_INVALID,
                f"The project '{project.name}' {problem}. Set `repository` (at the command line "
                f"--repository) to one of {', '.join(names[:_MAX_NAMES_IN_ERROR])}.",
                field="repository",
            )
        found = Checkout(project, project.repositories[names.index(repository) if repository else 0], branch)
        await self.origins.permit(found.origin.url)
        return found

    async def visible_commit(self, checkout: Checkout) -> str:
        """Return the commit whose files the branch shows: its head, or the head of the repository's default
        branch before the first write."""
        head = await self.workspaces.head(checkout.work)
        if head is not None:
            return head.id
        return f"origin/{await self.origins.fetch(checkout.origin)}"
