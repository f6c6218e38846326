"""Memory blocks: small named texts that stand in every request of an agent (feature M13).

A block without a ``subject`` is the agent's own. One with a subject is about that user, and stands only in
requests of conversations in which that user takes part. Clients set blocks; the agent edits them by tool.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final, Literal

from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.memory.validation import check_id

DEFAULT_MAX_CHARACTERS: Final = 2_000
MAX_MAX_CHARACTERS: Final = 10_000
"""Largest limit of one block: each request contains the block."""
MAX_DESCRIPTION: Final = 500
MAX_BLOCKS: Final = 10
"""Maximum number of blocks of an agent, and of an agent about one user."""
MAX_CHANGES: Final = 50
"""Maximum number of changes that are kept for each block, the newest."""
_LABEL: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SHOWN_CHARS: Final = 1_000
"""Maximum number of characters of a content in an error: the model needs it to try again."""

ChangeKind = Literal["set", "replace", "append", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKey:
    """Name of a block: its agent, the user it is about ("" for none), its label."""

    agent_id: str
    label: str
    subject: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The origin of a change. ``principal`` is the authenticated caller for whom it was made, ``user_id`` the
    user whose message started the turn that made it. Empty fields do not apply."""

    principal: str = ""
    user_id: str = ""
    conversation_id: str = ""
    turn_id: str = ""
    move_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBlock:
    """One block. ``version`` increases with each change, also over a deletion. ``read_only``: only clients
    change it, not tools."""

    key: BlockKey
    description: str = ""
    content: str = ""
    max_characters: int = DEFAULT_MAX_CHARACTERS
    read_only: bool = False
    version: int = 0
    created_ms: int = 0
    updated_ms: int = 0

    @property
    def etag(self) -> str:
        """Value that a caller returns to change exactly the version it has read."""
        return str(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChange:
    """A recorded change of a block. ``content`` is the content after it; empty after a deletion, and in the
    changes before one."""

    version: int
    kind: ChangeKind
    content: str
    author: Author = field(default_factory=Author)
    changed_ms: int = 0


def check_key(key: BlockKey) -> None:
    """Check the label and the subject of a block."""
    if not _LABEL.fullmatch(key.label):
        raise error(
            Reason.FIELD_INVALID,
            f"label is {key.label[:100]!r}. Use 1 to 64 small letters, digits and '_'; "
            "the first is a letter.",
            field="label",
        )
    check_id(key.subject, "subject")


def check_block(block: MemoryBlock) -> None:
    """Check a block to be stored."""
    check_key(block.key)
    if not 1 <= block.max_characters <= MAX_MAX_CHARACTERS:
        raise error(
            Reason.FIELD_INVALID,
            f"max_characters is {block.max_characters}; use 1 to {MAX_MAX_CHARACTERS}.",
            field="max_characters",
        )
    _check_text(block.description, "description", MAX_DESCRIPTION)
    _check_text(block.content, "content", block.max_characters)


def replaced(content: str, old: str, new: str) -> str:
    """Return the content with ``new`` in place of ``old``. An empty ``old`` stands for an empty content.

    Raises FIELD_INVALID unless ``old`` occurs exactly once: another turn may have changed the block.
    """
    count = content.count(old) if old else int(not content)
    if count != 1:
        often = "does not contain old_text" if not count else f"contains old_text {count} times"
        if not old:
            often = "is not empty, so old_text must not be empty"
        shown = json.dumps(content[:_SHOWN_CHARS], ensure_ascii=False)
        raise error(Reason.FIELD_INVALID, f"The block {often}. Its content is now: {shown}", field="old_text")
    return content.replace(old, new) if old else new


def appended(content: str, text: str) -> str:
    """Return the content with ``text`` as its last line."""
    return f"{content}\n{text}" if content else text


def block_not_found(key: BlockKey) -> WonderError:
    """Return the error for a block that does not exist."""
    whose = f" about the user '{key.subject[:100]}'" if key.subject else ""
    return not_found(
        Reason.MEMORY_NOT_FOUND,
        key.label,
        field="label",
        noun="memory block",
        place=f" of the agent '{key.agent_id}'{whose}",
        next_step="List the memory blocks with `wonder memory blocks` or ListMemoryBlocks.",
    )


def _check_text(text: str, name: str, limit: int) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise error(Reason.FIELD_INVALID, f"{name} is not valid Unicode text.", field=name) from None
    if len(text) > limit:
        raise error(
            Reason.FIELD_INVALID,
            f"{name} would have {len(text)} characters; the maximum is {limit}.",
            field=name,
        )
