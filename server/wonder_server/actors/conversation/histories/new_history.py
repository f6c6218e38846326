"""Creation of a conversation with a history: hidden until the history is complete.

A long history is many commits, so that other actors of the shard are not kept waiting. The last one makes the
conversation visible and stores the answer of the request. After a crash before it, the next start removes
what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import Final, Protocol

from wonder_server.actors.access import ActorDirectory
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.core.conversation.model.histories.origin import ConversationOrigin
from wonder_server.core.conversation.model.histories.staging import AddHistory, Discard, HistoryTurn
from wonder_server.core.conversation.model.inputs import Create, Publish
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.errors import WonderError
from wonder_server.core.frozen import replace
from wonder_server.core.idempotency import IdempotencyKey, Origin

PART_MESSAGES: Final = 100
"""Number of messages above which a part of a history ends."""
PART_CHARS: Final = 200_000
"""Number of characters of texts above which a part of a history ends."""

Part = tuple[HistoryTurn, ...]


class NewHistory(Protocol):
    """The history of a conversation to create."""

    def identity(self, origin: Origin) -> IdempotencyKey | None:
        """Return the key of the request that creates the conversation."""
        ...

    async def prepare(self, conversation: Conversation) -> None:
        """Check the history against the conversation, which is complete but for its history. Raises the
        errors of the request."""
        ...

    def parts(self, conversation: Conversation) -> AsyncIterator[Part]:
        """Return the history in parts. `prepare` comes first."""
        ...

    def publication(self, conversation: Conversation) -> Publish:
        """Return the input that makes the conversation visible. All of `parts` come first."""
        ...

    def published(self, outcome: Outcome) -> None:
        """Take the outcome of the publication."""
        ...


async def create_with_history(
    directory: ActorDirectory,
    conversation: Conversation,
    history: NewHistory,
    identity: IdempotencyKey | None,
    caller: str,
) -> None:
    """Create the conversation with its history and wait until all of it is on disk. Errors: those of
    `NewHistory` and of `ActorDirectory.ask`; nothing remains then."""
    await history.prepare(conversation)
    conversation_id = conversation.id
    origin = replace(conversation.origin or ConversationOrigin(), staged_ms=conversation.created_ms)
    staged = replace(conversation, origin=origin, external_ref="")
    try:
        await directory.ask(conversation_id, Create(conversation=staged), caller=caller, fresh=True)
        async for part in history.parts(conversation):
            await directory.ask(conversation_id, AddHistory(turns=part), caller=caller)
        publish = history.publication(conversation)
        history.published(await directory.ask(conversation_id, publish, identity, caller=caller))
    except asyncio.CancelledError:
        directory.tell(conversation_id, Discard())
        with suppress(WonderError):
            # The caller's locks hold until the next holder finds the conversation, or finds none.
            await directory.flush(conversation_id)
        raise
    except Exception:
        directory.tell(conversation_id, Discard())
        raise


def in_parts(turns: Iterable[HistoryTurn]) -> Iterator[Part]:
    """Yield the turns in parts that take a few milliseconds each."""
    part: list[HistoryTurn] = []
    messages = chars = 0
    for turn in turns:
        part.append(turn)
        messages += len(turn.messages) + len(turn.moves)
        chars += _chars(turn)
        if messages >= PART_MESSAGES or chars >= PART_CHARS:
            yield tuple(part)
            part, messages, chars = [], 0, 0
    if part:
        yield tuple(part)


def _chars(turn: HistoryTurn) -> int:
    texts = sum([len(message.content) for message in turn.messages])
    # The size of a result is known only by encoding it; most are small.
    return texts + sum([1_000 * len(move.invocations) for move in turn.moves])
