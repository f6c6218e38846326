"""Artifacts: a project's documents, with their history and branches (feature F1; guide: docs/artifacts.md).

One repository for each project, which only this server writes. The RPCs of the LibraryService and the
``artifact.*`` actions are two faces of this. Projects come by id or name, empty for ``default``; branches are
``main`` unless named.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.core.frozen import Value
from wonder_server.core.paths import check_branch, check_new_path, check_path, check_prefix
from wonder_server.ports.repositories import (
    Change,
    Commit,
    File,
    Merged,
    Repositories,
    Repository,
    SearchResult,
)
from wonder_server.services.content.commit_metadata import (
    ANONYMOUS,
    CommitRequest,
    InFlightRequests,
    commit_metadata,
)
from wonder_server.services.content.outlines import MAX_FILES, Outline, Outlines
from wonder_server.services.paging import Page, PageRequest, page

T = TypeVar("T")

MAIN: Final = "main"
ABSENT: Final = "none"
"""The etag of what is not there."""

MAX_CONTENT_BYTES: Final = 4 << 20
"""What older versions took, and is still read."""
MAX_WRITE_BYTES: Final = MAX_CONTENT_BYTES - (64 << 10)
"""So that an answer with the content and all that is said of it fits a client with gRPC's default limit."""
MAX_WORDS: Final = 20
DEFAULT_MATCHES: Final = 50
MAX_MATCHES: Final = 500
_HISTORY_PAGE: Final = 50
_ID: Final = re.compile(r"[0-9a-f]{40}\Z")


class Artifact(Value, frozen=True, kw_only=True):
    """One document on one branch. ``revision`` is the newest commit that changed it. ``etag`` is the hash of
    its content; ``none`` of one that was deleted. ``is_damaged``: its content cannot be read."""

    project_id: str
    path: str
    branch: str
    revision: Commit
    etag: str = ABSENT
    size: int = 0
    content: bytes = b""
    is_damaged: bool = False


