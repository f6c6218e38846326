"""``artifact.history``: lists the revisions of documents (feature F1)."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.artifact.common import (
    BRANCH,
    LIMIT,
    PAGE_TOKEN,
    PATH,
    REVISION_SCHEMA,
    artifacts_of,
    revision_as_json,
)
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.paging import PageRequest


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    page = await artifacts_of(call).revisions(
        call.context.project_id,
        PageRequest(size=int(given.get("limit", 0)), token=given.get("page_token", "")),
        branch=given.get("branch", ""),
        path=given.get("path", ""),
    )
    found = [revision_as_json(commit) for commit in page.items]
    return {"revisions": found, "next_page_token": page.next_page_token}


ARTIFACT_HISTORY = ActionKind(
    name="artifact.history",
    description="Lists the revisions of all artifacts of the project or of one artifact, newest first.",
    input_schema={
        "type": "object",
        "properties": {"path": PATH, "branch": BRANCH, "limit": LIMIT, "page_token": PAGE_TOKEN},
        "required": [],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "revisions": {"type": "array", "items": REVISION_SCHEMA},
            "next_page_token": {"type": "string"},
        },
    },
    run=_run,
)
