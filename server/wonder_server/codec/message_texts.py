"""References to the messages of a conversation, in the stored values of the conversation and of its runs.

The text of a message stands in its row and in the journal entry that appended it. Elsewhere, such as in
events, in the history that a hook receives and in requests to models, the stored form has the reference
``{"$m": ordinal}`` in its place. Without them, a sentence was stored 82 times after 22 turns.

A text is replaced where it is the whole value of a field or a member. `MessageTexts.refer` finds it in the
encoded JSON: in all of a turn's values together there are a few texts of this length, and thousands of other
values that a search of the values themselves would visit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

MIN_BYTES: Final = 40
"""Shorter texts are repeated. An id has 31 bytes, so no id is looked up."""
MAX_TEXTS: Final = 512
"""Maximum number of texts that are known of one conversation, the newest; a hook receives up to 200 turns."""
MAX_TOTAL_BYTES: Final = 256 * 1024
"""Maximum size of the known texts of one conversation."""

MESSAGE_REFERENCE: Final = b'{"$m":'
"""The begin of a reference."""

MARK: Final = b" "
"""First byte of a value with references in a table whose values have no other references. JSON from the
encoder never begins with it."""

PARTS_MARK: Final = b"\t"
"""First byte of a value with parts in such a table (see `codec.interning`)."""

_TEXT: Final = re.compile(rb':"(?=[^"]{%d})([^"]*+)"' % MIN_BYTES)
"""A string after a colon with at least `MIN_BYTES`, in JSON without escaped quotation marks.

Most values have none. On the same values this pattern takes 0.4 of the time of the other one.
"""
_ANY_TEXT: Final = re.compile(
    rb':"(?![^"\\]{0,%d}+")([^"\\]*+(?:\\.[^"\\]*+)*+)"' % (MIN_BYTES - 1), re.DOTALL
)
"""A string after a colon with at least `MIN_BYTES`, or with an escaped character in its first ones.

Inside a string a quotation mark follows a backslash, so both patterns match strings, or what is between two
strings of which the first ends with a colon. The latter begins with one of `_BETWEEN`.
"""
_BETWEEN: Final = b",:]}"
_REFERENCE: Final = re.compile(rb'\{"\$m":(\d+)\}')

_encode = msgspec.json.Encoder().encode


class MessageTexts:
    """The texts of a conversation's newest messages, with their references. Immutable."""

    __slots__ = ("_references", "size")

    def __init__(self, references: dict[bytes, bytes], size: int) -> None:
        """Internal; use `NO_TEXTS` and `with_messages`."""
        self._references = references
        """By the JSON of a text, without its quotation marks: a colon and the reference."""
        self.size = size
        """Total bytes of the texts."""

    def __bool__(self) -> bool:
        return bool(self._references)

    def with_messages(self, messages: Iterable[tuple[int, str]]) -> MessageTexts:
        """Return these texts and those of newer messages, each given by its ordinal and its content."""
        references, size = self._references, self.size
        for ordinal, content in messages:
            text = _encode(content)[1:-1]
            if not MIN_BYTES <= len(text) <= MAX_TOTAL_BYTES or text[0] in _BETWEEN or text in references:
                continue
            if references is self._references:
                references = {**references}
            references[text] = b':{"$m":%d}' % ordinal
            size += len(text)
            while size > MAX_TOTAL_BYTES or len(references) > MAX_TEXTS:
                oldest = next(iter(references))
                size -= len(oldest)
                del references[oldest]
        return self if references is self._references else MessageTexts(references, size)

    def refer(self, data: bytes) -> bytes:
        """Return JSON with references in place of the texts, or ``data`` itself if it has none of them.

        A text is found after a colon, as the value of a field or of a member.
        """
        # JSON is full of quotation marks, so the search for a backslash goes first: it takes a quarter of the
        # time of the search for both.
        pieces = (_ANY_TEXT if b"\\" in data and b'\\"' in data else _TEXT).split(data)
        known, found = self._references, False
        for index in range(1, len(pieces), 2):
            reference = known.get(pieces[index])
            if reference is None:
                pieces[index] = b':"%b"' % pieces[index]
            else:
                pieces[index], found = reference, True
        return b"".join(pieces) if found else data

    def reference(self, text: bytes) -> bytes | None:
        """Return the reference to a text that is given as a JSON string; None for another text."""
        reference = self._references.get(text[1:-1])
        return None if reference is None else reference[1:]


NO_TEXTS: Final = MessageTexts({}, 0)


def message_ordinals(data: bytes) -> list[int]:
    """Return the ordinals of the messages that JSON of a value without parts refers to."""
    return [int(ordinal) for ordinal in _REFERENCE.findall(data)]


def with_texts(data: bytes, message: Callable[[int], str]) -> bytes:
    """Return JSON with the texts in place of their references. ``message(ordinal)`` returns a text.

    Only for JSON without keys of user data that begin with ``$``.
    """
    return _REFERENCE.sub(lambda match: _encode(message(int(match[1]))), data)
