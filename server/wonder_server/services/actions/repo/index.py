"""``repo.index``: what files there are in the repositories of the project, in a few lines (feature D7)."""

from __future__ import annotations

from typing import Any

from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.contract.outline_json import LINE, OUTLINE, lines_as_json, outline_as_json
from wonder_server.services.actions.repo.common import repositories_of


async def _run(call: ActionCall) -> dict[str, Any]:
    found = await repositories_of(call).files.index(call.context)
    several = len(found) > 1
    repositories, lines = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, outline in found.items():
        described = {"name": name, "known": outline is not None}
        if outline is not None:
            described |= outline_as_json(outline)
            lines += lines_as_json(outline, repository=name, with_repository=several)
        repositories.append(described)
    return {"repositories": repositories, "lines": lines}


REPO_INDEX = ActionKind(
    name="repo.index",
    description=(
        "Says which files there are on the branch that is worked on, in the first ten repositories of the"
        " project, in at most 40 lines: files, and folders with how many files are in them. Kept until"
        " something is written or run there, so that every turn can ask for it; of a branch on which nothing"
        " was done yet, up to five minutes. A repository that cannot be had at once is told of as not known."
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
                "description": "Those of all repositories.",
                "items": LINE,
            },
        },
    },
    run=_run,
)
