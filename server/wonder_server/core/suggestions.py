"""Guessing what a misspelt name was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_CHARACTERS = 200
_MIN_SIMILARITY = 0.7


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for `closest`; empty if nothing is like ``name``."""
    return suggestion(closest(name, known))


def closest(name: str, known: Iterable[str]) -> str:
    """What looks most like ``name``, or begins with it as ``from_node_id`` does with ``from``; empty if
    nothing does."""
    names = sorted(known)
    close = difflib.get_close_matches(name[:_MAX_CHARACTERS], names, n=1, cutoff=_MIN_SIMILARITY)
    close = close or [each for each in names if name and each.startswith(f"{name}_")]
    return close[0] if close else ""


def suggestion(name: str) -> str:
    """`` (did you mean 'x'?)``; empty for no name."""
    return f" (did you mean '{name}'?)" if name else ""
