"""``repo.diff``: shows the changes of the branch (feature F2)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import PATH, REPOSITORY, repositories_of


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    found = await repositories_of(call).files.diff(
        call.context,
        given.get("repository", ""),
        base_branch=given.get("base_branch", ""),
        paths=given.get("paths", ()),
    )
    return {
        "branch": found.branch,
        "base_branch": found.base_branch,
        "head_commit": found.head.id if found.head is not None else "",
        "files": [
            {
                "path": file.path,
                "old_path": file.old_path,
                "change": file.change,
                "additions": file.additions,
                "deletions": file.deletions,
                "patch": file.patch,
            }
            for file in found.diff.files
        ],
        "truncated": found.diff.truncated,
    }


REPO_DIFF = ActionKind(
    name="repo.diff",
    description="Shows the changes of the current branch, uncommitted changes included.",
    input_schema={
        "type": "object",
        "properties": {
            "repository": REPOSITORY,
            "base_branch": {
                "type": "string",
                "description": "Branch to compare with. Default: the default branch.",
            },
            "paths": {
                "type": "array",
                "items": PATH,
                "description": "Filter by path: these paths and all below them.",
            },
        },
        "required": [],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "branch": {"type": "string"},
            "base_branch": {"type": "string"},
            "head_commit": {"type": "string"},
            "files": {"type": "array", "items": {"type": "object"}},
            "truncated": {"type": "boolean"},
        },
    },
    run=_run,
)
