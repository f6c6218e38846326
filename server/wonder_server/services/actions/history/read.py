"""``history.read``: reads messages of the conversation in their order."""

from __future__ import annotations

from wonder_server.core.history.text_query import quoted
from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.actions.history.common import MESSAGE_FIELDS, message_as_json
from wonder_server.services.history.agent_history import READ_BYTES, ReadMessage, ReadRequest

DEFAULT_MESSAGES = 10
MAX_MESSAGES = 50


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    request = ReadRequest(
        first_id=given.get("message_id", ""),
        first=int(given.get("number", 0)),
        limit=int(given.get("limit", 0)) or DEFAULT_MESSAGES,
        offset=int(given.get("offset", 0)),
    )
    read = await call.services.history.read(call.context, request)
    return {"messages": [_as_json(each) for each in read]}


def _as_json(read: ReadMessage) -> JsonDict:
    text = f"{' ' if read.start else ''}{quoted(read.text)}"
    message = message_as_json(read.message, read.speaker, text)
    if read.end < read.size:
        message["next_offset"] = read.end
    return message


HISTORY_READ = ActionKind(
    name="history.read",
    description="Reads messages of the task's conversation, oldest first. Agents see nothing before a reset.",
    input_schema={
        "type": "object",
        "properties": {
            "message_id": {"type": "string", "description": "Id of the first message, from a search."},
            "number": {
                "type": "integer",
                "minimum": 0,
                "description": "Number of the first message, instead of its id. Without both: the newest "
                "messages.",
            },
            "limit": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_MESSAGES,
                "description": f"Maximum number of messages. 0 means {DEFAULT_MESSAGES}.",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "Position in the text of the first message, in bytes: next_offset of the last "
                "call.",
            },
        },
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "messages": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        **MESSAGE_FIELDS,
                        "next_offset": {
                            "type": "integer",
                            "description": "Position at which the text goes on. Missing if it is complete.",
                        },
                    },
                },
                "description": f"Up to {READ_BYTES // 1024} KiB of texts. A space precedes the further lines "
                "of a text.",
            },
        },
    },
    run=_run,
)
