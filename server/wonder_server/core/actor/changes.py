"""Changes that a decision makes to an actor's record, for both planners.

A planner's ``record`` turns each decision into these values. The journal's adapter writes them in one
transaction and does not interpret them.

A turn makes dozens of them. They hold no references back to themselves, so the garbage collector skips
them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write a whole row.

    ``live``: the row belongs to the state that an actor is restored from. ``alias``: a second key of the
    row. ``fresh``: the row has never been written, so a `Delete` of it in the same commit leaves nothing to
    write.
    """

    table: str
    id: str
    value: Any
    parent: str = ""
    ordinal: int = 0
    status: str = ""
    alias: str = ""
    live: bool = False
    created_ms: int = 0
    fresh: bool = False


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Remove a row."""

    table: str
    id: str


class Emit(msgspec.Struct, frozen=True, gc=False):
    """Append an event for clients.

    ``name`` is one of the names in docs/events.md (``turn.failed``). ``value`` is the content of the
    payload. ``message_id`` is set if the event ends the stream of that message. ``turn_id`` is empty for
    events of the whole conversation or run.
    """

    name: str
    value: Any
    turn_id: str = ""
    message_id: str = ""

    @property
    def kind(self) -> str:
        """Return the payload field of the contract: the name with ``_`` for ``.``."""
        return self.name.replace(".", "_")


class Erase(msgspec.Struct, frozen=True, gc=False):
    """Remove everything that earlier commits wrote of the actor and of its ``children``.

    ``whole``: this commit keeps only the request that asked for the deletion, and every actor is removed
    whose root is this actor. ``table`` and ``id`` are always empty, since the change names no single row.
    """

    children: tuple[str, ...] = ()
    whole: bool = False
    table: str = ""
    id: str = ""


Change = Put | Delete | Emit | Erase


def field_at(value: Any, path: str) -> Any:
    """Return the field of a row's value at ``path`` (``scope.project_id``); "" if an object on the path is
    None.
    """
    for name in path.split("."):
        if value is None:
            return ""
        value = getattr(value, name)
    return value
