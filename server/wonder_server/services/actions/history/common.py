"""Parts of the ``history.*`` actions: schema and JSON form of messages."""

from __future__ import annotations

from typing import Final

from wonder_server.core.conversation.model.values import Message
from wonder_server.core.expressions.times import utc_text
from wonder_server.core.json_types import JsonDict

MESSAGE_FIELDS: Final[JsonDict] = {
    "id": {"type": "string", "description": "Id of the message."},
    "number": {"type": "integer", "description": "Number of the message in the conversation, from 1."},
    "speaker": {
        "type": "string",
        "description": "Label of the author, such as `user Mia`. The server makes it: one line.",
    },
    "time": {"type": "string", "description": "Time of the message, such as `2026-11-23T09:05:59.120Z`."},
    "text": {"type": "string"},
}


def message_as_json(message: Message, speaker: str, text: str) -> JsonDict:
    """Return a message as `MESSAGE_FIELDS` describes it."""
    return {
        "id": message.id,
        "number": message.ordinal,
        "speaker": speaker,
        "time": utc_text(message.created_ms),
        "text": text,
    }
