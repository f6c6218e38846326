"""``repo.merge``: merges the branch into its repository, in a workflow step (feature F6)."""

from __future__ import annotations

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import MESSAGE, author_of, idempotency_key
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import REPOSITORY, repositories_of
from wonder_server.services.content.merges import MergeRequest, merge_conflict


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    if not call.context.run_id:
        raise error(
            Reason.PERMISSION_DENIED,
            "repo.merge is allowed only in a workflow step. Use MergeBranch to merge from a client.",
            permission="repo.merge",
        )
    if given.get("every_repository", False):
        return {
            "commit": await repositories_of(call).merges.merge_all(
                call.context, author_of(call), idempotency_key(call)
            )
        }
    request = MergeRequest(
        author=author_of(call),
        target=given.get("target_branch", ""),
        message=given.get("message", ""),
        remove_branch=given.get("remove_branch", False),
        idempotency_key=idempotency_key(call),
    )
    merged = await repositories_of(call).merges.merge(call.context, request, given.get("repository", ""))
    if merged.conflicts:
        raise merge_conflict([conflict.path for conflict in merged.conflicts])
    return {"commit": merged.commit.id if merged.commit is not None else ""}


REPO_MERGE = ActionKind(
    name="repo.merge",
    description=(
        "Merges the current branch into the repository. Allowed only in a workflow step. Conflicts fail the"
        " step."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "repository": REPOSITORY,
            "every_repository": {
                "type": "boolean",
                "description": "Merge the branch in every repository of the project, all or none.",
            },
            "target_branch": {
                "type": "string",
                "description": "Branch to merge into. Default: the default branch.",
            },
            "message": MESSAGE,
            "remove_branch": {"type": "boolean", "description": "Remove branch and files after the merge."},
        },
        "required": [],
        "additionalProperties": False,
    },
    output_schema={"type": "object", "properties": {"commit": {"type": "string"}}},
    run=_run,
)
