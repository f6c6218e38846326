"""``artifact.read``: reads one document of the project (feature F1)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import (
    ARTIFACT_SCHEMA,
    BRANCH,
    PATH,
    artifact_as_json,
    artifacts_of,
    content_as_json,
)
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    found = await artifacts_of(call).read(
        call.context.project_id,
        given["path"],
        branch=given.get("branch", ""),
        revision_id=given.get("revision_id", ""),
    )
    return artifact_as_json(found) | content_as_json(found.content)


ARTIFACT_READ = ActionKind(
    name="artifact.read",
    description="Reads an artifact of the project, in its current state or in a revision.",
    input_schema={
        "type": "object",
        "properties": {
            "path": PATH,
            "branch": BRANCH,
            "revision_id": {"type": "string", "description": "Id of a revision, from artifact.history."},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    output_schema=ARTIFACT_SCHEMA,
    run=_run,
)
