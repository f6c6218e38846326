"""``repo.update``: what is new elsewhere comes into the work (feature F6)."""

from __future__ import annotations

from typing import Any

from wonder_server.services.actions.artifact.common import CONFLICT_SCHEMA, author_of, merged_as_json
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import (
    REPOSITORY,
    RESOLUTIONS,
    repositories_of,
    resolutions_of,
)


async def _run(call: ActionCall) -> dict[str, Any]:
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
        "Brings what is new on the default branch into the branch and the files that are worked on. "
        "Conflicts are in the result: answer them with resolutions."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "repository": REPOSITORY,
            "source_branch": {
                "type": "string",
                "description": "What to bring in; left out: the default branch.",
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
