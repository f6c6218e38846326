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

from wonder_server.core.commands import NO_BRANCH, Scope, branch_of
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
    Found,
    Merged,
    Repositories,
)
from wonder_server.ports.workspaces import Origins, Work, Workspaces
from wonder_server.ports.worktrees import Worktree
from wonder_server.services.artifacts import ABSENT, MAX_MATCHES, check_resolutions, search_words
from wonder_server.services.catalog_writes import Once
from wonder_server.services.commits import Asked, signed_by
from wonder_server.services.holds import Holds
from wonder_server.services.outlines import MAX_FILES, MAX_LINES, Outline, Outlines
from wonder_server.services.places import (
    Brought,
    Changed,
    Listed,
    Named,
    Place,
    check_head,
    in_conflict,
    key_of,
    work_branch,
)
from wonder_server.services.projects import MAX_REPOSITORIES

MAX_FILE_BYTES: Final = 4 << 20
MAX_PATCH_BYTES: Final = 1 << 20
MAX_LISTED: Final = 5_000
MAX_INDEXED: Final = 10
"""Repositories of a project that its index tells of."""

INDEX_PATIENCE_S: Final = 2.0
INDEX_AGE_S: Final = 300.0
"""Of what is known of a repository on which nothing was done: others may change it, and do not tell."""


class Projects(Protocol):
    """What is needed of the library."""

    async def known(self, key: str) -> Project:
        """PROJECT_NOT_FOUND if there is none."""
        ...


