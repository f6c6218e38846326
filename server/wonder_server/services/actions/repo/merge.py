"""``repo.merge``: a workflow merges the work, since its author wrote that down (feature F6)."""

from __future__ import annotations

from typing import Any

from wonder_server.core.errors import Reason, error
from wonder_server.services.actions.artifact.common import MESSAGE, author_of, idempotency_key
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import REPOSITORY, repositories_of
from wonder_server.services.content.merges import MergeRequest, merge_conflict


async def _run(call: ActionCall) -> dict[str, Any]:
    given = call.input
    if not call.context.run_id:
        raise error(
            Reason.PERMISSION_DENIED,
            "Only a step of a workflow merges; people do it with MergeBranch.",
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
        "Merges the branch that is worked on into the repository. Only workflows can; conflicts fail "
        "the step."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "repository": REPOSITORY,
            "every_repository": {
                "type": "boolean",
                "description": "Merge the work on each repository of the project, all or none.",
            },
            "target_branch": {
                "type": "string",
                "description": "Where it goes; left out: the default branch.",
            },
            "message": MESSAGE,
            "remove_branch": {"type": "boolean", "description": "Remove branch and files once merged."},
        },
        "required": [],
        "additionalProperties": False,
    },
    output_schema={"type": "object", "properties": {"commit": {"type": "string"}}},
    run=_run,
)
