"""``repo.search``: finds lines and paths that contain words (feature F2)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import LIMIT, PREFIX
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import REPOSITORY, repositories_of


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    if not given["query"].strip():
        return {"matches": [], "truncated": False}
    found = await repositories_of(call).files.search(
        call.context,
        given["query"],
        given.get("repository", ""),
        prefix=given.get("path_prefix", ""),
        limit=int(given.get("limit", 0)),
    )
    matches = [{"path": match.path, "line": match.line, "text": match.text} for match in found.matches]
    return {"matches": matches, "truncated": found.truncated}


REPO_SEARCH = ActionKind(
    name="repo.search",
    description="Finds lines and paths of a repository of the project that contain all words of the query.",
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words to search for. An empty query finds nothing."},
            "repository": REPOSITORY,
            "path_prefix": PREFIX,
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
