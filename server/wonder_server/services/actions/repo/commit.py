"""``repo.commit``: commits the changed files of the branch (feature F3)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import MESSAGE, author_of
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.repo.common import REPOSITORY, commit_as_json, repositories_of


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    made = await repositories_of(call).files.commit(
        call.context, author_of(call), given["message"], given.get("repository", "")
    )
    return commit_as_json(made)


REPO_COMMIT = ActionKind(
    name="repo.commit",
    description="Commits the changed files of the current branch.",
    input_schema={
        "type": "object",
        "properties": {"message": MESSAGE, "repository": REPOSITORY},
        "required": ["message"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "commit": {"type": "string"},
            "paths": {"type": "array", "items": {"type": "string"}},
        },
    },
    run=_run,
)
