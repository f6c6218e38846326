"""Identifiers: a prefix and a ULID, ``turn_01J9ZQ3V8M6T0A4C1R5W7E2KXB``.

A ULID is 10 characters of milliseconds and 16 of randomness in Crockford's base 32, so ids sort by time.
Planners are deterministic: `Minter` derives the random part from a seed in the input, so the same input
gives the same ids.

The last character of an actor's id (conversation or run) names its shard, one of 32. A run of a conversation
has the shard of the conversation, so that one commit can change both. A store maps shards to files.
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

SHARDS = len(_ALPHABET)
"""Number of shards that the last character of an id can name."""


def encode(now_ms: int, entropy: int) -> str:
    """Return the 26 characters of a ULID for a time in milliseconds since 1970 and 80 bits of entropy."""
    return _time(now_ms) + random_part(entropy)


def random_part(entropy: int) -> str:
    """Return the last sixteen characters of a ULID."""
    # Encode two halves, since shifting small numbers is cheaper.
    high, low, pairs = entropy >> 40 & _MASK_40, entropy & _MASK_40, _PAIRS
    return (
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


@lru_cache(maxsize=64)
def _time(now_ms: int) -> str:
    """Return the first ten characters of a ULID. Many ids of one moment share them."""
    return "".join([_PAIRS[now_ms >> shift & 1023] for shift in (40, 30, 20, 10, 0)])


_pool: list[bytes] = []
"""Random bytes drawn in advance. A draw from the system releases the interpreter lock, which a busy server
reacquires late.
"""

_draw: Callable[[int], bytes] = os.urandom


@contextmanager
def entropy_from(source: Callable[[int], bytes]) -> Iterator[None]:
    """Use ``source`` for the randomness of all ids of this process within the context."""
    global _draw
    before, _draw = _draw, source
    _pool.clear()
    try:
        yield
    finally:
        _draw = before
        _pool.clear()


def random_id(prefix: str, now_ms: int) -> str:
    """Return a new id. Only rpc and services call this, never a planner."""
    try:
        entropy = _pool.pop()
    except IndexError:
        drawn = _draw(10 * 256)
        entropy = drawn[:10]
        _pool.extend(drawn[start : start + 10] for start in range(10, len(drawn), 10))
    return f"{prefix}_{encode(now_ms, int.from_bytes(entropy, 'big'))}"


def random_hex(byte_count: int) -> str:
    """Return so many random bytes in hexadecimal, from the same source as ids."""
    return _draw(byte_count).hex()


def actor_id(prefix: str, now_ms: int, shard: int) -> str:
    """Return a new id of a conversation or run in ``shard``."""
    return random_id(prefix, now_ms)[:-1] + _ALPHABET[shard]


def shard_of(identifier: str) -> int:
    """Return the shard of a conversation's or run's id. Raises ValueError or IndexError for an invalid id."""
    return _ALPHABET.index(identifier[-1])


def letter_of(shard: int) -> str:
    """Return the character that names a shard at the end of an id."""
    return _ALPHABET[shard]


def in_shard(identifier: str, shard: int) -> str:
    """Return the id with ``shard`` as its shard."""
    return identifier[:-1] + _ALPHABET[shard]


def spread(key: str) -> int:
    """Return the shard for a new actor, always the same for one key."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=2).digest()[0] % SHARDS


def ulid_bits(identifier: str) -> int:
    """Return the 128 bits of an id's ULID; for any other text, 128 bits of its hash."""
    if _PATTERN.match(identifier) is None:
        return int.from_bytes(hashlib.blake2b(identifier.encode(), digest_size=16).digest(), "big") or 1
    return int(identifier[-26:].translate(_DIGITS), 32)


def is_id(prefix: str, value: str) -> bool:
    """Return True if ``value`` is a well-formed id with this prefix."""
    match = _PATTERN.match(value)
    return match is not None and match[1] == prefix


def derived(prefix: str, key: str, parent: str) -> str:
    """Return the id for ``key``, with the shard and the time of ``parent``. The same arguments give the same
    id.
    """
    digest = hashlib.blake2b(key.encode(), digest_size=10).digest()
    return f"{prefix}_{parent[-26:-16]}{random_part(int.from_bytes(digest, 'big'))[:-1]}{parent[-1]}"


class Minter:
    """Ids for one input, derived from its seed, so that a replay mints the same ids."""

    __slots__ = ("_count", "_seed", "_time")

    def __init__(self, seed: str, now_ms: int) -> None:
        self._seed = seed
        self._time = _time(now_ms)
        self._count = 0

    def new(self, prefix: str) -> str:
        """Return the next id with this prefix."""
        digest = hashlib.blake2b(f"{self._seed}/{self._count}".encode(), digest_size=10).digest()
        self._count += 1
        return f"{prefix}_{self._time}{random_part(int.from_bytes(digest, 'big'))}"

    def child(self, prefix: str, parent: str) -> str:
        """Return the next id with this prefix, in the shard of ``parent``."""
        return self.new(prefix)[:-1] + parent[-1]
