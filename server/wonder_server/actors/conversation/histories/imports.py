"""Import of a history into a new conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from wonder_server.actors.conversation.histories.new_history import Part, in_parts
from wonder_server.actors.conversation.message_parts import MessageFiles, PartRequest
from wonder_server.actors.runtime.actor import Outcome
from wonder_server.core import ids
from wonder_server.core.content.parts import Parts
from wonder_server.core.conversation.model.inputs import Publish
from wonder_server.core.conversation.model.values import Conversation, Participant, Role
from wonder_server.core.conversation.planning.histories.imports import (
    HistoryCall,
    HistoryMessage,
    imported_turns,
)
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.idempotency import IdempotencyKey, Origin, content_key

MAX_HISTORY_MESSAGES: Final = 10_000
"""Maximum number of messages of an imported history."""

_AT_ONCE: Final = 100
"""Number of messages that are checked before other work gets its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageToImport:
    """A message as a client gives it. ``speaker`` is ``user``, ``agent`` or ``other_agent``, and ``name`` its
    id or name; ``at_ms`` is 0 without a time."""

    speaker: str
    name: str
    content: str
    parts: tuple[PartRequest, ...] = ()
    calls: tuple[HistoryCall, ...] = ()
    at_ms: int = 0


@dataclass(slots=True)
class ImportedHistory:
    """The history of a conversation to create, as a client gives it; see `NewHistory`."""

    files: MessageFiles
    given: Sequence[MessageToImport]
    principal: str
    now_ms: int
    _messages: list[HistoryMessage] = field(default_factory=list)

    def identity(self, origin: Origin) -> IdempotencyKey | None:
        return content_key("conversations", origin, imported=origin.fingerprint)

    async def prepare(self, conversation: Conversation) -> None:
        """Resolve speakers, files and times.

        Errors: FIELD_INVALID, NO_AGENT, AGENT_NOT_FOUND, FILE_NOT_FOUND, PAYLOAD_TOO_LARGE, LIMIT_EXCEEDED.
        """
        messages: list[HistoryMessage] = []
        last_ms = next((each.at_ms for each in self.given if each.at_ms), self.now_ms)
        for index, each in enumerate(self.given):
            place = f"messages[{index}]"
            last_ms = self._time(each, last_ms, place)
            try:
                content = each.content
                parts: Parts = ()
                if each.parts or not each.calls or each.content.strip():
                    content, parts = await self.files.resolve(
                        conversation.project_id, each.content, each.parts
                    )
            except WonderError as problem:
                raise _at(problem, place) from None
            message = HistoryMessage(
                role=Role.USER if each.speaker == "user" else Role.AGENT,
                author=each.name,
                content=content if content.strip() else "",
                parts=parts,
                calls=each.calls,
                at_ms=last_ms,
            )
            messages.append(_with_author(message, each, conversation, place))
            if index % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        _check_first_texts(messages)
        self._messages = messages

    async def parts(self, conversation: Conversation) -> AsyncIterator[Part]:
        seed = ids.random_id("seed", self.now_ms)
        for part in in_parts(imported_turns(conversation.id, self._messages, seed, self.principal)):
            yield part

    def publication(self, conversation: Conversation) -> Publish:
        return Publish(conversation=conversation)

    def published(self, outcome: Outcome) -> None:
        pass

    def _time(self, message: MessageToImport, last_ms: int, place: str) -> int:
        """Return the time of a message after one at ``last_ms``."""
        at_ms, where = message.at_ms, f"{place}.create_time"
        if not at_ms:
            return last_ms
        if at_ms < 0:
            raise error(Reason.FIELD_INVALID, f"{where} is before 1970.", field=where)
        if at_ms > self.now_ms:
            raise error(
                Reason.FIELD_INVALID,
                f"{where} is in the future. A history has only messages of the past.",
                field=where,
            )
        if at_ms < last_ms:
            raise error(
                Reason.FIELD_INVALID,
                f"{where} is before that of the message before. Order the messages by their times.",
                field=where,
            )
        return at_ms


def _with_author(
    message: HistoryMessage, given: MessageToImport, conversation: Conversation, place: str
) -> HistoryMessage:
    author = name = ""
    if given.speaker == "agent":
        agent = _agent(conversation, given.name, place)
        author, name = agent.id, agent.name
    elif given.speaker == "other_agent":
        author = given.name
    else:
        users = [person.id for person in conversation.participants if person.type == "user"]
        author = given.name or (users[0] if len(users) == 1 else "")
    return replace(message, author=author, author_name=name)


def _agent(conversation: Conversation, key: str, place: str) -> Participant:
    """Return the agent that a message names; the first one for ""."""
    agents = [person for person in conversation.participants if person.type == "agent"]
    if not agents:
        raise error(
            Reason.NO_AGENT,
            f"{place} is of an agent, but the conversation has none. Name it in participants, or set "
            "other_agent.",
            field=f"{place}.agent_id",
        )
    if not key:
        return agents[0]
    exact = [agent for agent in agents if agent.id == key] or [agent for agent in agents if agent.name == key]
    if not exact:
        raise not_found(
            Reason.AGENT_NOT_FOUND,
            key,
            field=f"{place}.agent_id",
            place=" among the participants of this conversation",
            next_step="Name it in conversation.participants, or set other_agent.",
        )
    return exact[0]


def _check_first_texts(messages: Sequence[HistoryMessage]) -> None:
    """Raise FIELD_INVALID for calls of an agent that follow no text of the same turn."""
    before: HistoryMessage | None = None
    for index, message in enumerate(messages):
        silent = not message.content and not message.parts
        follows = before is not None and (before.role is Role.USER or before.author == message.author)
        if silent and not follows:
            where = f"messages[{index}].content"
            raise error(
                Reason.FIELD_INVALID,
                f"{where} is empty, and no message of a user or of the same agent precedes it. "
                "Give the calls a text.",
                field=where,
            )
        before = message


def _at(problem: WonderError, place: str) -> WonderError:
    """Return the error of one message with its place in the request."""
    fault = problem.fault
    where = f"{place}.{fault.field}" if fault.field else place
    text = fault.message.removeprefix(f"{fault.field} ") if fault.field else fault.message
    return WonderError(replace(fault, field=where, message=f"{where} {text}"))
