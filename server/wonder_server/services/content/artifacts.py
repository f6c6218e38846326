"""Artifacts: documents of a project, with history and branches (feature F1; guide: docs/artifacts.md).

Each project has one repository, which only this server writes. The RPCs of the LibraryService and the
``artifact.*`` actions call this service. A project is named by id or name, empty for ``default``. An empty
branch is ``main``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Final, TypeVar

from wonder_server.core.errors import Fault, Reason, WonderError, error, not_found
from wonder_server.core.frozen import Value
from wonder_server.core.paths import check_branch, check_new_path, check_path, check_prefix
from wonder_server.ports.repositories import (
    Change,
    Commit,
    CommitMetadata,
    File,
    Merged,
    Repository,
    SearchResult,
)
from wonder_server.ports.scoped import ScopedRepositories
from wonder_server.services.content.commit_metadata import (
    ANONYMOUS,
    CommitRequest,
    commit_metadata,
)
from wonder_server.services.content.outlines import MAX_FILES, Outline, Outlines
from wonder_server.services.content.removed_commits import RemovedCommits
from wonder_server.services.idempotency import RequestLocks
from wonder_server.services.paging import Page, PageRequest, page

T = TypeVar("T")

MAIN: Final = "main"
ABSENT: Final = "none"
"""Etag of a document that does not exist."""

MAX_CONTENT_BYTES: Final = 4 << 20
"""Maximum size to read; older versions accepted such documents."""
MAX_WRITE_BYTES: Final = MAX_CONTENT_BYTES - (64 << 10)
"""Maximum size to write. A response with the content and its metadata stays below the default message limit
of gRPC clients."""
MAX_WORDS: Final = 20
DEFAULT_MATCHES: Final = 50
MAX_MATCHES: Final = 500
_HISTORY_PAGE: Final = 50
_ID: Final = re.compile(r"[0-9a-f]{40}\Z")


class Artifact(Value, frozen=True, kw_only=True):
    """One document on one branch. ``revision`` is the newest commit that changed it. ``etag`` is the hash of
    its content, ``none`` after a deletion. ``is_damaged``: its content is unreadable."""

    project_id: str
    path: str
    branch: str
    revision: Commit
    etag: str = ABSENT
    size: int = 0
    content: bytes = b""
    is_damaged: bool = False


class Artifacts:
    """The use cases of artifacts for one access scope. Every method raises PROJECT_NOT_FOUND, and
    STORAGE_UNAVAILABLE if git fails."""

    def __init__(
        self,
        repositories: ScopedRepositories,
        project_id: Callable[[str], Awaitable[str]],
        removed: RemovedCommits | None = None,
    ) -> None:
        """``project_id`` returns the id of the project with this id or name. Without ``removed`` no request
        is recognized after the deletion of its project."""
        self._repositories = repositories
        self._removed = removed
        self._project_id = project_id
        self._requests = RequestLocks()
        self._outlines = Outlines()

    def within(
        self, repositories: ScopedRepositories, project_id: Callable[[str], Awaitable[str]]
    ) -> Artifacts:
        """Return the service over another view of the same repositories, with the same locks and outlines."""
        made = copy(self)
        made._repositories, made._project_id = repositories, project_id
        return made

    # --- reading ----------------------------------------------------------------------------------

    async def read(self, project: str, path: str, *, branch: str = "", revision_id: str = "") -> Artifact:
        """Return a document with its content, from its branch or from a revision. Raises
        ARTIFACT_NOT_FOUND."""
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
        """Return the documents by path, without content. Raises ARTIFACT_NOT_FOUND for a branch that does not
        exist."""
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
        """Return the outline of ``main``, cached until the next write."""
        project_id, repository = await self._open(project)

        async def files() -> Sequence[File]:
            return await repository.files(MAIN, limit=MAX_FILES + 1)

        return await self._outlines.get(project_id, "", files) or Outline()

    async def search(
        self, project: str, query: str, *, branch: str = "", prefix: str = "", limit: int = 0
    ) -> SearchResult:
        """Return the lines and paths that contain all words of ``query``, at most ``limit`` (0: 50)."""
        check_prefix(prefix)
        words = search_words(query)
        if not 0 <= limit <= MAX_MATCHES:
            raise error(
                Reason.FIELD_INVALID,
                f"limit is {limit}; use 1 to {MAX_MATCHES}, or 0 for {DEFAULT_MATCHES}.",
                field="limit",
            )
        branch = check_branch(branch or MAIN)
        _, repository = await self._open(project)
        head = await _branch(repository, branch)
        if head is None:
            return SearchResult()
        return await repository.search(head.id, words, prefix, limit or DEFAULT_MATCHES)

    async def revisions(
        self, project: str, request: PageRequest, *, branch: str = "", path: str = ""
    ) -> Page[Commit]:
        """Return the commits of a branch, or those that changed one document, newest first. Later pages
        continue from the commit of the first page, without commits made meanwhile."""
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

        if (removed := await self._removed_commit(commit, metadata)) is not None:
            return self._written(*removed, path, branch, content)
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
            project_id,
            self._requests.execute(
                commit.idempotency_key, lambda: repository.find_by_key(metadata.key), execute
            ),
        )
        newest = await _newest(repository, made.id, [path]) if path not in made.paths else {}
        return self._written(project_id, newest.get(path, made), path, branch, content)

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
        if (removed := await self._removed_commit(commit, metadata)) is not None:
            return Merged(commit=removed[1], tree=removed[1].tree)
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
            project_id,
            self._requests.execute(
                commit.idempotency_key, lambda: repository.find_by_key(metadata.key), execute
            ),
        )
        return conflicts[0] if conflicts else Merged(commit=made, tree=made.tree if made is not None else "")

    async def delete_project(self, project_id: str) -> None:
        """Delete all artifacts of a project with their history. Repeated requests keep their answers."""
        if self._removed is not None:
            await self._removed.keep(project_id, self._repositories.of(project_id))
        await self._invalidating(project_id, self._repositories.remove(project_id))

    async def _invalidating(self, project_id: str, work: Coroutine[object, None, T]) -> T:
        """Run ``work`` to completion even if the caller is cancelled, then invalidate the project's
        outlines."""

        async def run_and_invalidate() -> T:
            with self._outlines.invalidating(project_id):
                return await work

        return await asyncio.shield(asyncio.ensure_future(run_and_invalidate()))

    def _written(
        self, project_id: str, revision: Commit, path: str, branch: str, content: bytes | None
    ) -> Artifact:
        return Artifact(
            project_id=project_id,
            path=path,
            branch=branch,
            revision=revision,
            etag=ABSENT if content is None else self._repositories.id_of(content),
            size=len(content or b""),
        )

    async def _removed_commit(
        self, commit: CommitRequest, metadata: CommitMetadata
    ) -> tuple[str, Commit] | None:
        return await self._removed.find(commit.idempotency_key, metadata) if self._removed else None

    async def _open(self, project: str) -> tuple[str, Repository]:
        project_id = await self._project_id(project)
        return project_id, self._repositories.of(project_id)


def check_resolutions(resolutions: Sequence[Change]) -> None:
    """Raise FIELD_INVALID or PAYLOAD_TOO_LARGE if a resolution is invalid, or if a file is resolved twice."""
    named: set[str] = set()
    for number, each in enumerate(resolutions):
        check_path(each.path, f"resolutions[{number}].path")
        if each.path in named:
            raise error(
                Reason.FIELD_INVALID,
                f"resolutions[{number}] resolves '{each.path}' again. Resolve each file once.",
                field=f"resolutions[{number}].path",
            )
        named.add(each.path)
        if each.content is not None and len(each.content) > MAX_WRITE_BYTES:
            raise error(
                Reason.PAYLOAD_TOO_LARGE,
                f"content has {len(each.content)} bytes; the maximum is {MAX_WRITE_BYTES}.",
                field=f"resolutions[{number}].content",
                limit=str(MAX_WRITE_BYTES),
            )


def search_words(query: str) -> Sequence[str]:
    """Return the words of a query. Raises FIELD_INVALID if it has none or too many."""
    words = query.replace("\0", " ").split()
    if not words:
        raise error(
            Reason.FIELD_INVALID, "query has no words. Give one or more words to search for.", field="query"
        )
    if len(words) > MAX_WORDS or len(query.encode("utf-8", "replace")) > 1_000:
        raise error(
            Reason.FIELD_INVALID,
            f"query has {len(words)} words and {len(query.encode('utf-8', 'replace'))} bytes; the maximum is "
            f"{MAX_WORDS} words and 1,000 bytes.",
            field="query",
        )
    return words


async def _branch(repository: Repository, branch: str, field: str = "branch") -> Commit | None:
    """Return the newest commit of a branch; None for ``main`` before the first write."""
    head = await repository.commit(branch)
    if head is None and branch != MAIN:
        raise _branch_not_found(branch, field)
    return head


async def _commit_at(repository: Repository, revision_id: str, branch: str) -> Commit | None:
    if not revision_id:
        return await _branch(repository, branch)
    found = await repository.commit(revision_id) if _ID.match(revision_id) else None
    if found is None:
        raise not_found(
            Reason.ARTIFACT_NOT_FOUND,
            revision_id,
            field="revision_id",
            noun="revision",
            next_step="Use a complete id of `wonder artifact history` or ListArtifactRevisions.",
        )
    return found


async def _newest(repository: Repository, at: str, paths: Iterable[str]) -> dict[str, Commit]:
    """Return the newest commit that changed each path, without those of a side that a merge discarded."""
    found: dict[str, Commit] = {}
    pending = [(at, set(paths))]
    while pending:
        begin, missing = pending.pop()
        merge = await _newest_before_merge(repository, begin, missing, found)
        if merge is None:
            continue
        for parent in merge.parents:
            changed = await repository.diff(parent, merge.id, sorted(missing), 1)
            same = missing - {file.path for file in changed.files}
            if same:
                pending.append((parent, same))
                missing -= same
        found |= dict.fromkeys(missing, merge)
    return found


async def _newest_before_merge(
    repository: Repository, at: str, missing: set[str], found: dict[str, Commit]
) -> Commit | None:
    """Move paths from ``missing`` to ``found`` up to the first merge that took some paths from each side.

    Return that merge: its history has the changes of both sides to each path. None at the end of the history.
    """
    skip = 0
    while missing:
        commits = await repository.history(at, sorted(missing), skip, _HISTORY_PAGE, current_only=True)
        before = len(missing)
        for commit in commits:
            if len(commit.parents) > 1:
                return commit if missing else None
            found |= dict.fromkeys(missing.intersection(commit.paths), commit)
            missing.difference_update(commit.paths)
        if len(commits) < _HISTORY_PAGE:
            break
        # The history of fewer paths is a different list: start at its beginning.
        skip = 0 if len(missing) < before else skip + _HISTORY_PAGE
    return None


def _with_artifact_name(path: str, branch: str, fault: Fault) -> WonderError:
    """Return the fault as an error that names the document, if it is the repository's, which does not know
    the name."""
    if fault.reason is not Reason.STORAGE_UNAVAILABLE:
        return WonderError(fault)
    message = f"Artifact '{path}' on branch '{branch}' is unreadable. {fault.message}"
    return WonderError(replace(fault, message=message, metadata=fault.metadata | {"id": path}))


def _artifact_not_found(path: str, branch: str) -> WonderError:
    place = f" on the branch '{branch}'"
    return not_found(Reason.ARTIFACT_NOT_FOUND, path, field="path", place=place)


def _branch_not_found(branch: str, field: str) -> WonderError:
    return not_found(
        Reason.ARTIFACT_NOT_FOUND,
        branch,
        field=field,
        noun="branch",
        place=" of the artifacts",
        next_step="The first write to a branch creates it.",
    )
