"""The seal of an account: a weighted sum that grows with each charge.

A trigger adds charges to the sums, and a trigger may call no function of ours. So the seal is arithmetic that
SQL can do: the seal of the agent's id, plus each sum times a weight of its own. Both sides are compared
modulo a prime, in which no flipped bit of a sum is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.sqlite.seals import Seals, seal
from wonder_server.core.budget import Account

COLUMNS: Final = Account.__struct_fields__

PRIME: Final = (1 << 31) - 1
_WEIGHTS: Final = (506_832_829, 1_380_361_867, 1_747_591_243, 987_654_319, 1_622_647_863, 740_998_453)
"""One for each of `COLUMNS`, below the prime. They are part of stored seals and never change."""


def _sum_sql(prefix: str) -> str:
    terms = (
        f"{prefix}{name} % {PRIME} * {weight} % {PRIME}"
        for name, weight in zip(COLUMNS, _WEIGHTS, strict=True)
    )
    return " + ".join(terms)


SUM_OF_NEW: Final = _sum_sql("NEW.")
"""The SQL that a charge adds to the seal of its account."""
SUM_OF_ROW: Final = _sum_sql("")
"""The SQL for the sums of a whole account."""


def initial_seal(agent_id: str) -> int:
    """The seal of an account in which nothing was spent."""
    return seal(("accounts", agent_id), b"")


def verified_account(seals: Seals, agent_id: str, sums: Sequence[object], found: object) -> Account:
    """The account of a row. Raises STORAGE_UNAVAILABLE that names the agent."""
    whole = [value for value in sums if type(value) is int]
    if type(found) is not int or len(whole) != len(COLUMNS):
        seals.raise_damaged("accounts", (agent_id,))
    wanted = initial_seal(agent_id) + sum(
        value * weight for value, weight in zip(whole, _WEIGHTS, strict=True)
    )
    if (found - wanted) % PRIME:
        seals.raise_damaged("accounts", (agent_id,))
    return Account(**dict(zip(COLUMNS, whole, strict=True)))
