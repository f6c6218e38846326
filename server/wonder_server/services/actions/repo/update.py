"""``repo.update``: merges a branch of the repository into the current branch (feature F6)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import CONFLICT_SCHEMA, author_of, merged_as_json
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import (
    REPOSITORY,
    RESOLUTIONS,
    repositories_of,
    resolutions_of,
)


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    merged = await repositories_of(call).files.update(
        call.context,
        author_of(call),
        given.get("repository", ""),
        source=given.get("source_branch", ""),
        resolutions=resolutions_of(call),
    )
    return merged_as_json(merged)


REPO_UPDATE = ActionKind(
    name="repo.update",
    description=(
        "Merges the repository's default branch into the current branch and its files. The result lists"
        " conflicts; repeat the action with resolutions."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "repository": REPOSITORY,
            "source_branch": {
                "type": "string",
                "description": "Branch to merge. Default: the default branch.",
            },
            "resolutions": RESOLUTIONS,
        },
        "required": [],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "merged": {"type": "boolean"},
            "commit": {"type": "string"},
            "conflicts": {"type": "array", "items": CONFLICT_SCHEMA},
        },
    },
    run=_run,
)
