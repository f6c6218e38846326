"""Questions to a memory: text, the periods that it names, the side of a conversation that it asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from wonder_server.core.memory.dates import Period, mentioned_periods
from wonder_server.core.memory.records import AGENT, USER, Role

MAX_READ_CHARACTERS: Final = 8_000
"""Dates and sides are read in the first characters of a question, as its words are."""

# A person asks an agent, so "you" is the agent and "I" a person. Without a word of saying the pronouns name
# the present wish, not something said: "I want", "can you".
_SAYING: Final = (
    "advised|asked|created|drafted|explained|gave|generated|give|listed|mention|mentioned|outlined|planned|"
    "promised|proposed|provided|recommend|recommended|said|say|showed|suggest|suggested|tell|told|wrote"
)
_SIDES: Final = {
    AGENT: re.compile(rf"\byou(?:['’]ve| have| had)?(?: \w+)? (?:{_SAYING})\b"),
    USER: re.compile(rf"\b(?:i|we)(?:['’]ve| have| had)?(?: \w+)? (?:{_SAYING})\b"),
}


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A question in plain words.

    ``periods`` are the times that it names. ``role`` is the side of the conversation whose words it asks for:
    "what did you suggest" asks for the agent's, "what did I say" for a person's; "" is unknown.
    """

    text: str
    periods: tuple[Period, ...] = ()
    role: Role = ""


def read_query(text: str, now_ms: int) -> MemoryQuery:
    """Return the question with what its text says about time and side. ``now_ms``: when it is asked."""
    start = text[:MAX_READ_CHARACTERS]
    return MemoryQuery(text, mentioned_periods(start, now_ms), _asked_role(start))


def _asked_role(text: str) -> Role:
    """Return the one side whose words the question asks for; "" if it asks for none or for both."""
    lower = text.lower()
    found: list[Role] = [role for role, pattern in _SIDES.items() if pattern.search(lower)]
    return found[0] if len(found) == 1 else ""
