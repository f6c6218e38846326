"""``artifact.merge``: merges one branch of documents into another (feature F1)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import (
    CONFLICT_SCHEMA,
    MESSAGE,
    artifacts_of,
    commit_request,
    merged_as_json,
)
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


async def _run(call: ActionCall) -> JsonDict:
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
    description="Merges a branch of the project's artifacts into another. The result lists conflicts.",
    input_schema={
        "type": "object",
        "properties": {
            "source_branch": {"type": "string", "minLength": 1, "description": "Branch to merge."},
            "target_branch": {"type": "string", "description": "Branch to merge into. Default: main."},
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
