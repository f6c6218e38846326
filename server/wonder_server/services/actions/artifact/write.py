"""``artifact.write``: a document gets new content, or is deleted, as one commit (feature F1)."""

from __future__ import annotations

from typing import Any

from wonder_server.services.actions.artifact.common import (
    ARTIFACT_SCHEMA,
    MESSAGE,
    PATH,
    artifact_as_json,
    artifacts_of,
    commit_request,
    content_of,
)
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


async def _run(call: ActionCall) -> dict[str, Any]:
    given = call.input
    written = await artifacts_of(call).write(
        call.context.project_id,
        given["path"],
        content_of(call),
        branch=given.get("branch", ""),
        etag=given.get("etag", ""),
        commit=commit_request(call),
    )
    return artifact_as_json(written)


ARTIFACT_WRITE = ActionKind(
    name="artifact.write",
    description="Writes or deletes an artifact of the project, as one commit.",
    input_schema={
        "type": "object",
        "properties": {
            "path": PATH,
            "content": {"type": "string", "description": "The new content."},
            "content_base64": {"type": "string", "description": "The new content, if it is no text."},
            "delete": {"type": "boolean", "description": "Delete it instead."},
            "branch": {
                "type": "string",
                "description": "The branch, begun at main if new; main if left out.",
            },
            "message": MESSAGE,
            "etag": {
                "type": "string",
                "description": "The artifact's etag, if it must not have changed; none if it must not exist.",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    output_schema=ARTIFACT_SCHEMA,
    run=_run,
)
