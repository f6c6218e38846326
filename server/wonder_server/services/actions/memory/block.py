"""Parts of the ``memory.block.*`` actions: the block of an input, and blocks as text (feature M13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.core.conversation.model.speakers import USER, label_of
from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonDict
from wonder_server.core.memory.blocks import Author, BlockKey, MemoryBlock
from wonder_server.services.actions.contract.kind import ActionCall
from wonder_server.services.actions.contract.services import AgentBlocks
from wonder_server.services.actions.memory.common import memory_owner

MAX_USERS: Final = 50
"""Maximum number of participants whose blocks one request has, the first of the conversation."""

_BREAKS: Final = ("\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")

BLOCK_SCHEMA: JsonDict = {
    "type": "object",
    "properties": {
        "label": {"type": "string"},
        "subject": {"type": "string", "description": "Id of the user whom it is about, or empty."},
        "description": {"type": "string"},
        "content": {"type": "string"},
        "max_characters": {"type": "integer"},
        "read_only": {"type": "boolean"},
        "text": {
            "type": "string",
            "description": "Heading and content for a prompt. Two spaces precede each line of the content.",
        },
    },
}
WHICH: JsonDict = {
    "label": {"type": "string", "description": "Label of the block."},
    "about_user": {
        "type": "boolean",
        "description": "The block about the user whose message started the turn. "
        "Default: the agent's own block.",
    },
}


def blocks_of(call: ActionCall) -> AgentBlocks:
    """Return the server's memory blocks. Raises NOT_IMPLEMENTED."""
    blocks = call.services.memory_blocks
    if blocks is None:
        raise error(Reason.NOT_IMPLEMENTED, "This server has no store of memory blocks.")
    return blocks


def key_from_input(call: ActionCall) -> BlockKey:
    """Return the key of the block that an input with the fields `WHICH` names.

    Raises NO_AGENT, and FIELD_INVALID for a block about the user in a turn without a user's id."""
    about_user = call.input.get("about_user", False)
    if about_user and not call.context.user_id:
        raise error(
            Reason.FIELD_INVALID,
            "The turn was started by no user with an id. Use a block of the agent.",
            field="about_user",
        )
    subject = call.context.user_id if about_user else ""
    return BlockKey(agent_id=memory_owner(call), subject=subject, label=call.input["label"])


def author_of(call: ActionCall) -> Author:
    """Return the origin of a change that the action makes."""
    context = call.context
    return Author(
        principal=context.principal,
        user_id=context.user_id,
        conversation_id=context.conversation_id,
        turn_id=context.turn_id,
        move_id=context.move_id,
    )


def subjects_of(call: ActionCall) -> list[str]:
    """Return the subjects of a request's blocks: none, and the user of the turn; with ``name_user``, all
    users among the speakers."""
    if not call.input.get("name_user", False):
        return ["", call.context.user_id] if call.context.user_id else [""]
    users = [str(each.get("id", "")) for each in call.input.get("speakers", ()) if each.get("kind") == USER]
    return ["", *list(dict.fromkeys(user for user in users if user))[:MAX_USERS]]


def as_json(block: MemoryBlock, speakers: Sequence[JsonDict] = (), *, name_user: bool = False) -> JsonDict:
    """Return a block as `BLOCK_SCHEMA` describes it."""
    subject = block.key.subject
    whose = f", about [{label_of(speakers, (USER, subject))}]" if name_user else ", about the user"
    size = f"{len(block.content)} of {block.max_characters} characters"
    described = f"{_one_line(block.description)} {size}" if block.description else size
    rights = ", read-only" if block.read_only else ""
    heading = f"- {block.key.label}{whose if subject else ''} ({described}{rights}):"
    return {
        "label": block.key.label,
        "subject": subject,
        "description": block.description,
        "content": block.content,
        "max_characters": block.max_characters,
        "read_only": block.read_only,
        "text": "\n".join([heading, *(f"  {line}" for line in _lines(block.content))]),
    }


def _lines(text: str) -> list[str]:
    for mark in _BREAKS:
        text = text.replace(mark, "\n")
    return text.split("\n") if text else ["(empty)"]


def _one_line(text: str) -> str:
    return " ".join(text.split())
