"""Seals of accounts: a weighted sum that grows with each charge.

A trigger adds charges to the sums of an account, and a trigger cannot call a Python function. So SQL computes
the seal: the seal of the agent's id plus each sum times its weight, modulo a prime. A flipped bit of a sum
always changes this value, because no power of two times a weight is 0 modulo the prime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.seals import Seals, seal
from wonder_server.core.budget import Account

COLUMNS: Final = Account.__struct_fields__

PRIME: Final = (1 << 31) - 1
_WEIGHTS: Final = (506_832_829, 1_380_361_867, 1_747_591_243, 987_654_319, 1_622_647_863, 740_998_453)
"""One weight for each of `COLUMNS`, below the prime. They are part of stored seals and never change."""


def _sum_sql(prefix: str) -> str:
    terms = (
        f"{prefix}{name} % {PRIME} * {weight} % {PRIME}"
        for name, weight in zip(COLUMNS, _WEIGHTS, strict=True)
    )
    return " + ".join(terms)


SUM_OF_NEW: Final = _sum_sql("NEW.")
"""SQL for the amount that a charge adds to the seal of its account."""
SUM_OF_ROW: Final = _sum_sql("")
"""SQL for the weighted sum of a whole account."""


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
