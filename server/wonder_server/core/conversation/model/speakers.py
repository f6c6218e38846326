"""Speakers of a conversation: the users, agents and workflows whose messages a hook's input contains.

A speaker is ``{id, kind, name, label}``. The label is the text that stands for the speaker in a request, such
as ``user Mia``. Users choose their names and ids, so a label follows these rules:

- It begins with the kind, which the server knows. The name of a user therefore cannot stand for an agent.
- It is one line of at most `labels.NAME_CHARS` characters for the name. Control characters, invisible
  characters, brackets and parentheses are removed (`labels.clean`).
- Two speakers of a conversation have different labels. Participants with equal names have their ids in
  parentheses, and so has a former participant whose name a participant has.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

from wonder_server.core.content.labels import clean
from wonder_server.core.content.parts import readable
from wonder_server.core.conversation.model.exchange import REPLY_CHARS, Quote
from wonder_server.core.conversation.model.values import Caller, Message, Participant, Role, Turn
from wonder_server.core.identity_cache import cache_by_identity
from wonder_server.core.json_types import JsonDict
from wonder_server.core.token_estimates import byte_size

USER: Final = "user"
AGENT: Final = "agent"
WORKFLOW: Final = "workflow"

Key = tuple[str, str]
"""Kind and id of a speaker."""


class Speakers:
    """The participants of a conversation as speakers, and other speakers that its history names."""

    def __init__(self, participants: Sequence[Participant]) -> None:
        keys = [(person.type, person.id) for person in participants]
        names = [_shown_name(person.id, person.name) for person in participants]
        count = Counter((kind, name.casefold()) for (kind, _), name in zip(keys, names, strict=True))
        self._names = set(count)
        self._by_key: dict[Key, JsonDict] = {}
        for person, key, name in zip(participants, keys, names, strict=True):
            unique = count[key[0], name.casefold()] == 1
            shown = name if unique else _with_id(name, person.id)
            self._by_key[key] = _speaker(key, person.name, shown)
        self.participants: list[JsonDict] = list(self._by_key.values())

    def others(self, agent_id: str) -> set[Key]:
        """Return the participants other than the agent."""
        return self._by_key.keys() - {(AGENT, agent_id)}

    def get(self, key: Key, name: str = "") -> JsonDict:
        """Return the speaker. ``name`` is the name of one that does not participate, if it is known."""
        found = self._by_key.get(key)
        if found is not None:
            return found
        kind, speaker_id = key
        shown = _shown_name(speaker_id, name)
        # Two agents that left may have had one name.
        if name or (kind, shown.casefold()) in self._names:
            shown = _with_id(shown, speaker_id)
        return _speaker(key, name, shown)


def label_of(speakers: Sequence[JsonDict], key: Key, name: str = "") -> str:
    """Return the label of the speaker ``key`` beside ``speakers``, by the rules of `Speakers.get`."""
    kind, speaker_id = key
    for each in speakers:
        if (each.get("kind"), each.get("id")) == key and isinstance(each.get("label"), str):
            return str(each["label"])
    shown = _shown_name(speaker_id, name)
    taken = {str(each.get("label", "")).casefold() for each in speakers}
    if name or f"{kind} {shown}".casefold() in taken:
        shown = _with_id(shown, speaker_id)
    return f"{kind} {shown}" if shown else kind


@cache_by_identity
def speakers_of(participants: Sequence[Participant]) -> Speakers:
    """Return the speakers of a conversation with these participants, the same object each time."""
    return Speakers(participants)


def caller_key(caller: Caller) -> Key:
    """Return the kind and the id of the caller of a turn."""
    if caller.type == AGENT:
        return AGENT, caller.agent_id
    return (WORKFLOW, caller.run_id) if caller.type == WORKFLOW else (USER, caller.user_id)


def user_of(caller: Caller) -> str:
    """Return the id of the user who started a turn; "" if no user did, or one without an id."""
    return caller.user_id if caller.type == USER else ""


def author_key(message: Message, turn: Turn) -> Key:
    """Return the kind and the id of the author of a message of ``turn``."""
    if message.role is Role.AGENT:
        return AGENT, message.author
    # A turn may take messages of several users.
    return (USER, message.author) if turn.caller.type == USER else caller_key(turn.caller)


def author_name(message: Message, turn: Turn) -> str:
    """Return the name of the author if the turn knows it; "" otherwise."""
    return turn.agent_name if message.role is Role.AGENT else ""


QUOTE_CHARS: Final = 2000
"""Maximum number of characters of a quote."""


def quote_of(message: Message, turn: Turn) -> Quote:
    """Return the quote of a message of ``turn``."""
    kind, author = author_key(message, turn)
    name, text = author_name(message, turn), readable(message.content, message.parts)[:QUOTE_CHARS]
    line = f'[in reply to {kind} {_shown_name(author, name)}: "{clean(text, REPLY_CHARS)}"]\n'
    return Quote(
        kind=kind,
        author=author,
        name=name,
        text=text,
        turn_ordinal=turn.ordinal,
        line_bytes=byte_size(line),
    )


def _speaker(key: Key, name: str, shown: str) -> JsonDict:
    kind, speaker_id = key
    return {"id": speaker_id, "kind": kind, "name": name, "label": f"{kind} {shown}" if shown else kind}


def _shown_name(speaker_id: str, name: str) -> str:
    """Return the name for a label; the id of a speaker without a name, "" without either."""
    return clean(name) or _shown_id(speaker_id)


def _with_id(shown: str, speaker_id: str) -> str:
    return f"{shown} ({_shown_id(speaker_id)})"


def _shown_id(speaker_id: str) -> str:
    """Return an id for a label. Different ids give different texts: a changed one has its checksum."""
    cleaned = clean(speaker_id)
    if cleaned == speaker_id:
        return cleaned
    return f"{cleaned}~{hashlib.sha256(speaker_id.encode(errors='replace')).hexdigest()[:8]}"
