"""Repositories of projects: their files, worktrees and merges (features F2, F3, F5, F6).

Guide: docs/artifacts.md. A `Scope` names a project and a branch, or a conversation, whose branch is
``wonder/conv-…``. The RPCs of the ConversationService and the ``repo.*`` actions call this service::

    RepositoryService
      .files       read, search, compare, write, commit    services/content/branch_files.py
      .merges      merge a branch into its repository      services/content/merges.py
      .worktrees   create, fork and remove worktrees       services/content/worktrees.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence

from wonder_server.core.definitions.resources import NetworkPolicy, Repository
from wonder_server.core.errors import WonderError
from wonder_server.core.paths import check_no_password, check_repository_url
from wonder_server.services.catalog.projects import MAX_REPOSITORIES
from wonder_server.services.content.branch_files import BranchFiles
from wonder_server.services.content.checkout import RepositoryAccess
from wonder_server.services.content.merges import BranchMerges
from wonder_server.services.content.outlines import Outlines
from wonder_server.services.content.worktrees import BranchWorktrees


class RepositoryService:
    """The use cases of repositories, over one set of worktrees and outlines.

    ``release`` receives the key of a worktree before its removal and ends the commands that run in it."""

    def __init__(self, access: RepositoryAccess, *, release: Callable[[str], Awaitable[None]]) -> None:
        outlines = Outlines()
        self._origins = access.origins
        self.worktrees = BranchWorktrees(access, outlines, release)
        self.files = BranchFiles(access, self.worktrees, outlines)
        self.merges = BranchMerges(access, self.worktrees, outlines)

    async def check_repositories(
        self,
        existing: Sequence[Repository],
        requested: Sequence[Repository],
        network: NetworkPolicy | None = None,
    ) -> None:
        """Check the ``requested`` repositories that are not ``existing`` for a project with the policy
        ``network``, as far as that needs no clone. Raises FIELD_INVALID, PERMISSION_DENIED."""
        existing_urls = {each.url for each in existing}
        for index, each in enumerate(requested[:MAX_REPOSITORIES]):
            if each.url not in existing_urls:
                field = f"project.repositories[{index}].url"
                check_repository_url(each.url, field)
                check_no_password(each.url, field)
                try:
                    await self._origins.check(each.url, network or NetworkPolicy())
                except WonderError as problem:
                    raise WonderError(dataclasses.replace(problem.fault, field=field)) from None
