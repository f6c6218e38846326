"""Export of a conversation's record from the journal, and its restoration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

from wonder_server.core.json_types import JsonObject

ArchivedRow = tuple[str, JsonObject]
"""A table and one of its rows: columns by name, their values text, numbers or None."""


class Archives(Protocol):
    """Complete records in stored form. Errors: STORAGE_UNAVAILABLE."""

    @property
    def version(self) -> int:
        """Version of the rows that `export` yields, and the highest that `restore` accepts."""
        ...

    def export(self, actor_id: str, children: Sequence[str]) -> AsyncIterator[list[ArchivedRow]]:
        """Yield every row of an actor and of ``children``, actors of the same shard, in groups. The caller
        prevents writes to them meanwhile."""
        ...

    async def restore(self, actor_id: str, lines: Iterable[ArchivedRow]) -> None:
        """Write exported rows in one transaction. Existing rows stay unchanged."""
        ...
