"""Regular expressions that take linear time: RE2, for what users and models write."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

MAX_LENGTH = 1_000
_MAX_MEMORY = 1 << 20


class PatternError(ValueError):
    """The text is no regular expression that RE2 takes (back references and look-around are not)."""


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def found_in(self, text: str) -> bool:
        """Whether it matches anywhere in the text."""
        return self._compiled.search(text) is not None


@lru_cache(maxsize=512)
def compiled(text: str) -> Pattern:
    """The pattern for a regular expression's text. Raises `PatternError`."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    if len(text) > MAX_LENGTH:
        raise PatternError(f"a regular expression may have at most {MAX_LENGTH} characters")
    try:
        return Pattern(re2.compile(text, options))
    except re2.error:
        raise PatternError(f"'{text[:80]}' is not a valid regular expression") from None
