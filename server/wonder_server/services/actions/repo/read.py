"""``repo.read``: reads one file of a repository (feature F2)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import content_as_json
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import PATH, REPOSITORY, repositories_of


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    found = await repositories_of(call).files.read(call.context, given["path"], given.get("repository", ""))
    result: JsonDict = {"path": found.path, "size_bytes": found.size, "etag": found.id}
    result |= content_as_json(found.content)
    if "content" in result:
        lines = result["content"].splitlines(keepends=True)
        begin = int(given.get("first_line", 1)) - 1
        end = begin + int(given["lines"]) if "lines" in given else len(lines)
        result |= {"content": "".join(lines[begin:end]), "total_lines": len(lines)}
    return result


REPO_READ = ActionKind(
    name="repo.read",
    description="Reads a file of a repository of the project, or some of its lines.",
    input_schema={
        "type": "object",
        "properties": {
            "path": PATH,
            "repository": REPOSITORY,
            "first_line": {"type": "integer", "minimum": 1, "description": "First line to read, from 1."},
            "lines": {"type": "integer", "minimum": 1, "description": "Number of lines. Default: all."},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "content": {"type": "string"},
            "content_base64": {
                "type": "string",
                "description": "Content that is not text, instead of content.",
            },
            "size_bytes": {"type": "integer"},
            "etag": {"type": "string"},
            "total_lines": {"type": "integer"},
        },
    },
    run=_run,
)
