"""Memories as text for a model: one line each, with the user who said it.

What one user says of themselves is no fact about another. A memory about a user therefore names its
speaker, except to that user alone. The label of the speaker is safe (`core.conversation.model.speakers`), and
no content can begin with an attribution of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.core.actor.commands import Scope
from wonder_server.core.conversation.model.speakers import AGENT, USER, label_of
from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.records import Memory

LINE_CHARS: Final = 1000
"""Maximum number of characters of a memory's content in a line."""

SPEAKERS: JsonDict = {
    "speakers": {
        "type": "array",
        "items": {"type": "object"},
        "description": "Speakers of the conversation, {id, kind, label}. Their labels stand for them in "
        "results.",
    },
    "name_user": {
        "type": "boolean",
        "description": "Name the speaker also of memories about the user whose message started the turn, "
        "as in a conversation of several. Default: false.",
    },
}
"""Inputs of the actions that return memories as text."""

TEXTS: JsonDict = {
    "about_user": {
        "type": "boolean",
        "description": "True if it is about the user whose message started the turn.",
    },
    "attribution": {
        "type": "string",
        "description": "The user who said it, such as `(said by [user Mia]) ` with a space at its end. Empty "
        "for a memory about no user, and for the own memories of the user whose message started the turn.",
    },
    "line": {
        "type": "string",
        "description": f"Attribution and content as one line, at most {LINE_CHARS} characters of content.",
    },
}
"""Fields of a memory in these results."""

_MARK: Final = "(said by ["


def texts(memory: Memory, context: Scope, speakers: Sequence[JsonDict], *, name_user: bool) -> JsonDict:
    """Return the fields `TEXTS` of a memory."""
    about_user = bool(memory.subject) and memory.subject == context.user_id
    attribution = _attribution(memory, speakers) if memory.subject else ""
    if about_user and not name_user and _speaker(memory) == (USER, memory.subject):
        attribution = ""
    # Not every kind of white space breaks a line, but all of them may become one space.
    content = " ".join(memory.content[: 4 * LINE_CHARS].split()).replace(_MARK, "(said by (")
    if len(content) > LINE_CHARS or len(memory.content) > 4 * LINE_CHARS:
        content = content[: LINE_CHARS - 1] + "…"
    return {"about_user": about_user, "attribution": attribution, "line": attribution + content}


def _attribution(memory: Memory, speakers: Sequence[JsonDict]) -> str:
    kind, speaker_id = _speaker(memory)
    name = memory.source.speaker if memory.source.speaker_id else ""
    text = _MARK + label_of(speakers, (kind, speaker_id), name) + "]"
    if (kind, speaker_id) != (USER, memory.subject):
        text += f" about [{label_of(speakers, (USER, memory.subject))}]"
    return text + ") "


def _speaker(memory: Memory) -> tuple[str, str]:
    """Return kind and id of the speaker; without one, what is about a user was said by that user."""
    source = memory.source
    if not source.speaker_id:
        return USER, memory.subject
    return (AGENT if source.role == "agent" else USER), source.speaker_id
