"""``artifact.index``: outline of the project's documents, in a few lines (feature D7)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import artifacts_of
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.contract.outline_json import OUTLINE, outline_as_json


async def _run(call: ActionCall) -> JsonDict:
    return outline_as_json(await artifacts_of(call).index(call.context.project_id))


ARTIFACT_INDEX = ActionKind(
    name="artifact.index",
    description=(
        "Outlines the artifacts of the project on main, in at most 40 lines: files, and folders with their"
        " number of files. The outline is cached until the next write."
    ),
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    output_schema={"type": "object", "properties": OUTLINE},
    run=_run,
)
