"""Repositories of projects, and the branches on which conversations work (features F2, F3, F5, F6).

Guide: docs/artifacts.md. Whoever works says so with a `Scope`: its project, and its branch or its
conversation, whose branch is ``wonder/conv-…``. Branch and files are made when something is first written or
run; until then, what is read is the repository's default branch. The RPCs of the ConversationService and the
``repo.*`` actions are two faces of this.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from wonder_server.core.actor.commands import NO_BRANCH, Scope, branch_of
from wonder_server.core.definitions.resources import DEFAULT_PROJECT, NetworkPolicy, Project, Repository
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import replace
from wonder_server.core.paths import (
    check_branch,
    check_no_password,
    check_path,
    check_prefix,
    check_repository_url,
)
from wonder_server.ports.repositories import (
    Change,
    Commit,
    Diff,
    File,
    Merged,
    Repositories,
    SearchResult,
)
from wonder_server.ports.workspaces import Origins, WorkBranch, Workspaces
from wonder_server.ports.worktrees import Worktree
from wonder_server.services.catalog.projects import MAX_REPOSITORIES
from wonder_server.services.catalog.transactions import IdempotencyKey
from wonder_server.services.content.artifacts import ABSENT, MAX_MATCHES, check_resolutions, search_words
from wonder_server.services.content.checkout import (
    BranchDiff,
    Checkout,
    FileListing,
    MergeResult,
    MergeTarget,
    check_head,
    merge_conflict,
    work_branch,
    worktree_key,
)
from wonder_server.services.content.commit_metadata import InFlightRequests, commit_metadata
from wonder_server.services.content.outlines import MAX_FILES, MAX_LINES, Outline, Outlines
from wonder_server.services.content.worktree_locks import WorktreeLocks

MAX_FILE_BYTES: Final = 4 << 20
MAX_PATCH_BYTES: Final = 1 << 20
MAX_LISTED_FILES: Final = 5_000
MAX_INDEXED_REPOSITORIES: Final = 10
"""Repositories of a project that its index tells of."""

INDEX_TIMEOUT_S: Final = 2.0
INDEX_MAX_AGE_S: Final = 300.0
"""Of what is known of a repository on which nothing was done: others may change it, and do not tell."""


class Projects(Protocol):
    """What is needed of the library."""

    async def get_cached(self, key: str) -> Project:
        """PROJECT_NOT_FOUND if there is none."""
        ...


class RepositoryService:
    """The use-cases. Implements the port ``Worktrees``. ``release`` is told the key of a worktree before it
    is removed, so that nothing runs there any more.

    All raise PROJECT_NOT_FOUND, FIELD_INVALID for a repository that the project has not, and
    STORAGE_UNAVAILABLE while a repository cannot be reached."""

    def __init__(
        self,
        *,
        repositories: Repositories,
        origins: Origins,
        workspaces: Workspaces,
        projects: Projects,
        release: Callable[[str], Awaitable[None]],
    ) -> None:
        self._repositories = repositories
        self._origins = origins
        self._workspaces = workspaces
        self._projects = projects
        self._release = release
        self._in_flight = InFlightRequests()
        self._outlines = Outlines()
        self._worktrees: set[str] = set()
        self._worktree_locks = WorktreeLocks()

    async def open(self, scope: Scope) -> Worktree:
        """See the port ``Worktrees``. Until `touched` is said, a merge removes none of it."""
        branch, project = (
            work_branch(scope),
            await self._projects.get_cached(scope.project_id or DEFAULT_PROJECT),
        )
        key = worktree_key(project.id, branch)
        self._worktree_locks.acquire(key)
        try:
            async with self._worktree_locks.lock(key):
                folder = await self._ensure_worktree(None, key)
            for repository in project.repositories:
                async with self._open_checkout(Checkout(project, repository, branch)):
                    pass
        except BaseException:
            self._worktree_locks.release(key)
            raise
        self._outlines.invalidate(key)
        only = project.repositories[0].name if len(project.repositories) == 1 else ""
        return Worktree(key=key, folder=folder, working_dir=only)

    async def check_repositories(
        self,
        existing: Sequence[Repository],
        requested: Sequence[Repository],
        network: NetworkPolicy | None = None,
    ) -> None:
        """See that those ``wanted`` that are not ``known`` can be used, as far as that can be said at once,
        by a project that may reach ``network``. FIELD_INVALID, PERMISSION_DENIED."""
        before = {each.url for each in existing}
        for index, each in enumerate(requested[:MAX_REPOSITORIES]):
            if each.url not in before:
                field = f"project.repositories[{index}].url"
                check_repository_url(each.url, field)
                check_no_password(each.url, field)
                try:
                    await self._origins.check(each.url, network or NetworkPolicy())
                except WonderError as problem:
                    raise WonderError(dataclasses.replace(problem.fault, field=field)) from None

    # --- reading ----------------------------------------------------------------------------------

    async def tree(
        self, scope: Scope, repository: str = "", *, prefix: str = "", after: str = "", limit: int = 0
    ) -> FileListing:
        """Files by path, at most ``limit`` (0: 1,000)."""
        check_prefix(prefix)
        limit = min(limit or 1_000, MAX_LISTED_FILES)
        place = await self._checkout(scope, repository)
        found = await self._repositories.of(place.name).files(
            await self._visible_commit(place), prefix, after, limit + 1
        )
        return FileListing(files=tuple(found[:limit]), truncated=len(found) > limit)

    async def index(self, scope: Scope) -> Mapping[str, Outline | None]:
        """What files there are, by repository; of the first ten. None where that cannot be said within two
        seconds."""
        branch, project = (
            work_branch(scope),
            await self._projects.get_cached(scope.project_id or DEFAULT_PROJECT),
        )
        indexed = project.repositories[:MAX_INDEXED_REPOSITORIES]
        most = MAX_LINES // max(len(indexed), 1)

        async def load_outline(repository: Repository) -> Outline | None:
            place = Checkout(project, repository, branch)
            # Before anything is done on the branch, its files are those of all others like it.
            has_files = place.work.key in self._worktrees
            return await self._outlines.get(
                place.work.key if has_files else place.name,
                repository.name,
                partial(self._list_for_index, place),
                max_lines=most,
                max_age_s=float("inf") if has_files else INDEX_MAX_AGE_S,
            )

        found = await asyncio.gather(*[load_outline(repository) for repository in indexed])
        return {repository.name: outline for repository, outline in zip(indexed, found, strict=True)}

    async def _list_for_index(self, place: Checkout) -> Sequence[File] | None:
        try:
            async with asyncio.timeout(INDEX_TIMEOUT_S):
                await self._origins.permit(place.origin.url)
                at = await self._visible_commit(place)
            return await self._repositories.of(place.name).files(at, limit=MAX_FILES + 1)
        except (TimeoutError, WonderError):  # It is for those who read it to hear why.
            return None

    def command_finished(self, key: str) -> None:
        """A command has run among the files of this worktree, for which it was opened."""
        self._worktree_locks.release(key)
        self._outlines.invalidate(key)

    async def read(self, scope: Scope, path: str, repository: str = "") -> File:
        """One file with its content. ARTIFACT_NOT_FOUND, PAYLOAD_TOO_LARGE."""
        check_path(path)
        place = await self._checkout(scope, repository)
        found = await self._repositories.of(place.name).read(
            await self._visible_commit(place), path, MAX_FILE_BYTES
        )
        if found is None:
            raise error(
                Reason.ARTIFACT_NOT_FOUND,
                f"There is no file '{path}' in '{place.repository.name}'.",
                field="path",
                id=path,
            )
        return found

    async def search(
        self, scope: Scope, query: str, repository: str = "", *, prefix: str = "", limit: int = 0
    ) -> SearchResult:
        """Lines and paths that contain all words of ``query``."""
        check_prefix(prefix)
        words, most = search_words(query), min(limit or 50, MAX_MATCHES)
        place = await self._checkout(scope, repository)
        return await self._repositories.of(place.name).search(
            await self._visible_commit(place), words, prefix, most
        )

    async def diff(
        self, scope: Scope, repository: str = "", *, base_branch: str = "", paths: Sequence[str] = ()
    ) -> BranchDiff:
        """What the branch has changed. FIELD_INVALID for a base branch that is not there."""
        for number, path in enumerate(paths):
            check_path(path, f"paths[{number}]")
        place = await self._checkout(scope, repository)
        base = check_branch(base_branch, "base_branch") if base_branch else ""
        default = await self._origins.fetch(place.origin)
        base, known = base or default, self._repositories.of(place.name)
        if base_branch and await known.commit(f"origin/{base}") is None:
            raise error(Reason.FIELD_INVALID, f"The repository has no branch '{base}'.", field="base_branch")
        head = await self._workspaces.head(place.work)
        if head is None:
            start = await known.commit(f"origin/{base}")
            nothing = Diff(base=start.id if start else "")
            return BranchDiff(branch=place.branch, base_branch=base, head=None, diff=nothing)
        found = await known.diff(f"origin/{base}", head.id, paths, MAX_PATCH_BYTES)
        return BranchDiff(branch=place.branch, base_branch=base, head=head, diff=found)

    # --- writing ----------------------------------------------------------------------------------

    async def write(
        self, scope: Scope, path: str, content: bytes | None, repository: str = "", *, etag: str = ""
    ) -> str:
        """Write one file of the conversation's, or with None remove it; its etag then. Nothing is committed
        yet. FIELD_INVALID, PAYLOAD_TOO_LARGE, ETAG_MISMATCH."""
        check_path(path)
        if content is not None and len(content) > MAX_FILE_BYTES:
            raise error(
                Reason.PAYLOAD_TOO_LARGE,
                f"content has {len(content)} bytes; at most {MAX_FILE_BYTES} are taken.",
                field="content",
                limit=str(MAX_FILE_BYTES),
            )
        expected = ("" if etag == ABSENT else etag) if etag else None
        async with self._open_checkout(await self._checkout(scope, repository)) as work:
            with self._outlines.invalidating(work.key):
                return await self._workspaces.put(work, path, content, expected) or ABSENT

    async def commit(self, scope: Scope, author: str, message: str, repository: str = "") -> Commit | None:
        """Commit what was changed; the branch's newest commit, None of a branch without any."""
        metadata = commit_metadata(author, message or "Work of a conversation")
        place = await self._checkout(scope, repository)
        if await self._workspaces.head(place.work) is None:
            return None
        with self._outlines.invalidating(place.work.key):
            return await self._workspaces.commit(place.work, metadata)

    async def update(
        self,
        scope: Scope,
        author: str,
        repository: str = "",
        *,
        source: str = "",
        resolutions: Sequence[Change] = (),
    ) -> Merged:
        """Bring what is new on the repository's branch ``source`` (empty: its default) into the branch and
        files of the work. Conflicts are in the answer, and then nothing was brought."""
        check_resolutions(resolutions)
        place = await self._checkout(scope, repository)
        default = await self._origins.fetch(place.origin, refresh=True)
        source = check_branch(source, "source_branch") if source else default
        if await self._repositories.of(place.name).commit(f"origin/{source}") is None:
            raise error(
                Reason.FIELD_INVALID, f"The repository has no branch '{source}'.", field="source_branch"
            )
        metadata = commit_metadata(author, f"Merge {source} into {place.branch}")
        async with self._open_checkout(place) as work:
            with self._outlines.invalidating(work.key):
                return await self._workspaces.update(work, f"origin/{source}", metadata, resolutions)

    async def merge(
        self,
        scope: Scope,
        author: str,
        repository: str = "",
        *,
        target: str = "",
        message: str = "",
        expected: str = "",
        resolutions: Sequence[Change] = (),
        dry: bool = False,
        remove: bool = False,
        idempotency_key: IdempotencyKey | None = None,
    ) -> MergeResult:
        """Bring the branch's work, with what nobody has committed, into the repository's branch ``target``
        (empty: its default). Conflicts are in the answer, and then nothing was merged.

        ``expected``: what `diff` must say is the head: ETAG_MISMATCH otherwise. ``remove``: branch and files
        are removed once they are merged, unless something was written since, or a command is running there:
        then the answer says that they were kept. RESOURCE_IN_USE if the repository does not take it. A
        request that comes again is answered with its merge, and nothing is done."""
        check_resolutions(resolutions)
        place = await self._checkout(scope, repository)
        default = await self._origins.fetch(place.origin)
        target = check_branch(target, "target_branch") if target else default
        metadata = commit_metadata(author, message or f"Merge {place.branch} into {target}", idempotency_key)
        known = self._repositories.of(place.name)
        results: list[Merged] = []

        async def execute() -> Commit | None:
            head = await self._workspaces.head(place.work)
            if head is None:
                results.append(Merged(commit=await known.commit(f"origin/{target}")))
            else:
                check_head(expected, head)
                if not dry:
                    same = head.id if expected else ""
                    head = await self._workspaces.commit(place.work, None, same) or head
                results.append(
                    await self._origins.publish(
                        place.origin, target, head.id, metadata, resolutions=resolutions, dry=dry
                    )
                )
            if remove and not dry and not results[0].conflicts:
                await self._remove_merged(place.work, head.id if head is not None else "")
            return results[0].commit

        if dry:
            await execute()
        else:
            with self._outlines.invalidating(place.name, place.work.key):
                before = await self._in_flight.execute_once(known, metadata, execute)
                results = results or [Merged(commit=before, tree=before.tree if before is not None else "")]
        found, is_kept = results[0], False
        if remove and not dry and not found.conflicts:
            is_kept = await known.commit(place.branch) is not None
        return MergeResult(commit=found.commit, tree=found.tree, conflicts=found.conflicts, is_kept=is_kept)

    async def _remove_merged(self, work: WorkBranch, merged: str) -> None:
        """Remove branch and files if they are no more than what was merged, and nobody is at work there."""
        async with self._worktree_locks.lock(work.key):
            if not self._worktree_locks.in_use(work.key):
                await self._workspaces.retire(work, merged)

    async def merge_all(
        self, scope: Scope, author: str, idempotency_key: IdempotencyKey | None = None
    ) -> str:
        """Bring the branch's work on every repository of its project into their default branches, if none of
        it is in conflict; the last merge's commit. MERGE_CONFLICT otherwise, and then nothing was merged,
        unless somebody else changed one of them between two of its merges."""
        project = await self._projects.get_cached(scope.project_id or DEFAULT_PROJECT)
        names = [each.name for each in project.repositories]
        conflicts: list[str] = []
        for name in names if len(names) > 1 else ():
            dry = await self.merge(scope, author, name, dry=True)
            conflicts += [f"{name}: {conflict.path}" for conflict in dry.conflicts]
        last = ""
        for name in () if conflicts else names:
            repository_key = (
                IdempotencyKey(f"{idempotency_key.request_id}/{name}", idempotency_key.fingerprint)
                if idempotency_key
                else None
            )
            merged = await self.merge(scope, author, name, idempotency_key=repository_key)
            conflicts += [conflict.path for conflict in merged.conflicts]
            last = merged.commit.id if merged.commit is not None else last
        if conflicts:
            raise merge_conflict(conflicts)
        return last

    async def merge_target(self, scope: Scope, repository: str = "", target: str = "") -> MergeTarget:
        """What a merge is about, by name: what was left out is what the project and the repository say."""
        place = await self._checkout(scope, repository)
        default = target or await self._origins.fetch(place.origin)
        return MergeTarget(repository=place.repository.name, branch=place.branch, target=default)

    async def fork(self, old: Scope, new: Scope) -> None:
        """Begin the branch of ``new`` with the files of ``old`` as they are now, uncommitted ones included.
        Each repository in which ``old`` has a branch is included. On one branch there is nothing to do."""
        before, after = branch_of(old), branch_of(new)
        if before in ("", NO_BRANCH, after):
            return
        project = await self._projects.get_cached(old.project_id or DEFAULT_PROJECT)
        for repository in project.repositories:
            head = await self._workspaces.head(Checkout(project, repository, before).work)
            if head is not None:
                work = Checkout(project, repository, after).work
                async with self._worktree_locks.lock(work.key):
                    await self._ensure_worktree(work, work.key, head.id)
                self._outlines.invalidate(work.key)

    async def delete_fork(self, new: Scope) -> None:
        """Remove what `fork` has made, for a run that is not begun after all."""
        project = await self._projects.get_cached(new.project_id or DEFAULT_PROJECT)
        await self._remove_worktree(worktree_key(project.id, branch_of(new)), project.id, branch_of(new))

    # --- what is no more --------------------------------------------------------------------------

    async def start(self) -> None:
        """Look what there is."""
        self._worktrees = set(await self._workspaces.keys())

    def has_files(self, scope: Scope) -> bool:
        """Whether there are files of this work."""
        return bool(scope.project_id) and worktree_key(scope.project_id, branch_of(scope)) in self._worktrees

    async def find_scope(self, scope: Scope, repository: str = "") -> Scope:
        """``scope`` in the project that has its work: agents that do not belong to the project of their
        conversation work in their own. Its own comes first; ``repository`` is what is wanted of it."""
        end = worktree_key("", branch_of(scope))
        there = sorted(key.removesuffix(end) for key in self._worktrees if key.endswith(end))
        for project_id in sorted(there, key=lambda each: each != scope.project_id):
            try:
                project = await self._projects.get_cached(project_id)
            except WonderError:  # It is no more.
                continue
            if any(repository in ("", each.name) for each in project.repositories):
                return replace(scope, project_id=project_id)
        return scope

    def conversations(self) -> dict[str, str]:
        """The conversations that there are files of, by the key of their worktree."""
        found = ((key, key.rpartition("-")[2]) for key in self._worktrees)
        return {key: name for key, name in found if name.startswith("conv_")}

    async def delete_conversation_work(self, conversation_id: str) -> None:
        """Remove the branches and the files of a conversation that is no more. What is not there is no
        error. What is still under way for it makes nothing again: CONVERSATION_NOT_FOUND."""
        self._worktree_locks.mark_deleted(conversation_id)
        branch = branch_of(Scope(conversation_id=conversation_id))
        for key, name in list(self.conversations().items()):
            if name == conversation_id:
                await self._remove_worktree(key, key.rpartition("-")[0], branch)

    async def delete_project_work(self, project_id: str) -> None:
        """Remove our copies of its repositories, and all work on them, which is made no more."""
        self._worktree_locks.mark_deleted(project_id)
        for key in [key for key in self._worktrees if key.startswith(f"{project_id}-")]:
            await self._remove_worktree(key, "", "")
        for name in await self._repositories.names():
            if name.startswith(f"{project_id}."):
                await self._repositories.remove(name)

    async def _remove_worktree(self, key: str, project_id: str, branch: str) -> None:
        """Whoever asks may go away: what was begun is done."""
        await asyncio.shield(asyncio.ensure_future(self._remove_worktree_locked(key, project_id, branch)))

    async def _remove_worktree_locked(self, key: str, project_id: str, branch: str) -> None:
        names = await self._repositories.names() if project_id else []
        works = [
            WorkBranch(key=key, folder=name.removeprefix(f"{project_id}."), name=name, branch=branch)
            for name in names
            if name.startswith(f"{project_id}.")
        ]
        async with self._worktree_locks.lock(key):
            await self._release(key)
            await self._workspaces.remove(key, works)
            self._worktrees.discard(key)
        if self._worktree_locks.in_use(key):
            await self._release(key)  # Of a command that began just before the folder was gone.
        self._outlines.invalidate(key)

    # --- pieces -----------------------------------------------------------------------------------

    async def _checkout(self, scope: Scope, repository: str) -> Checkout:
        """The work of ``scope`` on one repository of its project, named unless there is only one."""
        branch, project = (
            work_branch(scope),
            await self._projects.get_cached(scope.project_id or DEFAULT_PROJECT),
        )
        names = [each.name for each in project.repositories]
        if not names:
            raise error(
                Reason.FIELD_INVALID,
                f"The project '{project.name}' has no repository.",
                field="repository",
            )
        if repository not in names and (repository or len(names) > 1):
            raise error(
                Reason.FIELD_INVALID,
                f"Name a repository of the project '{project.name}' (`repository`; at the command line "
                f"--repository): {', '.join(names[:20])}.",
                field="repository",
            )
        place = Checkout(project, project.repositories[names.index(repository) if repository else 0], branch)
        await self._origins.permit(place.origin.url)
        return place

    @asynccontextmanager
    async def _open_checkout(self, place: Checkout) -> AsyncIterator[WorkBranch]:
        """See that branch and files are there, and stay."""
        await self._origins.permit(place.origin.url)
        known, work = self._repositories.of(place.name), place.work
        start: str | None = None
        while True:
            async with self._worktree_locks.lock(work.key):
                if start is not None or await known.commit(work.branch) is not None:
                    await self._ensure_worktree(work, work.key, start or "")
                    yield work
                    return
            start = await self._start_commit(place)  # Which may take long.

    async def _ensure_worktree(self, work: WorkBranch | None, key: str, start: str = "") -> Path:
        """Make it, under the lock."""
        self._worktree_locks.check_not_deleted(key)
        is_new = key not in self._worktrees
        self._worktrees.add(key)  # First, for who removes it then: it is made even if nobody waits any more.
        try:
            return await self._workspaces.begin(work, key, start)
        except WonderError:
            if is_new:
                self._worktrees.discard(key)
            raise

    async def _start_commit(self, place: Checkout) -> str:
        """The commit at which the branch begins; empty where the repository is."""
        known = self._repositories.of(place.name)
        default = await self._origins.fetch(place.origin, refresh=True)
        start = await known.commit(f"origin/{place.branch}") or await known.commit(f"origin/{default}")
        if start is None and place.repository.default_branch:
            raise error(
                Reason.FIELD_INVALID,
                f"The repository '{place.repository.name}' has no branch '{default}'.",
                field="repository",
            )
        return start.id if start is not None else ""

    async def _visible_commit(self, place: Checkout) -> str:
        """The commit that has what the work sees."""
        head = await self._workspaces.head(place.work)
        if head is not None:
            return head.id
        return f"origin/{await self._origins.fetch(place.origin)}"
