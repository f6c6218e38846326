"""``artifact.list``: lists the documents of the project by path (feature F1)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import (
    ARTIFACT_SCHEMA,
    BRANCH,
    LIMIT,
    PAGE_TOKEN,
    PREFIX,
    artifact_as_json,
    artifacts_of,
)
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.paging import PageRequest


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    page = await artifacts_of(call).list(
        call.context.project_id,
        PageRequest(size=int(given.get("limit", 0)), token=given.get("page_token", "")),
        branch=given.get("branch", ""),
        prefix=given.get("path_prefix", ""),
    )
    found = [artifact_as_json(item) for item in page.items]
    return {"artifacts": found, "next_page_token": page.next_page_token}


ARTIFACT_LIST = ActionKind(
    name="artifact.list",
    description="Lists the artifacts of the project by path, without their content.",
    input_schema={
        "type": "object",
        "properties": {"path_prefix": PREFIX, "branch": BRANCH, "limit": LIMIT, "page_token": PAGE_TOKEN},
        "required": [],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "artifacts": {"type": "array", "items": ARTIFACT_SCHEMA},
            "next_page_token": {"type": "string"},
        },
    },
    run=_run,
)
