"""Export of a conversation's record from the journal, and its restoration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from wonder_server.core.json_types import JsonObject

ArchivedRow = tuple[str, JsonObject]
"""A table and one of its rows: columns by name, their values text, numbers or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredObject:
    """An object that is about to be written, or was written, for a conversation.

    ``archived_ms`` is that of the conversation at the time; ``epoch`` is that under which the writer owns the
    shard. The key and the epoch identify a registration.
    """

    key: str
    conversation_id: str
    archived_ms: int
    registered_ms: int
    epoch: int


class Archives(Protocol):
    """Complete records in stored form. Errors: STORAGE_UNAVAILABLE."""

    @property
    def version(self) -> int:
        """Version of the rows that `export` yields, and the highest that `restore` accepts."""
        ...

    def export(self, actor_id: str, children: Sequence[str]) -> AsyncIterator[list[ArchivedRow]]:
        """Yield every row of an actor and of ``children``, actors of the same shard, in groups.

        The first is the row of the actor in ``actors``, whose ``entry_head`` tells a caller whether the actor
        has changed since. Writes meanwhile may be missing."""
        ...

    async def restore(self, actor_id: str, lines: Iterable[ArchivedRow], epoch: int) -> None:
        """Write exported rows in one transaction. Existing rows stay unchanged.

        ``epoch`` is that under which this node owns the actor's shard. Raises `StaleEpochError` if the shard
        has a later one.
        """
        ...

    async def register(self, registered: RegisteredObject) -> None:
        """Record an object durably in its conversation's shard. An earlier registration is replaced.

        Raises `StaleEpochError` if the shard has a later epoch.
        """
        ...

    async def registered(self, conversation_id: str = "") -> list[RegisteredObject]:
        """Return the registrations of one conversation, or all. Damaged ones are logged and skipped."""
        ...

    async def unregister(self, registered: RegisteredObject) -> None:
        """Remove a registration, unless it was replaced meanwhile."""
        ...
