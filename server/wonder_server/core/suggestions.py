"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_CHARACTERS = 200
_MIN_SIMILARITY = 0.7


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the `closest` name; "" without one."""
    return suggestion(closest(name, known))


def closest(name: str, known: Iterable[str]) -> str:
    """Return the most similar name, or one that begins with ``name`` as ``from_node_id`` does with ``from``.

    Returns "" if no name is similar.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name[:_MAX_CHARACTERS], names, n=1, cutoff=_MIN_SIMILARITY)
    close = close or [each for each in names if name and each.startswith(f"{name}_")]
    return close[0] if close else ""


def suggestion(name: str) -> str:
    """Return `` (did you mean 'x'?)``; "" for an empty name."""
    return f" (did you mean '{name}'?)" if name else ""
