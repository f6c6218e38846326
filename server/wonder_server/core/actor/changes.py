"""The changes that a decision makes to the record: one small vocabulary for both planners.

``record(decision)`` of a planner turns each decision into these; the journal's adapter writes them
in one transaction and knows nothing of what they mean. A turn makes dozens of them, which hold nothing that
refers back to them: the garbage collector need not look at them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write a row whole. ``live`` rows make up the working set that an actor is restored from; ``alias`` is
    a second name that it is found by. ``fresh``: it was never written before, so that where it is removed
    again in the same write there is nothing to write."""

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
    """An event of the record, for clients.

    ``name`` is one of the names in docs/events.md (``turn.failed``). ``value`` is the payload's content.
    ``message_id`` is set if the event closes the streaming text of that message. ``turn_id`` is empty for
    events of the whole conversation or run.
    """

    name: str
    value: Any
    turn_id: str = ""
    message_id: str = ""

    @property
    def kind(self) -> str:
        """The payload field of the contract: the name with ``_`` for ``.``."""
        return self.name.replace(".", "_")


class Erase(msgspec.Struct, frozen=True, gc=False):
    """Remove everything that was written of the actor before this commit, and of its ``children``.

    ``whole``: of this commit too nothing is kept but the request that asked for it, and everything goes whose
    root the actor is. ``table`` and ``id`` are always empty: no single row is meant.
    """

    children: tuple[str, ...] = ()
    whole: bool = False
    table: str = ""
    id: str = ""


Change = Put | Delete | Emit | Erase


def field_at(value: Any, path: str) -> Any:
    """The field of a row's value at ``path`` (``scope.project_id``); "" if an object on the way is None."""
    for name in path.split("."):
        if value is None:
            return ""
        value = getattr(value, name)
    return value