class Artifacts:
    """The use-cases. PROJECT_NOT_FOUND from all of them; STORAGE_UNAVAILABLE where git does not work."""

    def __init__(self, repositories: Repositories, project_id: Callable[[str], Awaitable[str]]) -> None:
        """``project_id`` gives the id of a project that is named by id or name."""
        self._repositories = repositories
        self._project_id = project_id
        self._in_flight = InFlightRequests()
        self._outlines = Outlines()

    # --- reading ----------------------------------------------------------------------------------

    async def read(self, project: str, path: str, *, branch: str = "", revision_id: str = "") -> Artifact:
        """A document with its content, on its branch or as it was in a revision. ARTIFACT_NOT_FOUND."""
        check_path(path)
        branch = check_branch(branch or MAIN)
        project_id, repository = await self._open(project)
        try:
            at = await _commit_at(repository, revision_id, branch)
            found = await repository.read(at.id, path, MAX_CONTENT_BYTES) if at else None
            if at is None or found is None:
                raise _artifact_not_found(path, branch)
            newest = await _newest(repository, at.id, [path])
        except WonderError as problem:
            raise _with_artifact_name(path, branch, problem.fault) from problem
        return Artifact(
            project_id=project_id,
            path=path,
            branch=branch,
            revision=newest.get(path, at),
            etag=found.id,
            size=found.size,
            content=found.content,
        )

    async def list(
        self, project: str, request: PageRequest, *, branch: str = "", prefix: str = ""
    ) -> Page[Artifact]:
        """Documents by path, without content. ARTIFACT_NOT_FOUND for a branch that is not there."""
        check_prefix(prefix)
        branch = check_branch(branch or MAIN)
        project_id, repository = await self._open(project)
        scope = ["artifacts", project_id, branch, prefix]
        after, limit = request.cursor(scope, ""), request.limit()
        head = await _branch(repository, branch)
        if head is None:
            return Page(items=())
        files = await repository.files(head.id, prefix, after, limit + 1)
        newest = await _newest(repository, head.id, [file.path for file in files[:limit]])
        found = [
            Artifact(
                project_id=project_id,
                path=file.path,
                branch=branch,
                revision=newest.get(file.path, head),
                etag=file.id,
                size=file.size,
                is_damaged=file.is_damaged,
            )
            for file in files
        ]
        return page(found, limit, scope, lambda artifact: artifact.path)

    async def index(self, project: str) -> Outline:
        """What documents there are on ``main``, kept until something is written."""
        project_id, repository = await self._open(project)

        async def files() -> Sequence[File]:
            return await repository.files(MAIN, limit=MAX_FILES + 1)

        return await self._outlines.get(project_id, "", files) or Outline()

    async def search(
        self, project: str, query: str, *, branch: str = "", prefix: str = "", limit: int = 0
    ) -> SearchResult:
        """Lines and paths that contain all words of ``query``."""
        check_prefix(prefix)
        words = search_words(query)
        if not 0 <= limit <= MAX_MATCHES:
            raise error(Reason.FIELD_INVALID, f"limit lies between 0 and {MAX_MATCHES}.", field="limit")
        branch = check_branch(branch or MAIN)
        _, repository = await self._open(project)
        head = await _branch(repository, branch)
        if head is None:
            return SearchResult()
        return await repository.search(head.id, words, prefix, limit or DEFAULT_MATCHES)

    async def revisions(
        self, project: str, request: PageRequest, *, branch: str = "", path: str = ""
    ) -> Page[Commit]:
        """Commits of a branch, or those that changed one document, newest first. Later pages go on from
        where the first one began, whatever is written meanwhile."""
        if path:
            check_path(path)
        branch = check_branch(branch or MAIN)
        project_id, repository = await self._open(project)
        scope = ["revisions", project_id, branch, path]
        cursor, limit = request.cursor(scope, []), request.limit()
        head = await _branch(repository, branch)
        at, skip = (str(cursor[0]), int(cursor[1])) if cursor else (head.id if head else "", 0)
        found = await repository.history(at, [path] if path else [], skip, limit + 1) if at else []
        if path and not found and not skip:
            raise _artifact_not_found(path, branch)
        return page(found, limit, scope, lambda commit: [at, skip + found.index(commit) + 1])

    # --- writing ----------------------------------------------------------------------------------

    async def write(
        self,
        project: str,
        path: str,
        content: bytes | None,
        *,
        branch: str = "",
        etag: str = "",
        commit: CommitRequest = ANONYMOUS,
    ) -> Artifact:
        """Write a document, or delete it if ``content`` is None, as one commit. Return the new state of the
        document without its content. A new branch starts at ``main``.

        With an ``etag`` the document must have it; ``none`` means that the document must not exist. Raises
        FIELD_INVALID, PAYLOAD_TOO_LARGE, ETAG_MISMATCH, REQUEST_ID_REUSED, and ARTIFACT_NOT_FOUND for the
        deletion of a document that does not exist."""
        if content is None:
            check_path(path)  # A name that older versions accepted can still be deleted.
        else:
            check_new_path(path)
        branch = check_branch(branch or MAIN)
        if content is not None and len(content) > MAX_WRITE_BYTES:
            raise error(
                Reason.PAYLOAD_TOO_LARGE,
                f"content has {len(content)} bytes; the maximum is {MAX_WRITE_BYTES}.",
                field="content",
                limit=str(MAX_WRITE_BYTES),
            )
        metadata = commit_metadata(commit, path)
        project_id, repository = await self._open(project)

        async def execute() -> Commit:
            expected = {path: "" if etag == ABSENT else etag} if etag else None
            if content is None and not etag:
                head = await repository.commit(branch) or await repository.commit(MAIN)
                if head is None or await repository.read(head.id, path, MAX_CONTENT_BYTES) is None:
                    raise _artifact_not_found(path, branch)
            change = Change(path=path, content=content)
            return await repository.write(branch, [change], metadata, begin=MAIN, expected=expected)

        made = await self._invalidating(
            project_id, self._in_flight.execute_once(repository, metadata, execute)
        )
        newest = await _newest(repository, made.id, [path]) if path not in made.paths else {}
        return Artifact(
            project_id=project_id,
            path=path,
            branch=branch,
            revision=newest.get(path, made),
            etag=ABSENT if content is None else repository.id_of(content),
            size=len(content or b""),
        )

    async def merge(
        self,
        project: str,
        source: str,
        *,
        target: str = "",
        commit: CommitRequest = ANONYMOUS,
        resolutions: Sequence[Change] = (),
        dry_run: bool = False,
    ) -> Merged:
        """Merge the branch ``source`` into ``target`` (empty: ``main``).

        If documents conflict, nothing is merged and the result lists the conflicts. ``resolutions`` gives
        the merged content of every conflicting document. ``dry_run`` changes nothing. Raises
        ARTIFACT_NOT_FOUND for a branch that does not exist, other than ``main``."""
        check_resolutions(resolutions)
        check_branch(source, "source_branch")
        target = check_branch(target or MAIN, "target_branch")
        metadata = commit_metadata(commit, f"Merge {source} into {target}")
        project_id, repository = await self._open(project)
        if await repository.commit(source) is None:
            raise _branch_not_found(source, "source_branch")
        await _branch(repository, target, "target_branch")
        if dry_run:
            return await repository.merge(target, source, metadata, resolutions=resolutions, dry=True)
        conflicts: list[Merged] = []

        async def execute() -> Commit | None:
            merged = await repository.merge(target, source, metadata, resolutions=resolutions)
            conflicts.append(merged)
            return merged.commit

        made = await self._invalidating(
            project_id, self._in_flight.execute_once(repository, metadata, execute)
        )
        return conflicts[0] if conflicts else Merged(commit=made, tree=made.tree if made is not None else "")

    async def delete_project(self, project_id: str) -> None:
        """Remove all artifacts of a project, with their history."""
        await self._invalidating(project_id, self._repositories.remove(project_id))

    async def _invalidating(self, project_id: str, work: Coroutine[Any, Any, T]) -> T:
        """Carry it out to its end, whoever still waits: what was kept of the project is old only then."""

        async def run_and_invalidate() -> T:
            with self._outlines.invalidating(project_id):
                return await work

        return await asyncio.shield(asyncio.ensure_future(run_and_invalidate()))

    async def _open(self, project: str) -> tuple[str, Repository]:
        project_id = await self._project_id(project)
        return project_id, self._repositories.of(project_id)


