"""What is done with a decision, by its class.

A ``match`` asks for one class after the other, and of frozen values (`wonder_server.core.frozen`) each
question costs as much as making one. So a ``match``, which the type checker holds to be complete, is asked
but once for each class: it gives the function that does it, and that is kept in a table::

    way = _ways.get(type(decision))
    if way is None:
        way = _ways[type(decision)] = _way(decision)
    way(state, decision)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

S = TypeVar("S")
D = TypeVar("D")
R = TypeVar("R")


def typed_handler(_: D, handler: Callable[[S, D], R]) -> Callable[[S, Any], R]:
    """``way``, which the type checker has found to take what the given decision is."""
    return handler
