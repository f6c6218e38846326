"""``repo.merge``: a workflow merges the work, since its author wrote that down (feature F6)."""

from __future__ import annotations

from typing import Any

from wonder_server.core.errors import Reason, error
from wonder_server.services.actions.artifacts import MESSAGE, author_of, once_of
from wonder_server.services.actions.kind import ActionCall, ActionKind
from wonder_server.services.actions.repos import REPOSITORY, repos_of
from wonder_server.services.places import in_conflict


async def _run(call: ActionCall) -> dict[str, Any]:
    given = call.input
    if not call.context.run_id:
        raise error(
            Reason.PERMISSION_DENIED,
            "Only a step of a workflow merges; people do it with MergeBranch.",
            permission="repo.merge",
        )
    if given.get("every_repository", False):
        return {"commit": await repos_of(call).merge_all(call.context, author_of(call), once_of(call))}
    merged = await repos_of(call).merge(
        call.context,
        author_of(call),
        given.get("repository", ""),
        target=given.get("target_branch", ""),
        message=given.get("message", ""),
        remove=given.get("remove_branch", False),
        once=once_of(call),
    )
    if merged.conflicts:
        raise in_conflict([conflict.path for conflict in merged.conflicts])
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
    repeatable=True,
    run=_run,
)
