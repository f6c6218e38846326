"""Worktrees: branch and files of a scope, from the first write until its deletion (features F3, F5).

The branch and files are created at the first write or command. Each worktree belongs to one branch of one
project and has one folder for each repository. Guide: docs/artifacts.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from wonder_server.core.actor.commands import NO_BRANCH, Scope, branch_of
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace
from wonder_server.ports.workspaces import WorkBranch
from wonder_server.ports.worktrees import Worktree
from wonder_server.services.content.checkout import Checkout, RepositoryAccess, work_branch, worktree_key
from wonder_server.services.content.outlines import Outlines
from wonder_server.services.content.worktree_locks import WorktreeLocks


class BranchWorktrees:
    """The worktrees of this server. Implements the port ``Worktrees``.

    ``release`` receives the key of a worktree before its removal and ends the commands that run in it."""

    def __init__(
        self,
        access: RepositoryAccess,
        outlines: Outlines,
        release: Callable[[str], Awaitable[None]],
    ) -> None:
        self._access = access
        self._outlines = outlines
        self._release = release
        self._keys: set[str] = set()
        self._locks = WorktreeLocks()

    async def start(self) -> None:
        """Read the keys of the existing worktrees from disk."""
        self._keys = set(await self._access.workspaces.keys())

    # --- use --------------------------------------------------------------------------------------

    async def open(self, scope: Scope) -> Worktree:
        """Open the worktree of ``scope`` for a command; see the port ``Worktrees``. A merge does not remove
        it before `command_finished` is called."""
        branch, project = work_branch(scope), await self._access.project(scope)
        key = worktree_key(project.id, branch)
        self._locks.acquire(key)
        try:
            async with self._locks.lock(key):
                folder = await self._ensure(None, key)
            for repository in project.repositories:
                async with self.open_checkout(Checkout(project, repository, branch)):
                    pass
        except BaseException:
            self._locks.release(key)
            raise
        self._outlines.invalidate(key)
        only = project.repositories[0].name if len(project.repositories) == 1 else ""
        return Worktree(key=key, folder=folder, working_dir=only)

    def command_finished(self, key: str) -> None:
        """Record that a command ended for which `open` returned the worktree ``key``."""
        self._locks.release(key)
        self._outlines.invalidate(key)

    @asynccontextmanager
    async def open_checkout(self, checkout: Checkout) -> AsyncIterator[WorkBranch]:
        """Create branch and files if they do not exist, and lock them against removal."""
        await self._access.origins.permit(checkout.origin.url)
        copy, work = self._access.copy_of(checkout), checkout.work
        start: str | None = None
        while True:
            async with self._locks.lock(work.key):
                if start is not None or await copy.commit(work.branch) is not None:
                    await self._ensure(work, work.key, start or "")
                    yield work
                    return
            # Outside the lock: fetching may take as long as a clone.
            start = await self._start_commit(checkout)

    # --- lookup -----------------------------------------------------------------------------------

    def exists(self, key: str) -> bool:
        """Return True if the worktree ``key`` exists."""
        return key in self._keys

    def has_files(self, scope: Scope) -> bool:
        """Return True if ``scope`` has a worktree."""
        return bool(scope.project_id) and self.exists(worktree_key(scope.project_id, branch_of(scope)))

    async def find_scope(self, scope: Scope, repository: str = "") -> Scope:
        """Return ``scope`` in the project that has its worktree and, if named, the ``repository``.

        An agent that does not belong to its conversation's project works in its own project. The search
        starts with the project of ``scope``; without a match it returns ``scope``."""
        suffix = worktree_key("", branch_of(scope))
        project_ids = sorted(key.removesuffix(suffix) for key in self._keys if key.endswith(suffix))
        for project_id in sorted(project_ids, key=lambda each: each != scope.project_id):
            try:
                project = await self._access.projects.get_cached(project_id)
            except WonderError:  # The project was deleted.
                continue
            if any(repository in ("", each.name) for each in project.repositories):
                return replace(scope, project_id=project_id)
        return scope

    def conversations(self) -> dict[str, str]:
        """Return the ids of the conversations that have a worktree, by the key of the worktree."""
        found = ((key, key.rpartition("-")[2]) for key in self._keys)
        return {key: name for key, name in found if name.startswith("conv_")}

    # --- fork -------------------------------------------------------------------------------------

    async def fork(self, old: Scope, new: Scope) -> None:
        """Start the branch of ``new`` with the current files of ``old``, uncommitted changes included, in
        each repository in which ``old`` has a branch. Do nothing if both have the same branch."""
        before, after = branch_of(old), branch_of(new)
        if before in ("", NO_BRANCH, after):
            return
        project = await self._access.project(old)
        for repository in project.repositories:
            head = await self._access.workspaces.head(Checkout(project, repository, before).work)
            if head is not None:
                work = Checkout(project, repository, after).work
                async with self._locks.lock(work.key):
                    await self._ensure(work, work.key, head.id)
                self._outlines.invalidate(work.key)

    async def delete_fork(self, new: Scope) -> None:
        """Remove the worktree that `fork` created for a run that was not started."""
        project = await self._access.project(new)
        await self._remove(worktree_key(project.id, branch_of(new)), project.id, branch_of(new))

    # --- removal ----------------------------------------------------------------------------------

    async def retire(self, work: WorkBranch, merged: str) -> None:
        """Remove branch and files if they contain only what the commit ``merged`` contains, and no command
        runs there."""
        async with self._locks.lock(work.key):
            if not self._locks.in_use(work.key):
                await self._access.workspaces.retire(work, merged)

    async def delete_conversation_work(self, conversation_id: str) -> None:
        """Remove the branches and files of a deleted conversation, if it has any.

        Pending calls that would create them again fail with CONVERSATION_NOT_FOUND."""
        self._locks.mark_deleted(conversation_id)
        branch = branch_of(Scope(conversation_id=conversation_id))
        for key, name in list(self.conversations().items()):
            if name == conversation_id:
                await self._remove(key, key.rpartition("-")[0], branch)

    async def delete_project(self, project_id: str) -> None:
        """Remove the worktrees of a deleted project and the server's copies of its repositories.

        Pending calls that would create them again fail with PROJECT_NOT_FOUND."""
        self._locks.mark_deleted(project_id)
        for key in [key for key in self._keys if key.startswith(f"{project_id}-")]:
            await self._remove(key, "", "")
        for name in await self._access.repositories.names():
            if name.startswith(f"{project_id}."):
                await self._access.repositories.remove(name)

    async def _remove(self, key: str, project_id: str, branch: str) -> None:
        """Remove a worktree completely, even if the caller is cancelled."""
        await asyncio.shield(asyncio.ensure_future(self._remove_locked(key, project_id, branch)))

    async def _remove_locked(self, key: str, project_id: str, branch: str) -> None:
        names = await self._access.repositories.names() if project_id else []
        works = [
            WorkBranch(key=key, folder=name.removeprefix(f"{project_id}."), name=name, branch=branch)
            for name in names
            if name.startswith(f"{project_id}.")
        ]
        async with self._locks.lock(key):
            await self._release(key)
            await self._access.workspaces.remove(key, works)
            self._keys.discard(key)
        if self._locks.in_use(key):
            await self._release(key)  # A command may have started just before the folder was removed.
        self._outlines.invalidate(key)

    # --- creation ---------------------------------------------------------------------------------

    async def _ensure(self, work: WorkBranch | None, key: str, start: str = "") -> Path:
        """Create the worktree if it does not exist. The caller holds its lock."""
        self._locks.check_not_deleted(key)
        is_new = key not in self._keys
        self._keys.add(key)  # Before creation: it continues after a cancel, and a removal must find the key.
        try:
            return await self._access.workspaces.begin(work, key, start)
        except WonderError:
            if is_new:
                self._keys.discard(key)
            raise

    async def _start_commit(self, checkout: Checkout) -> str:
        """Return the commit at which a new branch starts; empty for a repository without commits."""
        copy = self._access.copy_of(checkout)
        default = await self._access.origins.fetch(checkout.origin, refresh=True)
        start = await copy.commit(f"origin/{checkout.branch}") or await copy.commit(f"origin/{default}")
        if start is None and checkout.repository.default_branch:
            raise error(
                Reason.FIELD_INVALID,
                f"The repository '{checkout.repository.name}' has no branch '{default}'. Correct its "
                "default_branch in the project.",
                field="repository",
            )
        return start.id if start is not None else ""