class Repos:
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
        self._asked = Asked()
        self._outlines = Outlines()
        self._there: set[str] = set()
        self._holds = Holds()

    async def open(self, scope: Scope) -> Worktree:
        """See the port ``Worktrees``. Until `touched` is said, a merge removes none of it."""
        branch, project = work_branch(scope), await self._projects.known(scope.project_id or DEFAULT_PROJECT)
        key = key_of(project.id, branch)
        self._holds.enter(key)
        try:
            async with self._holds.alone(key):
                folder = await self._begin(None, key)
            for repository in project.repositories:
                async with self._begun(Place(project, repository, branch)):
                    pass
        except BaseException:
            self._holds.leave(key)
            raise
        self._outlines.changed(key)
        only = project.repositories[0].name if len(project.repositories) == 1 else ""
        return Worktree(key=key, folder=folder, start=only)

    async def look(
        self,
        known: Sequence[Repository],
        wanted: Sequence[Repository],
        network: NetworkPolicy | None = None,
    ) -> None:
        """See that those ``wanted`` that are not ``known`` can be used, as far as that can be said at once,
        by a project that may reach ``network``. FIELD_INVALID, PERMISSION_DENIED."""
        before = {each.url for each in known}
        for index, each in enumerate(wanted[:MAX_REPOSITORIES]):
            if each.url not in before:
                field = f"project.repositories[{index}].url"
                check_repository_url(each.url, field)
                check_no_password(each.url, field)
                try:
                    await self._origins.look(each.url, network or NetworkPolicy())
                except WonderError as problem:
                    raise WonderError(dataclasses.replace(problem.fault, field=field)) from None

    # --- reading ----------------------------------------------------------------------------------

    async def tree(
        self, scope: Scope, repository: str = "", *, prefix: str = "", after: str = "", limit: int = 0
    ) -> Listed:
        """Files by path, at most ``limit`` (0: 1,000)."""
        check_prefix(prefix)
        limit = min(limit or 1_000, MAX_LISTED)
        place = await self._place(scope, repository)
        found = await self._repositories.of(place.name).files(await self._at(place), prefix, after, limit + 1)
        return Listed(files=tuple(found[:limit]), truncated=len(found) > limit)

    async def index(self, scope: Scope) -> Mapping[str, Outline | None]:
        """What files there are, by repository; of the first ten. None where that cannot be said within two
        seconds."""
        branch, project = work_branch(scope), await self._projects.known(scope.project_id or DEFAULT_PROJECT)
        indexed = project.repositories[:MAX_INDEXED]
        most = MAX_LINES // max(len(indexed), 1)

        async def told(repository: Repository) -> Outline | None:
            place = Place(project, repository, branch)
            # Before anything is done on the branch, its files are those of all others like it.
            begun = place.work.key in self._there
            return await self._outlines.get(
                place.work.key if begun else place.name,
                repository.name,
                partial(self._indexed, place),
                most=most,
                seconds=float("inf") if begun else INDEX_AGE_S,
            )

        found = await asyncio.gather(*[told(repository) for repository in indexed])
        return {repository.name: outline for repository, outline in zip(indexed, found, strict=True)}

    async def _indexed(self, place: Place) -> Sequence[File] | None:
        try:
            async with asyncio.timeout(INDEX_PATIENCE_S):
                await self._origins.permit(place.origin.url)
                at = await self._at(place)
            return await self._repositories.of(place.name).files(at, limit=MAX_FILES + 1)
        except (TimeoutError, WonderError):  # It is for those who read it to hear why.
            return None

    def touched(self, key: str) -> None:
        """A command has run among the files of this worktree, for which it was opened."""
        self._holds.leave(key)
        self._outlines.changed(key)

    async def read(self, scope: Scope, path: str, repository: str = "") -> File:
        """One file with its content. ARTIFACT_NOT_FOUND, PAYLOAD_TOO_LARGE."""
        check_path(path)
        place = await self._place(scope, repository)
        found = await self._repositories.of(place.name).read(await self._at(place), path, MAX_FILE_BYTES)
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
    ) -> Found:
        """Lines and paths that contain all words of ``query``."""
        check_prefix(prefix)
        words, most = search_words(query), min(limit or 50, MAX_MATCHES)
        place = await self._place(scope, repository)
        return await self._repositories.of(place.name).search(await self._at(place), words, prefix, most)

    async def diff(
        self, scope: Scope, repository: str = "", *, base_branch: str = "", paths: Sequence[str] = ()
    ) -> Changed:
        """What the branch has changed. FIELD_INVALID for a base branch that is not there."""
        for number, path in enumerate(paths):
            check_path(path, f"paths[{number}]")
        place = await self._place(scope, repository)
        base = check_branch(base_branch, "base_branch") if base_branch else ""
        default = await self._origins.fetch(place.origin)
        base, known = base or default, self._repositories.of(place.name)
        if base_branch and await known.commit(f"origin/{base}") is None:
            raise error(Reason.FIELD_INVALID, f"The repository has no branch '{base}'.", field="base_branch")
        head = await self._workspaces.now(place.work)
        if head is None:
            start = await known.commit(f"origin/{base}")
            nothing = Diff(base=start.id if start else "")
            return Changed(branch=place.branch, base_branch=base, head=None, diff=nothing)
        found = await known.diff(f"origin/{base}", head.id, paths, MAX_PATCH_BYTES)
        return Changed(branch=place.branch, base_branch=base, head=head, diff=found)

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
        async with self._begun(await self._place(scope, repository)) as work:
            with self._outlines.changing(work.key):
                return await self._workspaces.put(work, path, content, expected) or ABSENT

    async def commit(self, scope: Scope, author: str, message: str, repository: str = "") -> Commit | None:
        """Commit what was changed; the branch's newest commit, None of a branch without any."""
        signed = signed_by(author, message or "Work of a conversation")
        place = await self._place(scope, repository)
        if await self._workspaces.now(place.work) is None:
            return None
        with self._outlines.changing(place.work.key):
            return await self._workspaces.commit(place.work, signed)

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
        place = await self._place(scope, repository)
        default = await self._origins.fetch(place.origin, afresh=True)
        source = check_branch(source, "source_branch") if source else default
        if await self._repositories.of(place.name).commit(f"origin/{source}") is None:
            raise error(
                Reason.FIELD_INVALID, f"The repository has no branch '{source}'.", field="source_branch"
            )
        signed = signed_by(author, f"Merge {source} into {place.branch}")
        async with self._begun(place) as work:
            with self._outlines.changing(work.key):
                return await self._workspaces.update(work, f"origin/{source}", signed, resolutions)

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
        once: Once | None = None,
    ) -> Brought:
        """Bring the branch's work, with what nobody has committed, into the repository's branch ``target``
        (empty: its default). Conflicts are in the answer, and then nothing was merged.

        ``expected``: what `diff` must say is the head: ETAG_MISMATCH otherwise. ``remove``: branch and files
        are removed once they are merged, unless something was written since, or a command is running there:
        then the answer says that they were kept. RESOURCE_IN_USE if the repository does not take it. A
        request that comes again is answered with its merge, and nothing is done."""
        check_resolutions(resolutions)
        place = await self._place(scope, repository)
        default = await self._origins.fetch(place.origin)
        target = check_branch(target, "target_branch") if target else default
        signed = signed_by(author, message or f"Merge {place.branch} into {target}", once)
        known = self._repositories.of(place.name)
        met: list[Merged] = []

        async def act() -> Commit | None:
            head = await self._workspaces.now(place.work)
            if head is None:
                met.append(Merged(commit=await known.commit(f"origin/{target}")))
            else:
                check_head(expected, head)
                if not dry:
                    same = head.id if expected else ""
                    head = await self._workspaces.commit(place.work, None, same) or head
                met.append(
                    await self._origins.publish(
                        place.origin, target, head.id, signed, resolutions=resolutions, dry=dry
                    )
                )
            if remove and not dry and not met[0].conflicts:
                await self._retire(place.work, head.id if head is not None else "")
            return met[0].commit

        if dry:
            await act()
        else:
            with self._outlines.changing(place.name, place.work.key):
                before = await self._asked.once(known, signed, act)
                met = met or [Merged(commit=before, tree=before.tree if before is not None else "")]
        found, is_kept = met[0], False
        if remove and not dry and not found.conflicts:
            is_kept = await known.commit(place.branch) is not None
        return Brought(commit=found.commit, tree=found.tree, conflicts=found.conflicts, is_kept=is_kept)

    async def _retire(self, work: Work, merged: str) -> None:
        """Remove branch and files if they are no more than what was merged, and nobody is at work there."""
        async with self._holds.alone(work.key):
            if not self._holds.is_entered(work.key):
                await self._workspaces.retire(work, merged)

    async def merge_all(self, scope: Scope, author: str, once: Once | None = None) -> str:
        """Bring the branch's work on every repository of its project into their default branches, if none of
        it is in conflict; the last merge's commit. MERGE_CONFLICT otherwise, and then nothing was merged,
        unless somebody else changed one of them between two of its merges."""
        project = await self._projects.known(scope.project_id or DEFAULT_PROJECT)
        names = [each.name for each in project.repositories]
        met: list[str] = []
        for name in names if len(names) > 1 else ():
            dry = await self.merge(scope, author, name, dry=True)
            met += [f"{name}: {conflict.path}" for conflict in dry.conflicts]
        last = ""
        for name in () if met else names:
            own = Once(f"{once.request_id}/{name}", once.fingerprint) if once else None
            merged = await self.merge(scope, author, name, once=own)
            met += [conflict.path for conflict in merged.conflicts]
            last = merged.commit.id if merged.commit is not None else last
        if met:
            raise in_conflict(met)
        return last

    async def named(self, scope: Scope, repository: str = "", target: str = "") -> Named:
        """What a merge is about, by name: what was left out is what the project and the repository say."""
        place = await self._place(scope, repository)
        default = target or await self._origins.fetch(place.origin)
        return Named(repository=place.repository.name, branch=place.branch, target=default)

    async def fork(self, old: Scope, new: Scope) -> None:
        """Begin the branch of ``new`` with the files of ``old`` as they are now, uncommitted ones included.
        Each repository in which ``old`` has a branch is included. On one branch there is nothing to do."""
        before, after = branch_of(old), branch_of(new)
        if before in ("", NO_BRANCH, after):
            return
        project = await self._projects.known(old.project_id or DEFAULT_PROJECT)
        for repository in project.repositories:
            head = await self._workspaces.now(Place(project, repository, before).work)
            if head is not None:
                work = Place(project, repository, after).work
                async with self._holds.alone(work.key):
                    await self._begin(work, work.key, head.id)
                self._outlines.changed(work.key)

    async def forget_fork(self, new: Scope) -> None:
        """Remove what `fork` has made, for a run that is not begun after all."""
        project = await self._projects.known(new.project_id or DEFAULT_PROJECT)
        await self._remove(key_of(project.id, branch_of(new)), project.id, branch_of(new))

    # --- what is no more --------------------------------------------------------------------------

    async def start(self) -> None:
        """Look what there is."""
        self._there = set(await self._workspaces.keys())

    def has_begun(self, scope: Scope) -> bool:
        """Whether there are files of this work."""
        return bool(scope.project_id) and key_of(scope.project_id, branch_of(scope)) in self._there

    async def sought(self, scope: Scope, repository: str = "") -> Scope:
        """``scope`` in the project that has its work: agents that do not belong to the project of their
        conversation work in their own. Its own comes first; ``repository`` is what is wanted of it."""
        end = key_of("", branch_of(scope))
        there = sorted(key.removesuffix(end) for key in self._there if key.endswith(end))
        for project_id in sorted(there, key=lambda each: each != scope.project_id):
            try:
                project = await self._projects.known(project_id)
            except WonderError:  # It is no more.
                continue
            if any(repository in ("", each.name) for each in project.repositories):
                return replace(scope, project_id=project_id)
        return scope

    def conversations(self) -> dict[str, str]:
        """The conversations that there are files of, by the key of their worktree."""
        found = ((key, key.rpartition("-")[2]) for key in self._there)
        return {key: name for key, name in found if name.startswith("conv_")}

    async def forget_conversation(self, conversation_id: str) -> None:
        """Remove the branches and the files of a conversation that is no more. What is not there is no
        error. What is still under way for it makes nothing again: CONVERSATION_NOT_FOUND."""
        self._holds.forget(conversation_id)
        branch = branch_of(Scope(conversation_id=conversation_id))
        for key, name in list(self.conversations().items()):
            if name == conversation_id:
                await self._remove(key, key.rpartition("-")[0], branch)

    async def forget_project(self, project_id: str) -> None:
        """Remove our copies of its repositories, and all work on them, which is made no more."""
        self._holds.forget(project_id)
        for key in [key for key in self._there if key.startswith(f"{project_id}-")]:
            await self._remove(key, "", "")
        for name in await self._repositories.names():
            if name.startswith(f"{project_id}."):
                await self._repositories.remove(name)

    async def _remove(self, key: str, project_id: str, branch: str) -> None:
        """Whoever asks may go away: what was begun is done."""
        await asyncio.shield(asyncio.ensure_future(self._removed(key, project_id, branch)))

    async def _removed(self, key: str, project_id: str, branch: str) -> None:
        names = await self._repositories.names() if project_id else []
        works = [
            Work(key=key, folder=name.removeprefix(f"{project_id}."), name=name, branch=branch)
            for name in names
            if name.startswith(f"{project_id}.")
        ]
        async with self._holds.alone(key):
            await self._release(key)
            await self._workspaces.remove(key, works)
            self._there.discard(key)
        if self._holds.is_entered(key):
            await self._release(key)  # Of a command that began just before the folder was gone.
        self._outlines.changed(key)

    # --- pieces -----------------------------------------------------------------------------------

    async def _place(self, scope: Scope, repository: str) -> Place:
        """The work of ``scope`` on one repository of its project, named unless there is only one."""
        branch, project = work_branch(scope), await self._projects.known(scope.project_id or DEFAULT_PROJECT)
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
        place = Place(project, project.repositories[names.index(repository) if repository else 0], branch)
        await self._origins.permit(place.origin.url)
        return place

    @asynccontextmanager
    async def _begun(self, place: Place) -> AsyncIterator[Work]:
        """See that branch and files are there, and stay."""
        await self._origins.permit(place.origin.url)
        known, work = self._repositories.of(place.name), place.work
        start: str | None = None
        while True:
            async with self._holds.alone(work.key):
                if start is not None or await known.commit(work.branch) is not None:
                    await self._begin(work, work.key, start or "")
                    yield work
                    return
            start = await self._start(place)  # Which may take long.

    async def _begin(self, work: Work | None, key: str, start: str = "") -> Path:
        """Make it, under the lock."""
        self._holds.refuse_forgotten(key)
        is_new = key not in self._there
        self._there.add(key)  # First, for who removes it then: it is made even if nobody waits any more.
        try:
            return await self._workspaces.begin(work, key, start)
        except WonderError:
            if is_new:
                self._there.discard(key)
            raise

    async def _start(self, place: Place) -> str:
        """The commit at which the branch begins; empty where the repository is."""
        known = self._repositories.of(place.name)
        default = await self._origins.fetch(place.origin, afresh=True)
        start = await known.commit(f"origin/{place.branch}") or await known.commit(f"origin/{default}")
        if start is None and place.repository.default_branch:
            raise error(
                Reason.FIELD_INVALID,
                f"The repository '{place.repository.name}' has no branch '{default}'.",
                field="repository",
            )
        return start.id if start is not None else ""

    async def _at(self, place: Place) -> str:
        """The commit that has what the work sees."""
        head = await self._workspaces.now(place.work)
        if head is not None:
            return head.id
        return f"origin/{await self._origins.fetch(place.origin)}"
