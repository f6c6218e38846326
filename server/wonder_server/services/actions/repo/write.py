"""``repo.write``: writes or removes one file of a repository (feature F2)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import content_of
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import PATH, REPOSITORY, repositories_of


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    etag = await repositories_of(call).files.write(
        call.context,
        given["path"],
        content_of(call),
        given.get("repository", ""),
        etag=given.get("etag", ""),
    )
    return {"path": given["path"], "etag": etag}


REPO_WRITE = ActionKind(
    name="repo.write",
    description=(
        "Writes or removes a file of a repository of the project on the current branch. repo.commit commits"
        " it."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": PATH,
            "repository": REPOSITORY,
            "content": {"type": "string", "description": "The new content."},
            "content_base64": {"type": "string", "description": "The new content if it is not text."},
            "delete": {"type": "boolean", "description": "Remove the file instead."},
            "etag": {
                "type": "string",
                "description": "Required etag of the file; none if the file must not exist.",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    output_schema={"type": "object", "properties": {"path": {"type": "string"}, "etag": {"type": "string"}}},
    run=_run,
)
