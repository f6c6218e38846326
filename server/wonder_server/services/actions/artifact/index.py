"""``artifact.index``: what documents there are, in a few lines (feature D7)."""

from __future__ import annotations

from typing import Any

from wonder_server.services.actions.artifact.common import artifacts_of
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.contract.outline_json import OUTLINE, outline_as_json


async def _run(call: ActionCall) -> dict[str, Any]:
    return outline_as_json(await artifacts_of(call).index(call.context.project_id))


ARTIFACT_INDEX = ActionKind(
    name="artifact.index",
    description=(
        "Says which artifacts the project has, on main, in at most 40 lines: files, and folders with how many"
        " files are in them. Kept until something is written, so that every turn can ask for it."
    ),
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    output_schema={"type": "object", "properties": OUTLINE},
    run=_run,
)
