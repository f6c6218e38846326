"""Labels: names that users or tools choose, as short lines that are safe in a request to a model. Pure.

A request names speakers and files in brackets, such as ``[user Mia]``. A name could end its bracket, begin a
line of its own, or contain characters that people do not see. A label has none of these.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from wonder_server.core.content.normal_text import nfkc

NAME_CHARS: Final = 64
"""Maximum number of characters of a name, and of an id, in the label of a speaker."""
FILE_NAME_CHARS: Final = 100
"""Maximum number of characters of the label of a file."""

_FILE_NAME_END: Final = 12
"""Characters at the end of a long file name that its label keeps: they show the type, as ``.pdf`` does."""
_READ_CHARS: Final = 512
"""Number of characters of a name that are read: twice the maximum of the contract."""

_RESERVED: Final = frozenset("<>~")
"""Characters that have a meaning in labels, beside brackets and parentheses."""
_BRACKETS: Final = ("Ps", "Pe")
"""Unicode's categories of opening and closing punctuation, such as ``[``, ``(`` and ``\u3010``."""
_INVISIBLE: Final = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for code in range(first, last + 1)
)
"""Characters without an image whose category does not say so: Unicode's ``Default_Ignorable_Code_Point``
outside the categories ``C…``, and the empty Braille pattern."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")


def clean(text: str, max_chars: int = NAME_CHARS) -> str:
    """Return ``text`` as one short line without the characters that have a meaning in labels."""
    line = _cleaned(text)
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def file_label(name: str) -> str:
    """Return the name of a file as `clean`; a long one keeps its end. "" if nothing of it is visible."""
    line = _cleaned(name)
    if len(line) <= FILE_NAME_CHARS:
        return line
    return f"{line[: FILE_NAME_CHARS - 1 - _FILE_NAME_END].rstrip()}…{line[-_FILE_NAME_END:]}"


def _cleaned(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    # NFKC replaces lookalikes of brackets and letters, such as those of full width.
    normal = nfkc(text[:_READ_CHARS])
    visible = [" " if each.isspace() else each for each in normal if each.isspace() or _may_appear(each)]
    return " ".join("".join(visible).split())


def _may_appear(character: str) -> bool:
    """Return True for a visible character that has no meaning in labels."""
    if character in _RESERVED or character in _INVISIBLE:
        return False
    category = unicodedata.category(character)
    return category not in _BRACKETS and not category.startswith("C")
