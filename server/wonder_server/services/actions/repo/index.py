"""``repo.index``: outlines of the project's repositories, in a few lines (feature D7)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.contract.outline_json import LINE, OUTLINE, lines_as_json, outline_as_json
from wonder_server.services.actions.repo.common import repositories_of


async def _run(call: ActionCall) -> JsonDict:
    found = await repositories_of(call).files.index(call.context)
    several = len(found) > 1
    repositories, lines = list[JsonDict](), list[JsonDict]()
    for name, outline in found.items():
        entry = {"name": name, "known": outline is not None}
        if outline is not None:
            entry |= outline_as_json(outline)
            lines += lines_as_json(outline, repository=name, with_repository=several)
        repositories.append(entry)
    return {"repositories": repositories, "lines": lines}


REPO_INDEX = ActionKind(
    name="repo.index",
    description=(
        "Outlines the files of the current branch in the first ten repositories of the project, in at most 40"
        " lines: files, and folders with their number of files. The outline is cached until a write or"
        " command on the branch, or for five minutes before the first one. A repository that is not available"
        " within two seconds has known=false."
    ),
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    output_schema={
        "type": "object",
        "properties": {
            "repositories": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "known": {"type": "boolean"}, **OUTLINE},
                },
            },
            "lines": {
                "type": "array",
                "description": "The lines of all repositories.",
                "items": LINE,
            },
        },
    },
    run=_run,
)
