"""Names of events as older servers stored them.

Event rows keep the name that they were written with: their seals cover it. The shard translates on read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

STORED: Final[Mapping[str, str]] = {
    "conversation_updated": "conversation.updated",
    "conversation_reset": "conversation.reset",
    "participant_joined": "participant.joined",
    "participant_left": "participant.left",
    "workflow_cancelled": "workflow.cancelled",
}
"""Today's name of each event whose stored name differs."""

_BY_NAME: Final = {name: stored for stored, name in STORED.items()}


def current_name(stored: str) -> str:
    """Return today's name of an event that is stored under ``stored``."""
    return STORED.get(stored, stored)


def stored_names(names: Iterable[str]) -> list[str]:
    """Return every name under which events called ``names`` today may be stored."""
    found = []
    for name in names:
        found.append(name)
        if name in _BY_NAME:
            found.append(_BY_NAME[name])
    return found
