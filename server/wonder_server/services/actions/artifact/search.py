"""``artifact.search``: finds lines and paths of documents that contain words (feature F1)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import BRANCH, LIMIT, PREFIX, artifacts_of
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    if not given["query"].strip():
        return {"matches": [], "truncated": False}
    found = await artifacts_of(call).search(
        call.context.project_id,
        given["query"],
        branch=given.get("branch", ""),
        prefix=given.get("path_prefix", ""),
        limit=int(given.get("limit", 0)),
    )
    matches = [{"path": match.path, "line": match.line, "text": match.text} for match in found.matches]
    return {"matches": matches, "truncated": found.truncated}


ARTIFACT_SEARCH = ActionKind(
    name="artifact.search",
    description="Finds lines and paths of the project's artifacts that contain all words of the query.",
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words to search for. An empty query finds nothing."},
            "path_prefix": PREFIX,
            "branch": BRANCH,
            "limit": LIMIT,
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "matches": {"type": "array", "items": {"type": "object"}},
            "truncated": {"type": "boolean"},
        },
    },
    run=_run,
)
