"""Taking a conversation's record out of the journal, and putting it back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Protocol

ArchivedRow = tuple[str, Mapping[str, Any]]
"""A table, and one of its rows: columns by name, their values text, numbers or None."""


class Archives(Protocol):
    """Whole records, as they are written. Errors: STORAGE_UNAVAILABLE."""

    @property
    def version(self) -> int:
        """The version of the lines that `export` gives, and the highest that `restore` takes."""
        ...

    def export(self, actor_id: str, children: Sequence[str]) -> AsyncIterator[list[ArchivedRow]]:
        """Every row of an actor and of ``children``, which lie beside it, some at a time. Nothing may be
        written of them meanwhile."""
        ...

    async def restore(self, actor_id: str, lines: Iterable[ArchivedRow]) -> None:
        """Write what was exported, all at once. What is there already stays as it is."""
        ...
