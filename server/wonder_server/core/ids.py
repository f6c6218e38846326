"""Identifiers: a prefix and a ULID, ``turn_01J9ZQ3V8M6T0A4C1R5W7E2KXB``.

A ULID is 10 characters of milliseconds and 16 of randomness, in Crockford's base 32, so ids sort
by time. Planners may not be random: `Minter` derives the random part from a seed that came with the
input, so that the same input always gives the same ids.

The ids of actors (conversations and runs) end with a character that names their shard; a run that is
started by a conversation takes its parent's, so that both can change in one commit.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_MASK_40 = (1 << 40) - 1
_PATTERN = re.compile(r"([a-z]{2,5})_([0-7][0-9A-HJKMNP-TV-Z]{25})\Z")

MAX_SHARDS = len(_ALPHABET)


def encode(now_ms: int, entropy: int) -> str:
    """26 characters for a time in milliseconds since 1970 and 80 bits of entropy."""
    return _time(now_ms) + _random(entropy)


def _random(entropy: int) -> str:
    """The last sixteen characters."""
    # By halves, since shifting small numbers costs less.
    high, low, pairs = entropy >> 40 & _MASK_40, entropy & _MASK_40, _PAIRS
    return (
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


@lru_cache(maxsize=64)
def _time(now_ms: int) -> str:
    """The first ten characters, which many ids of one moment share."""
    return "".join([_PAIRS[now_ms >> shift & 1023] for shift in (40, 30, 20, 10, 0)])


_pool: list[bytes] = []
"""Random bytes drawn in advance. A draw from the system releases the interpreter lock, which a busy server
gets back late."""

_draw: Callable[[int], bytes] = os.urandom


@contextmanager
def entropy_from(source: Callable[[int], bytes]) -> Iterator[None]:
    """Take the randomness of all ids of this process from ``source`` within the context."""
    global _draw
    before, _draw = _draw, source
    _pool.clear()
    try:
        yield
    finally:
        _draw = before
        _pool.clear()


def random_id(prefix: str, now_ms: int) -> str:
    """A fresh id; for the edges (rpc, services), never for a planner."""
    try:
        entropy = _pool.pop()
    except IndexError:
        drawn = _draw(10 * 256)
        entropy = drawn[:10]
        _pool.extend(drawn[start : start + 10] for start in range(10, len(drawn), 10))
    return f"{prefix}_{encode(now_ms, int.from_bytes(entropy, 'big'))}"


def actor_id(prefix: str, now_ms: int, shard: int) -> str:
    """A fresh id of a conversation or run that lives in ``shard``."""
    return random_id(prefix, now_ms)[:-1] + _ALPHABET[shard]


def shard_of(identifier: str) -> int:
    """The shard that a conversation's or run's id names. Raises ValueError or IndexError for what is no
    id."""
    return _ALPHABET.index(identifier[-1])


def in_shard(identifier: str, shard: int) -> str:
    """The same id, living in ``shard``."""
    return identifier[:-1] + _ALPHABET[shard]


def spread(key: str, count: int) -> int:
    """One of ``count`` shards for a new actor, the same for the same key."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=2).digest()[0] % count


def ulid_bits(identifier: str) -> int:
    """The 128 bits of an id's ULID; of what is no id, as many that are its alone."""
    if _PATTERN.match(identifier) is None:
        return int.from_bytes(hashlib.blake2b(identifier.encode(), digest_size=16).digest(), "big") or 1
    return int(identifier[-26:].translate(_DIGITS), 32)


def is_id(prefix: str, value: str) -> bool:
    """Whether ``value`` is a well-formed id with this prefix."""
    match = _PATTERN.match(value)
    return match is not None and match[1] == prefix


def derived(prefix: str, key: str, parent: str) -> str:
    """The id of whatever ``key`` names, in the shard of ``parent`` and with its time: asked again, however
    much later, the same."""
    digest = hashlib.blake2b(key.encode(), digest_size=10).digest()
    return f"{prefix}_{parent[-26:-16]}{_random(int.from_bytes(digest, 'big'))[:-1]}{parent[-1]}"


class Minter:
    """Ids for one input, each derived from the input's seed: pure, so replay mints the same."""

    __slots__ = ("_count", "_seed", "_time")

    def __init__(self, seed: str, now_ms: int) -> None:
        self._seed = seed
        self._time = _time(now_ms)
        self._count = 0

    def new(self, prefix: str) -> str:
        """The next id with this prefix."""
        digest = hashlib.blake2b(f"{self._seed}/{self._count}".encode(), digest_size=10).digest()
        self._count += 1
        return f"{prefix}_{self._time}{_random(int.from_bytes(digest, 'big'))}"

    def child(self, prefix: str, parent: str) -> str:
        """The next id, in the same shard as ``parent``."""
        return self.new(prefix)[:-1] + parent[-1]
