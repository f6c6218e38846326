"""``history.read_result``: reads a piece of a large result of one of the agent's own tool calls."""

from __future__ import annotations

from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall, ActionKind
from wonder_server.services.history.agent_history import MAX_PIECE_BYTES

DEFAULT_BYTES = 8 * 1024


async def _run(call: ActionCall) -> JsonDict:
    given = call.input
    length = int(given.get("length", 0)) or DEFAULT_BYTES
    offset = int(given.get("offset", 0))
    piece = await call.services.history.read_result(call.context, given["result_id"], offset, length)
    read: JsonDict = {"text": piece.text, "offset": piece.start, "size_bytes": piece.size}
    if piece.end < piece.size:
        read["next_offset"] = piece.end
    return read


HISTORY_READ_RESULT = ActionKind(
    name="history.read_result",
    description="Reads a piece of a tool's result that was too large for the model: of a call of the task's "
    "agent in the task's conversation, in this turn or an earlier one.",
    input_schema={
        "type": "object",
        "properties": {
            "result_id": {
                "type": "string",
                "description": "Id of the result, from the notice about the cut.",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "Position in the result, in bytes. Default: 0.",
            },
            "length": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_PIECE_BYTES,
                "description": f"Number of bytes. 0 means {DEFAULT_BYTES:,}.",
            },
        },
        "required": ["result_id"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "offset": {"type": "integer", "description": "Position of the text, in bytes."},
            "size_bytes": {"type": "integer", "description": "Size of the whole result."},
            "next_offset": {
                "type": "integer",
                "description": "Position at which it goes on. Missing at the end.",
            },
        },
    },
    run=_run,
)
