"""``artifact.write``: writes or deletes a document, as one commit (feature F1)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
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


async def _run(call: ActionCall) -> JsonDict:
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
            "content_base64": {"type": "string", "description": "The new content if it is not text."},
            "delete": {"type": "boolean", "description": "Delete the artifact instead."},
            "branch": {
                "type": "string",
                "description": "Branch. A new branch starts at main. Default: main.",
            },
            "message": MESSAGE,
            "etag": {
                "type": "string",
                "description": "Required etag of the artifact; none if the artifact must not exist.",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    output_schema=ARTIFACT_SCHEMA,
    run=_run,
)
