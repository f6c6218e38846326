"""``file.write``: stores a file of the project, which messages and tool results can show (feature M2)."""

from __future__ import annotations

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.file_parts import decoded, store_part
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    if ("content" in given) == ("content_base64" in given):
        raise error(
            Reason.INPUT_INVALID,
            "The input needs exactly one of content and content_base64.",
            field="content",
        )
    content = given["content"].encode() if "content" in given else decoded(given["content_base64"])
    return await store_part(call, given["name"], content, given.get("media_type", ""))


FILE_WRITE = ActionKind(
    name="file.write",
    description="Stores a file of the project. A tool's result with the output shows the model the file.",
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "description": "Name, such as chart.png."},
            "content": {"type": "string", "description": "The content if it is text."},
            "content_base64": {"type": "string", "description": "The content if it is not text."},
            "media_type": {
                "type": "string",
                "description": "Media type, which must be that of the content. Default: that which it shows.",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "type": {"enum": ["image", "file"]},
            "file_id": {"type": "string"},
            "media_type": {"type": "string"},
            "name": {"type": "string"},
            "size_bytes": {"type": "integer"},
        },
    },
    run=_run,
)
