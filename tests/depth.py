"""Depth of the tests: a few crash points and examples by default, all of them in ``make test-deep``.

The variable ``TEST_DEPTH`` is read here and nowhere else.
"""

from __future__ import annotations

import os
import random
from itertools import pairwise
from typing import Final

DEEP: Final = os.environ.get("TEST_DEPTH") == "deep"


def by_depth(default: int, deep: int) -> int:
    """Return the number of repetitions for this run."""
    return deep if DEEP else default


def choice(most: int, count: int, seed: str) -> list[int]:
    """Return numbers from 1 to ``most``: all of them in a deep run, otherwise at most ``count``.

    The chosen numbers are spread over the range, one in each of ``count`` equal parts. Another ``seed``
    gives others, the same in every run.
    """
    if DEEP or most <= count:
        return list(range(1, most + 1))
    dice = random.Random(f"{seed} {most}")
    bounds = [most * part // count for part in range(count + 1)]
    return [dice.randint(low + 1, high) for low, high in pairwise(bounds)]
