"""``artifact.merge``: the work of one branch of documents is brought into another (feature F1)."""

from __future__ import annotations

from typing import Any

from wonder_server.services.actions.artifact.common import (
    CONFLICT_SCHEMA,
    MESSAGE,
    artifacts_of,
    commit_request,
    merged_as_json,
)
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


async def _run(call: ActionCall) -> dict[str, Any]:
    given = call.input
    merged = await artifacts_of(call).merge(
        call.context.project_id,
        given["source_branch"],
        target=given.get("target_branch", ""),
        commit=commit_request(call),
    )
    return merged_as_json(merged)


ARTIFACT_MERGE = ActionKind(
    name="artifact.merge",
    description="Merges a branch of the artifacts of the project into another; conflicts are in the result.",
    input_schema={
        "type": "object",
        "properties": {
            "source_branch": {"type": "string", "minLength": 1, "description": "Whose work is merged."},
            "target_branch": {"type": "string", "description": "Where it goes; main if left out."},
            "message": MESSAGE,
        },
        "required": ["source_branch"],
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
