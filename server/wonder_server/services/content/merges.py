"""Merges of a scope's branch into the branches of its repositories (feature F6)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from wonder_server.core.actor.commands import Scope
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import Value
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.core.paths import check_branch
from wonder_server.ports.repositories import Change, Commit, CommitMetadata, Merged
from wonder_server.services.content.artifacts import check_resolutions
from wonder_server.services.content.checkout import Checkout, RepositoryAccess
from wonder_server.services.content.commit_metadata import CommitRequest, commit_metadata
from wonder_server.services.content.outlines import Outlines
from wonder_server.services.content.worktrees import BranchWorktrees
from wonder_server.services.idempotency import RequestLocks

_COMMIT_ID: Final = re.compile(r"[0-9a-f]{7,40}\Z")


class MergeRequest(CommitRequest, frozen=True, kw_only=True):
    """A merge of a branch into the repository's branch ``target`` (empty: its default branch).

    ``expected_head``: id of the head that `BranchFiles.diff` returned, or its first seven or more digits; the
    merge fails with ETAG_MISMATCH if the head is another. ``resolutions``: merged content of every
    conflicting file. ``dry_run``: report the outcome and change nothing. ``remove_branch``: remove branch and
    files after the merge. They stay if a write followed or a command runs there."""

    target: str = ""
    expected_head: str = ""
    resolutions: Sequence[Change] = ()
    dry_run: bool = False
    remove_branch: bool = False


class MergeResult(Merged, frozen=True, kw_only=True):
    """Outcome of a merge. ``is_kept``: the request asked to remove the branch, and it still exists."""

    is_kept: bool = False


class MergeTarget(Value, frozen=True, kw_only=True):
    """The repository, branch and target of a merge, by name."""

    repository: str
    branch: str
    target: str


class BranchMerges:
    """Merges of work. The errors of `BranchFiles` apply to every method."""

    def __init__(self, access: RepositoryAccess, worktrees: BranchWorktrees, outlines: Outlines) -> None:
        self._access = access
        self._worktrees = worktrees
        self._outlines = outlines
        self._requests = RequestLocks()

    async def target_of(self, scope: Scope, repository: str = "", target: str = "") -> MergeTarget:
        """Return the names that a merge with these arguments uses, with the defaults filled in."""
        checkout = await self._access.checkout(scope, repository)
        default = target or await self._access.origins.fetch(checkout.origin)
        return MergeTarget(repository=checkout.repository.name, branch=checkout.branch, target=default)

    async def merge(self, scope: Scope, request: MergeRequest, repository: str = "") -> MergeResult:
        """Merge the branch of ``scope``, uncommitted changes included.

        If files conflict, nothing is merged and the result lists the conflicts. A repeated request returns
        its first merge and changes nothing. Raises ETAG_MISMATCH, RESOURCE_IN_USE if the repository rejects
        the merge, REQUEST_ID_REUSED."""
        check_resolutions(request.resolutions)
        checkout = await self._access.checkout(scope, repository)
        default = await self._access.origins.fetch(checkout.origin)
        target = check_branch(request.target, "target_branch") if request.target else default
        metadata = commit_metadata(request, f"Merge {checkout.branch} into {target}")
        if request.dry_run:
            return _result(await self._publish(checkout, target, request, metadata))
        copy, merged = self._access.copy_of(checkout), list[Merged]()

        async def execute() -> Commit | None:
            merged.append(await self._publish(checkout, target, request, metadata))
            return merged[0].commit

        with self._outlines.invalidating(checkout.name, checkout.work.key):
            commit = await self._requests.execute(
                request.idempotency_key, lambda: copy.find_by_key(metadata.key), execute
            )
        found = merged[0] if merged else Merged(commit=commit, tree=commit.tree if commit else "")
        is_kept = False
        if request.remove_branch and not found.conflicts:
            is_kept = await copy.commit(checkout.branch) is not None
        return _result(found, is_kept=is_kept)

    async def _publish(
        self, checkout: Checkout, target: str, request: MergeRequest, metadata: CommitMetadata
    ) -> Merged:
        head = await self._access.workspaces.head(checkout.work)
        if head is None:
            found = Merged(commit=await self._access.copy_of(checkout).commit(f"origin/{target}"))
        else:
            check_head(request.expected_head, head)
            if not request.dry_run:
                unchanged = head.id if request.expected_head else ""
                head = await self._access.workspaces.commit(checkout.work, None, unchanged) or head
            found = await self._access.origins.publish(
                checkout.origin,
                target,
                head.id,
                metadata,
                resolutions=request.resolutions,
                dry=request.dry_run,
            )
        if request.remove_branch and not request.dry_run and not found.conflicts:
            await self._worktrees.retire(checkout.work, head.id if head is not None else "")
        return found

    async def merge_all(
        self, scope: Scope, author: str, idempotency_key: IdempotencyKey | None = None
    ) -> str:
        """Merge the branch into the default branch of every repository of the project. Return the id of the
        last merge commit.

        Raises MERGE_CONFLICT if any repository has conflicts; then nothing is merged, unless another change
        to one of the repositories came between two of the merges."""
        project = await self._access.project(scope)
        names = [each.name for each in project.repositories]
        conflicts: list[str] = []
        for name in names if len(names) > 1 else ():
            dry_run = await self.merge(scope, MergeRequest(author=author, dry_run=True), name)
            conflicts += [f"{name}: {conflict.path}" for conflict in dry_run.conflicts]
        last = ""
        for name in () if conflicts else names:
            repository_key = (
                replace(idempotency_key, request_id=f"{idempotency_key.request_id}/{name}")
                if idempotency_key
                else None
            )
            request = MergeRequest(author=author, idempotency_key=repository_key)
            merged = await self.merge(scope, request, name)
            conflicts += [conflict.path for conflict in merged.conflicts]
            last = merged.commit.id if merged.commit is not None else last
        if conflicts:
            raise merge_conflict(conflicts)
        return last


def _result(merged: Merged, *, is_kept: bool = False) -> MergeResult:
    return MergeResult(commit=merged.commit, tree=merged.tree, conflicts=merged.conflicts, is_kept=is_kept)


def merge_conflict(paths: Sequence[str]) -> WonderError:
    """Return the error of a merge with conflicts, for callers that need the merge."""
    return error(
        Reason.MERGE_CONFLICT,
        f"Nothing was merged: {len(paths)} files conflict: {', '.join(paths[:5])}. Resolve the conflicts on "
        "the branch, then merge again.",
        files=", ".join(paths)[:1_000],
    )


def check_head(expected: str, head: Commit) -> None:
    """Raise FIELD_INVALID if ``expected`` is neither empty nor the first 7 to 40 digits of a commit id, and
    ETAG_MISMATCH if ``head`` has another id."""
    if expected and not _COMMIT_ID.match(expected):
        raise error(
            Reason.FIELD_INVALID,
            f"expected_head_commit '{expected[:100]}' is not a commit id. Use the id that the diff shows, or "
            "its first 7 or more digits.",
            field="expected_head_commit",
        )
    if not head.id.startswith(expected):
        raise error(
            Reason.ETAG_MISMATCH,
            f"The branch has changed since commit {expected}; its head is {head.id}. Read the diff again.",
            field="expected_head_commit",
            etag=head.id,
        )
