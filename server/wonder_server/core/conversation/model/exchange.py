"""Parts of earlier turns in later requests: moves with tool calls, summaries, and prompts of a reset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One move of a turn with tool calls, as later requests have it.

    ``message_id`` is the message of the move's text. ``notice`` is the notice about asynchronous results that
    preceded the answer; "" without one. ``calls`` and ``results`` are in the neutral form
    (`core.request_formats.neutral`). ``size_bytes`` is the size of the texts.
    """

    message_id: str
    notice: str
    calls: tuple[JsonDict, ...]
    results: tuple[JsonDict, ...]
    size_bytes: int


def exchanges_bytes(exchanges: Sequence[Exchange]) -> int:
    """Return the size of the texts of exchanges."""
    return sum([exchange.size_bytes for exchange in exchanges])


class Summary(Value, frozen=True, kw_only=True):
    """A summary that replaces the first ``messages`` messages, up to ``last_ordinal``, for agents that
    summarize.

    It is valid until the conversation is reset after a turn later than ``after_turn``.
    """

    text: str
    last_ordinal: int
    messages: int
    after_turn: int = 0


class PromptSnapshot(Value, frozen=True, kw_only=True):
    """An agent's system message at the time of a reset."""

    agent_id: str
    system_prompt: str
    instructions: tuple[str, ...] = ()


REPLY_CHARS: Final = 160
"""Maximum number of characters of its message that an earlier reply quotes."""


class Quote(Value, frozen=True, kw_only=True):
    """The message that a turn's message replies to, as it was when the turn started.

    ``kind``, ``author`` and ``name`` are the speaker's; the name only if the author is an agent. ``text`` is
    the beginning of the content. ``turn_ordinal`` is the ordinal of the quoted message's turn. ``line_bytes``
    is the estimated size of the line with which later requests begin the reply; 0 in quotes of earlier
    builds, whose histories did not count it.
    """

    kind: str
    author: str
    name: str = ""
    text: str
    turn_ordinal: int
    line_bytes: int = 0