def check_resolutions(resolutions: Sequence[Change]) -> None:
    """FIELD_INVALID, PAYLOAD_TOO_LARGE for what a file in conflict cannot become, or becomes twice."""
    named: set[str] = set()
    for number, each in enumerate(resolutions):
        check_path(each.path, f"resolutions[{number}].path")
        if each.path in named:
            raise error(
                Reason.FIELD_INVALID,
                f"'{each.path}' is resolved twice: say once what becomes of it.",
                field=f"resolutions[{number}].path",
            )
        named.add(each.path)
        if each.content is not None and len(each.content) > MAX_WRITE_BYTES:
            raise error(
                Reason.PAYLOAD_TOO_LARGE,
                f"A file has at most {MAX_WRITE_BYTES} bytes.",
                field=f"resolutions[{number}].content",
                limit=str(MAX_WRITE_BYTES),
            )


def search_words(query: str) -> Sequence[str]:
    """The words of a search. FIELD_INVALID if there is none, or far too many."""
    words = query.replace("\0", " ").split()
    if not words:
        raise error(Reason.FIELD_INVALID, "query is required: give words to look for.", field="query")
    if len(words) > MAX_WORDS or len(query.encode("utf-8", "replace")) > 1_000:
        raise error(
            Reason.FIELD_INVALID, f"query has at most {MAX_WORDS} words and 1,000 bytes.", field="query"
        )
    return words


async def _branch(repository: Repository, branch: str, field: str = "branch") -> Commit | None:
    """The branch's newest commit; None for ``main`` before anything was written."""
    head = await repository.commit(branch)
    if head is None and branch != MAIN:
        raise _branch_not_found(branch, field)
    return head


async def _commit_at(repository: Repository, revision_id: str, branch: str) -> Commit | None:
    if not revision_id:
        return await _branch(repository, branch)
    found = await repository.commit(revision_id) if _ID.match(revision_id) else None
    if found is None:
        raise error(
            Reason.ARTIFACT_NOT_FOUND,
            "There is no such revision; give the whole id, as the list of revisions shows it.",
            field="revision_id",
            id=revision_id[:64],
        )
    return found


async def _newest(repository: Repository, at: str, paths: Iterable[str]) -> dict[str, Commit]:
    """For each path the newest commit that changed it."""
    missing, found, skip = set(paths), dict[str, Commit](), 0
    while missing:
        commits = await repository.history(at, sorted(missing), skip, _HISTORY_PAGE)
        before = len(missing)
        for commit in commits:
            for path in missing.intersection(commit.paths):
                found[path] = commit
            missing.difference_update(commit.paths)
        if len(commits) < _HISTORY_PAGE:
            break
        # Fewer paths make another list: it begins anew.
        skip = 0 if len(missing) < before else skip + _HISTORY_PAGE
    return found


def _with_artifact_name(path: str, branch: str, fault: Fault) -> WonderError:
    """The error with the document's name, if the repository, which does not know it, raised it."""
    if fault.reason is not Reason.STORAGE_UNAVAILABLE:
        return WonderError(fault)
    message = f"The artifact '{path}' on '{branch}' cannot be read. {fault.message}"
    return WonderError(replace(fault, message=message, metadata=fault.metadata | {"id": path}))


def _artifact_not_found(path: str, branch: str) -> WonderError:
    return error(
        Reason.ARTIFACT_NOT_FOUND, f"There is no artifact '{path}' on '{branch}'.", field="path", id=path
    )


def _branch_not_found(branch: str, field: str) -> WonderError:
    return error(
        Reason.ARTIFACT_NOT_FOUND, f"There is no branch '{branch}' of artifacts.", field=field, id=branch
    )
