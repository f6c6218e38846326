"""Search in messages: reads them from the newest on, and keeps those that match.

No index of words exists, so a turn pays nothing for searches (docs/adr/0044). A search reads in portions,
between which the stores do other work, and ends at a bound; its page token continues there.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from wonder_server.core import ids
from wonder_server.core.conversation.model.values import Message, Role
from wonder_server.core.errors import Reason, error
from wonder_server.core.history.text_query import TextQuery
from wonder_server.core.json_types import JsonValue
from wonder_server.ports.records import Position, Query, QueryResult
from wonder_server.ports.scoped import ScopedRecords

_Result = TypeVar("_Result")

PORTION: Final = 250
"""Messages that a store reads at once. It takes 3 ms, in which its writer waits. With 1,000 the event loop
was late by up to 27 ms, with 250 by up to 18."""
PORTION_BYTES: Final = 1 << 20
"""Maximum size of the matches of a portion, and of the messages that it reads, except the last. To read and
compare 1 MiB takes 2 to 5 ms; a portion of 250 messages of 1 MiB made the writer wait for a second."""
MAX_READ: Final = 20_000
"""Messages that one search reads at most, in each store."""
_SCORED_AT_ONCE: Final = 50
"""Matches that are scored before other work of the event loop runs."""
_SCORED_CHARACTERS: Final = 10_000
"""Characters of these matches: 8 ms for a query of 16 words. A longer message is scored in a thread."""
_MAX_ID_AGE_MS: Final = 86_400_000
"""A message has its id when the model is called, and its time when the answer is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Conditions of a search. Empty ones are met by all messages.

    ``agent_id`` and ``user_id`` are of the author; with both, either may be. ``first_ordinal`` is that of the
    oldest message in a conversation. Times are of the creation, in milliseconds; the end is exclusive.
    """

    conversation_id: str = ""
    project_id: str = ""
    agent_id: str = ""
    user_id: str = ""
    start_ms: int = 0
    end_ms: int = 0
    first_ordinal: int = 0

    def roles(self) -> tuple[str, ...]:
        """Return the roles that a wanted author can have; () for any."""
        agent, user = bool(self.agent_id), bool(self.user_id)
        return () if agent == user else ((Role.AGENT if agent else Role.USER).value,)

    def accepts(self, message: Message) -> bool:
        """Return True if the author is a wanted one, and the message is not before the oldest."""
        if message.ordinal < self.first_ordinal:
            return False
        wanted = self.agent_id if message.role is Role.AGENT else self.user_id
        return message.author == wanted if self.agent_id or self.user_id else True


@dataclass(frozen=True, slots=True)
class MessageMatch:
    """A message that matches, its score (0 if it was not computed), and the text around the first match."""

    message: Message
    score: float
    snippet: str


@dataclass(frozen=True, slots=True)
class MatchPage:
    """Matches, and the position at which the search goes on; None at its end.

    ``complete`` is False if older messages were not read. ``newest_id`` is the highest id of the matches that
    were ranked.
    """

    matches: tuple[MessageMatch, ...]
    next: Position | None = None
    complete: bool = True
    newest_id: str = ""


class MessageSearch:
    """Searches the messages of the conversations in one access scope. Archived conversations have none."""

    def __init__(self, records: ScopedRecords, *, portion: int = PORTION, max_read: int = MAX_READ) -> None:
        """``portion`` and ``max_read`` limit the messages of each store: read at once, and in one search."""
        self._records = records
        self._portion = portion
        self._max_read = max_read

    async def newest(
        self, query: TextQuery, wanted: MessageFilter, limit: int, after: Position | None = None
    ) -> MatchPage:
        """Return up to ``limit`` matches, newest first, after the position ``after``.

        A page may have fewer matches, or none, and a next position: the search has read its maximum.
        """
        found: list[Message] = []
        size, end = 0, after
        async for portion, next_position in self._portions(query, wanted, after):
            end = next_position
            for message in portion:
                size += len(message.content)
                if found and (len(found) == limit or size > PORTION_BYTES):
                    matches = await _matches(query, found)
                    return MatchPage(matches, _position(wanted, found[-1]), complete=False)
                found.append(message)
        return MatchPage(await _matches(query, found), end, complete=end is None)

    async def best(
        self, query: TextQuery, wanted: MessageFilter, limit: int, offset: int = 0, before: str = ""
    ) -> MatchPage:
        """Return up to ``limit`` matches by score, best first, without the first ``offset``.

        Only the newest messages are ranked if there are more than a search reads. ``before`` is an id:
        messages with later ids are not ranked, so that all pages rank the same.
        """
        best: list[tuple[float, str, Message]] = []
        end: Position | None = None
        newest_id = ""
        async for portion, next_position in self._portions(query, wanted, None):
            end = next_position
            ranked = [message for message in portion if not before or message.id <= before]
            newest_id = max([newest_id, *(message.id for message in ranked)])
            scores = await _for_each(query.score, ranked)
            best += [(score, message.id, message) for score, message in zip(scores, ranked, strict=True)]
            best = heapq.nlargest(offset + limit, best, key=lambda item: item[:2])
        page = best[offset:]
        snippets = await _for_each(query.snippet, [message for _, _, message in page])
        matches = tuple(
            MessageMatch(message, score, snippet)
            for (score, _, message), snippet in zip(page, snippets, strict=True)
        )
        return MatchPage(matches, complete=end is None, newest_id=newest_id)

    async def _portions(
        self, query: TextQuery, wanted: MessageFilter, after: Position | None
    ) -> AsyncIterator[tuple[list[Message], Position | None]]:
        """Yield portions of matches, newest first, each with the position after it; None after the last."""
        rows = _rows(query, wanted, self._portion)
        position, read = after or _first_position(wanted), 0
        while True:
            rows = replace(rows, after=position)
            found = await self._records.find(rows)
            read += self._portion
            position = _end(wanted, found, self._portion)
            if position is not None and _is_before(wanted, position):
                position = None
            messages = [each for each in found if wanted.accepts(each)]
            stop = position is None or read >= self._max_read
            yield messages, position
            if stop:
                return


def position_of(cursor: JsonValue) -> Position | None:
    """Return the position in a page token; None for the beginning. Raises PAGE_TOKEN_INVALID."""
    if not cursor:
        return None
    if len(cursor) != 2 or type(cursor[0]) is not int or type(cursor[1]) is not str:
        raise error(Reason.PAGE_TOKEN_INVALID, "page_token is not valid for this list.", field="page_token")
    return cursor[0], cursor[1]


def _rows(query: TextQuery, wanted: MessageFilter, portion: int) -> Query:
    return Query(
        table="messages",
        actor=wanted.conversation_id,
        by_ordinal=bool(wanted.conversation_id),
        by_id=not wanted.conversation_id,
        projects=frozenset({wanted.project_id}) if wanted.project_id else None,
        statuses=wanted.roles(),
        start_ms=wanted.start_ms,
        end_ms=wanted.end_ms,
        text=query,
        limit=portion,
        max_read=portion,
        max_read_bytes=PORTION_BYTES,
        max_bytes=PORTION_BYTES,
    )


async def _matches(query: TextQuery, found: list[Message]) -> tuple[MessageMatch, ...]:
    rated = await _for_each(lambda content: (query.score(content), query.snippet(content)), found)
    return tuple(MessageMatch(message, *each) for message, each in zip(found, rated, strict=True))


async def _for_each(work: Callable[[str], _Result], messages: list[Message]) -> list[_Result]:
    """Return the results of ``work`` for the contents. Other work of the event loop runs in between."""
    results: list[_Result] = []
    count = size = 0
    for message in messages:
        length = len(message.content)
        if length > _SCORED_CHARACTERS:
            results.append(await asyncio.to_thread(work, message.content))
            continue
        count, size = count + 1, size + length
        if count > _SCORED_AT_ONCE or size > _SCORED_CHARACTERS:
            await asyncio.sleep(0)
            count, size = 1, length
        results.append(work(message.content))
    return results


def _position(wanted: MessageFilter, message: Message) -> Position:
    return (message.ordinal if wanted.conversation_id else 0, message.id)


def _first_position(wanted: MessageFilter) -> Position | None:
    """Return the position at which the search begins: the time in an id is not after that of its message."""
    if wanted.conversation_id or not wanted.end_ms:
        return None
    return 0, f"msg_{ids.encode(wanted.end_ms, 0)}"


def _end(wanted: MessageFilter, found: list[Message], portion: int) -> Position | None:
    """Return the position after a portion; None if it was the last."""
    if not isinstance(found, QueryResult) or not found.truncated:
        return _position(wanted, found[-1]) if len(found) >= portion else None
    return found.end or _position(wanted, found[-1])


def _is_before(wanted: MessageFilter, position: Position) -> bool:
    """Return True if all messages after the position are older than those that are wanted."""
    order, message_id = position
    if wanted.conversation_id:
        return order <= wanted.first_ordinal
    oldest = wanted.start_ms - _MAX_ID_AGE_MS
    return oldest > 0 and message_id < f"msg_{ids.encode(oldest, 0)}"
