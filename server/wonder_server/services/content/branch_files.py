"""Files of a scope's branch: read, search, compare, write and commit (features F2, F3, F6)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from wonder_server.core.actor.commands import Scope
from wonder_server.core.definitions.resources import Repository
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.frozen import Value
from wonder_server.core.paths import check_branch, check_path, check_prefix
from wonder_server.ports.repositories import Change, Commit, Diff, File, Merged, SearchResult
from wonder_server.services.content.artifacts import ABSENT, MAX_MATCHES, check_resolutions, search_words
from wonder_server.services.content.checkout import Checkout, RepositoryAccess, work_branch
from wonder_server.services.content.commit_metadata import CommitRequest, commit_metadata
from wonder_server.services.content.outlines import MAX_FILES, MAX_LINES, Outline, Outlines
from wonder_server.services.content.worktrees import BranchWorktrees

MAX_FILE_BYTES: Final = 4 << 20
MAX_PATCH_BYTES: Final = 1 << 20
MAX_LISTED_FILES: Final = 5_000
DEFAULT_LISTED_FILES: Final = 1_000
DEFAULT_MATCHES: Final = 50
MAX_INDEXED_REPOSITORIES: Final = 10
"""Repositories of a project that its index includes."""

INDEX_TIMEOUT_S: Final = 2.0
INDEX_MAX_AGE_S: Final = 300.0
"""Maximum age of the outline of a repository without a worktree: its remote changes without notice."""


class BranchDiff(Value, frozen=True, kw_only=True):
    """The changes of a branch since its merge base with ``base_branch``, uncommitted changes included.
    ``head`` is the commit that contains them, or would; None if the branch does not exist yet."""

    branch: str
    base_branch: str
    head: Commit | None
    diff: Diff


class FileListing(Value, frozen=True, kw_only=True):
    """Files in the order of their paths; ``truncated`` if there are more."""

    files: tuple[File, ...]
    truncated: bool = False


class BranchFiles:
    """The files of a scope's branch in the repositories of its project.

    Before the first write, a read returns the files of the repository's default branch. Every method raises
    PROJECT_NOT_FOUND, FIELD_INVALID for a repository that the project does not have, and STORAGE_UNAVAILABLE
    while a repository is unreachable."""

    def __init__(self, access: RepositoryAccess, worktrees: BranchWorktrees, outlines: Outlines) -> None:
        self._access = access
        self._worktrees = worktrees
        self._outlines = outlines

    # --- reading ----------------------------------------------------------------------------------

    async def tree(
        self, scope: Scope, repository: str = "", *, prefix: str = "", after: str = "", limit: int = 0
    ) -> FileListing:
        """List files by path, after the path ``after``, at most ``limit`` (0: 1,000; maximum 5,000)."""
        check_prefix(prefix)
        limit = min(limit or DEFAULT_LISTED_FILES, MAX_LISTED_FILES)
        checkout = await self._access.checkout(scope, repository)
        at = await self._access.visible_commit(checkout)
        found = await self._access.copy_of(checkout).files(at, prefix, after, limit + 1)
        return FileListing(files=tuple(found[:limit]), truncated=len(found) > limit)

    async def index(self, scope: Scope) -> Mapping[str, Outline | None]:
        """Return the outline of each of the first ten repositories of the project, by name. None for a
        repository whose files are not available within two seconds."""
        branch, project = work_branch(scope), await self._access.project(scope)
        indexed = project.repositories[:MAX_INDEXED_REPOSITORIES]
        max_lines = MAX_LINES // max(len(indexed), 1)

        async def load_outline(repository: Repository) -> Outline | None:
            checkout = Checkout(project, repository, branch)
            # Branches without a worktree show the same files, so they share one outline.
            has_files = self._worktrees.exists(checkout.work.key)
            return await self._outlines.get(
                checkout.work.key if has_files else checkout.name,
                repository.name,
                partial(self._list_for_index, checkout),
                max_lines=max_lines,
                max_age_s=float("inf") if has_files else INDEX_MAX_AGE_S,
            )

        found = await asyncio.gather(*[load_outline(repository) for repository in indexed])
        return {repository.name: outline for repository, outline in zip(indexed, found, strict=True)}

    async def _list_for_index(self, checkout: Checkout) -> Sequence[File] | None:
        try:
            async with asyncio.timeout(INDEX_TIMEOUT_S):
                await self._access.origins.permit(checkout.origin.url)
                at = await self._access.visible_commit(checkout)
            return await self._access.copy_of(checkout).files(at, limit=MAX_FILES + 1)
        except (TimeoutError, WonderError):  # A read of the same repository reports the reason.
            return None

    async def read(self, scope: Scope, path: str, repository: str = "") -> File:
        """Return one file with its content. Raises ARTIFACT_NOT_FOUND, PAYLOAD_TOO_LARGE."""
        check_path(path)
        checkout = await self._access.checkout(scope, repository)
        at = await self._access.visible_commit(checkout)
        found = await self._access.copy_of(checkout).read(at, path, MAX_FILE_BYTES)
        if found is None:
            raise not_found(
                Reason.ARTIFACT_NOT_FOUND,
                path,
                field="path",
                noun="file",
                place=f" in the repository '{checkout.repository.name}' on the branch '{checkout.branch}'",
                next_step="Search the repository with `repo.search`.",
            )
        return found

    async def search(
        self, scope: Scope, query: str, repository: str = "", *, prefix: str = "", limit: int = 0
    ) -> SearchResult:
        """Return the lines and paths that contain all words of ``query``, at most ``limit`` (0: 50)."""
        check_prefix(prefix)
        words, limit = search_words(query), min(limit or DEFAULT_MATCHES, MAX_MATCHES)
        checkout = await self._access.checkout(scope, repository)
        at = await self._access.visible_commit(checkout)
        return await self._access.copy_of(checkout).search(at, words, prefix, limit)

    async def diff(
        self, scope: Scope, repository: str = "", *, base_branch: str = "", paths: Sequence[str] = ()
    ) -> BranchDiff:
        """Return the changes of the branch since ``base_branch`` (empty: the default branch), limited to
        ``paths`` and the paths below them. Raises FIELD_INVALID if the base branch does not exist."""
        for number, path in enumerate(paths):
            check_path(path, f"paths[{number}]")
        checkout = await self._access.checkout(scope, repository)
        base = check_branch(base_branch, "base_branch") if base_branch else ""
        default = await self._access.origins.fetch(checkout.origin)
        base, copy = base or default, self._access.copy_of(checkout)
        if base_branch and await copy.commit(f"origin/{base}") is None:
            raise _remote_branch_not_found(checkout, base, "base_branch")
        head = await self._access.workspaces.head(checkout.work)
        if head is None:
            start = await copy.commit(f"origin/{base}")
            unchanged = Diff(base=start.id if start else "")
            return BranchDiff(branch=checkout.branch, base_branch=base, head=None, diff=unchanged)
        found = await copy.diff(f"origin/{base}", head.id, paths, MAX_PATCH_BYTES)
        return BranchDiff(branch=checkout.branch, base_branch=base, head=head, diff=found)

    # --- writing ----------------------------------------------------------------------------------

    async def write(
        self, scope: Scope, path: str, content: bytes | None, repository: str = "", *, etag: str = ""
    ) -> str:
        """Write one file, or remove it if ``content`` is None, without a commit. Return its new etag.

        With an ``etag`` the file must have it; ``none`` means that the file must not exist. Raises
        FIELD_INVALID, PAYLOAD_TOO_LARGE, ETAG_MISMATCH."""
        check_path(path)
        if content is not None and len(content) > MAX_FILE_BYTES:
            raise error(
                Reason.PAYLOAD_TOO_LARGE,
                f"content has {len(content)} bytes; the maximum is {MAX_FILE_BYTES}.",
                field="content",
                limit=str(MAX_FILE_BYTES),
            )
        expected = ("" if etag == ABSENT else etag) if etag else None
        checkout = await self._access.checkout(scope, repository)
        async with self._worktrees.open_checkout(checkout) as work:
            with self._outlines.invalidating(work.key):
                return await self._access.workspaces.put(work, path, content, expected) or ABSENT

    async def commit(self, scope: Scope, author: str, message: str, repository: str = "") -> Commit | None:
        """Commit the changed files. Return the newest commit of the branch; None if it does not exist."""
        metadata = commit_metadata(CommitRequest(author=author, message=message or "Work of a conversation"))
        checkout = await self._access.checkout(scope, repository)
        if await self._access.workspaces.head(checkout.work) is None:
            return None
        with self._outlines.invalidating(checkout.work.key):
            return await self._access.workspaces.commit(checkout.work, metadata)

    async def update(
        self,
        scope: Scope,
        author: str,
        repository: str = "",
        *,
        source: str = "",
        resolutions: Sequence[Change] = (),
    ) -> Merged:
        """Merge the repository's branch ``source`` (empty: its default branch) into the branch of ``scope``.

        If files conflict, nothing is merged and the result lists the conflicts. ``resolutions`` gives the
        merged content of every conflicting file."""
        check_resolutions(resolutions)
        checkout = await self._access.checkout(scope, repository)
        default = await self._access.origins.fetch(checkout.origin, refresh=True)
        source = check_branch(source, "source_branch") if source else default
        if await self._access.copy_of(checkout).commit(f"origin/{source}") is None:
            raise _remote_branch_not_found(checkout, source, "source_branch")
        metadata = commit_metadata(
            CommitRequest(author=author, message=f"Merge {source} into {checkout.branch}")
        )
        async with self._worktrees.open_checkout(checkout) as work:
            with self._outlines.invalidating(work.key):
                return await self._access.workspaces.update(work, f"origin/{source}", metadata, resolutions)


def _remote_branch_not_found(checkout: Checkout, branch: str, field: str) -> WonderError:
    return error(
        Reason.FIELD_INVALID,
        f"The repository '{checkout.repository.name}' has no branch '{branch}'. Name an existing branch.",
        field=field,
    )
