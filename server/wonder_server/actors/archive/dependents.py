"""The dependents of a conversation: its runs, and the conversations delegated from it."""

from __future__ import annotations

from collections.abc import Sequence

from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.ports.records import Query
from wonder_server.ports.scoped import ScopedRecords

PAGE = 100


class Dependents:
    """Finds dependents in all shards."""

    def __init__(self, records: ScopedRecords) -> None:
        self._records = records

    async def runs(self, conversation_id: str, *, lenient: bool = False) -> list[str]:
        """Return the ids of the conversation's runs, hooks included, newest first. ``lenient`` skips damaged
        ones."""
        found: list[str] = []
        after: tuple[int, str] | None = None
        while True:
            page = await self._records.find(
                Query(table="runs", parent=conversation_id, after=after, limit=PAGE, lenient=lenient)
            )
            found += [run.id for run in page]
            if not page or (len(page) < PAGE and not getattr(page, "cut", False)):
                return found
            after = (page[-1].created_ms, page[-1].id)

    async def open_runs(self, conversation_id: str, *, lenient: bool = False) -> list[str]:
        """Return the ids of up to `PAGE` runs that have not ended. ``lenient`` skips damaged ones."""
        still_open = (RunStatus.RUNNING.value, RunStatus.WAITING.value)
        query = Query(table="runs", parent=conversation_id, statuses=still_open, limit=PAGE, lenient=lenient)
        return [run.id for run in await self._records.find(query)]

    async def delegated_conversations(
        self, conversation_id: str, runs: Sequence[str], *, lenient: bool = False
    ) -> list[str]:
        """Return the ids of conversations that the conversation or its runs created for one delegated turn.

        ``lenient`` skips damaged ones.
        """
        callers = [conversation_id, *runs]
        found: list[Conversation] = []
        for start in range(0, len(callers), PAGE):
            wanted = tuple(callers[start : start + PAGE])
            query = Query(
                table="conversations",
                fields=(("called_by", wanted),),
                limit=PAGE * PAGE,
                lenient=lenient,
            )
            found += await self._records.find(query)
        return [conversation.id for conversation in found]
