"""Seals of accounts: a weighted sum that grows with each charge.

A trigger adds charges to the sums of an account, and a trigger cannot call a Python function. So SQL computes
the seal: the seal of the agent's id plus each sum times its weight, modulo a prime. A flipped bit of a sum
always changes this value, because no power of two times a weight is 0 modulo the prime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.codec.seals import Seals, seal
from wonder_server.core.budget import Account

COLUMNS: Final = Account.__struct_fields__
FIRST_COLUMNS: Final = COLUMNS[:6]
"""The sums of the first accounts, before cached and reasoning tokens were counted."""

PRIME: Final = (1 << 31) - 1
_WEIGHTS: Final = (
    506_832_829, 1_380_361_867, 1_747_591_243, 987_654_319, 1_622_647_863, 740_998_453,
    1_213_467_901, 318_275_639, 2_036_104_427,
)  # fmt: skip
"""One weight for each of `COLUMNS`, below the prime. They are part of stored seals and never change."""


def sum_sql(prefix: str, columns: Sequence[str] = COLUMNS) -> str:
    """Return SQL for a weighted sum. ``prefix`` is ``NEW.`` for the amount that a charge adds to the seal of
    its account, and empty for a whole account. ``columns`` are the first of `COLUMNS`."""
    terms = (
        f"{prefix}{name} % {PRIME} * {weight} % {PRIME}"
        for name, weight in zip(columns, _WEIGHTS, strict=False)
    )
    return " + ".join(terms)


def initial_seal(agent_id: str) -> int:
    """Return the seal of an account without charges."""
    return seal(("accounts", agent_id), b"")


def verified_account(seals: Seals, agent_id: str, sums: Sequence[object], found: object) -> Account:
    """Return the account of a row after checking its seal. STORAGE_UNAVAILABLE names the agent."""
    whole = [value for value in sums if type(value) is int]
    if type(found) is not int or len(whole) != len(COLUMNS):
        seals.raise_damaged("accounts", (agent_id,))
    expected = initial_seal(agent_id) + sum(
        value * weight for value, weight in zip(whole, _WEIGHTS, strict=True)
    )
    if (found - expected) % PRIME:
        seals.raise_damaged("accounts", (agent_id,))
    return Account(**dict(zip(COLUMNS, whole, strict=True)))
