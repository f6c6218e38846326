"""Entries of earlier turns in the input of context assembly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wonder_server.core.content.parts import neutral_content, readable
from wonder_server.core.conversation.model.speakers import Key, Speakers, author_key, author_name
from wonder_server.core.conversation.model.values import Message, Turn, TurnStatus
from wonder_server.core.json_types import JsonDict
from wonder_server.core.request_formats.parts import is_blank
from wonder_server.core.token_estimates import byte_size


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """Entries of one turn in the assembly's input.

    ``turn`` is its entry in ``recent_turns``, ``history`` are its entries in ``history``, and
    ``size_bytes`` is the size of their texts. ``omitted_through`` is the ordinal of the turn's last omitted
    message (0 if none), and ``first_ordinal`` that of its first included one. ``status`` and
    ``last_message`` are those of the turn. ``authors`` are the authors of the included messages, and
    ``speakers`` the speakers of the conversation. ``form`` is what else the entry depends on.

    Assemblies share the same objects while the entry is current (`is_current`), so the codec encodes them
    once.
    """

    turn: JsonDict
    history: list[JsonDict]
    size_bytes: int
    omitted_through: int
    first_ordinal: int
    status: TurnStatus
    last_message: Message
    authors: frozenset[Key]
    speakers: Speakers
    form: object = None

    def is_current(
        self, turn: Turn, turn_messages: Sequence[Message], first: int, speakers: Speakers
    ) -> bool:
        """Return True if `history_entry` would return an equal entry; messages never change."""
        return (
            self.omitted_through < first <= self.first_ordinal
            and self.last_message is turn_messages[-1]
            and self.status is turn.status
            and self.speakers is speakers
        )


def history_entry(
    turn: Turn, turn_messages: Sequence[Message], first: int, speakers: Speakers
) -> HistoryEntry | None:
    """Return the entry of a turn from the ordinal ``first`` on; None if no message remains."""
    seen = [message for message in turn_messages if message.ordinal >= first]
    if not seen:
        return None
    messages = [
        {
            "role": message.role.value,
            "content": readable(message.content, message.parts),
            "author": message.author,
            "speaker": speakers.get(author_key(message, turn), author_name(message, turn)),
            **({"parts": neutral_content(message.content, message.parts)} if message.parts else {}),
        }
        for message in seen
        # Providers reject messages of white space, which models produce at times.
        if message.parts or not is_blank(message.content)
    ]
    return HistoryEntry(
        turn={"turn_id": turn.id, "status": turn.status.value, "messages": messages},
        history=[{**message, "turn_id": turn.id} for message in messages],
        size_bytes=sum([byte_size(message.content) for message in seen]),
        omitted_through=max(
            [message.ordinal for message in turn_messages if message.ordinal < first], default=0
        ),
        first_ordinal=min([message.ordinal for message in seen]),
        status=turn.status,
        last_message=turn_messages[-1],
        authors=frozenset([author_key(message, turn) for message in seen]),
        speakers=speakers,
    )
