"""Guessing what a misspelt name was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 200
_LIKE = 0.7


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for what looks most like ``name``; empty if nothing does."""
    close = difflib.get_close_matches(name[:_LONGEST], sorted(known), n=1, cutoff=_LIKE)
    return f" (did you mean '{close[0]}'?)" if close else ""
