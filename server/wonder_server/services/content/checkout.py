"""Places of work: one branch of one repository of a project, and the values that tell of it (see `repos`)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from wonder_server.core.actor.commands import NO_BRANCH, Scope, branch_of
from wonder_server.core.definitions.resources import NetworkPolicy, Project, Repository
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.frozen import Value
from wonder_server.core.paths import check_work_branch
from wonder_server.ports.repositories import Commit, Diff, File, Merged
from wonder_server.ports.workspaces import Remote, WorkBranch

_CONVERSATION: Final = re.compile(r"wonder/conv-([0-9A-Za-z]{1,64})\Z")


_HEAD: Final = re.compile(r"[0-9a-f]{7,40}\Z")


class BranchDiff(Value, frozen=True, kw_only=True):
    """What a branch has changed since it parted from ``base_branch``, files that nobody has committed
    included: ``head`` is the commit that has them, or would have. None if there is nothing yet."""

    branch: str
    base_branch: str
    head: Commit | None
    diff: Diff


class MergeResult(Merged, frozen=True, kw_only=True):
    """How a merge of work ended. ``is_kept``: branch and files are still there, though they were to be
    removed: something was written since they were merged, or a command is running among them."""

    is_kept: bool = False


class MergeTarget(Value, frozen=True, kw_only=True):
    """The repository, branch and target of a merge."""

    repository: str
    branch: str
    target: str


class FileListing(Value, frozen=True, kw_only=True):
    """Files by path; ``truncated`` if there are more."""

    files: tuple[File, ...]
    truncated: bool = False


def work_branch(scope: Scope) -> str:
    """The branch that this work is done on. FIELD_INVALID if there is none."""
    branch = branch_of(scope)
    if branch in ("", NO_BRANCH):
        raise error(
            Reason.FIELD_INVALID,
            "This work has no branch: a task by itself needs `context.branch` or `context.conversation_id` "
            "(`wonder run TASK --branch NAME`, or `--conversation ID`). Runs and conversations have one.",
            field="context.branch",
        )
    return check_work_branch(branch, "context.branch")


def worktree_key(project_id: str, branch: str) -> str:
    """The name of the worktree of this branch."""
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


def merge_conflict(paths: Sequence[str]) -> WonderError:
    """Why work was not merged that had to be."""
    return error(
        Reason.MERGE_CONFLICT,
        f"Nothing was merged: {len(paths)} files conflict: {', '.join(paths[:5])}.",
        files=", ".join(paths)[:1_000],
    )


def check_head(expected: str, head: Commit) -> None:
    """``expected``: an id or the beginning of one, at least seven digits, as people read and copy it."""
    if expected and not _HEAD.match(expected):
        raise error(
            Reason.FIELD_INVALID,
            "This is no commit: give the id that the diff shows, at least its first 7 digits.",
            field="expected_head_commit",
        )
    if not head.id.startswith(expected):
        raise error(
            Reason.ETAG_MISMATCH,
            "The conversation's work has changed since; look at it again.",
            field="expected_head_commit",
            etag=head.id,
        )
