"""``repo.tree``: lists the files of a repository (feature F2)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import PREFIX
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import REPOSITORY, repositories_of


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    found = await repositories_of(call).files.tree(
        call.context,
        given.get("repository", ""),
        prefix=given.get("path_prefix", ""),
        after=given.get("after", ""),
        limit=int(given.get("limit", 0)),
    )
    files = [{"path": file.path, "size_bytes": file.size} for file in found.files]
    return {"files": files, "truncated": found.truncated}


REPO_TREE = ActionKind(
    name="repo.tree",
    description="Lists the files of a repository of the project on the current branch.",
    input_schema={
        "type": "object",
        "properties": {
            "repository": REPOSITORY,
            "path_prefix": PREFIX,
            "after": {
                "type": "string",
                "description": "List the paths after this one, to continue a listing.",
            },
            "limit": {
                "type": "integer",
                "minimum": 0,
                "maximum": 5000,
                "description": "Maximum number of files. 0 means 1,000.",
            },
        },
        "required": [],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "files": {"type": "array", "items": {"type": "object"}},
            "truncated": {"type": "boolean"},
        },
    },
    run=_run,
)
