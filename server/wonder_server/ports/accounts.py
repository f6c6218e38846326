"""Usage of agents, projects and root runs over their lifetime (features C6, M8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wonder_server.core.budget import Account


class Accounts(Protocol):
    """Sums of the journals' rows of `wonder_server.core.budget.CHARGES`."""

    async def accounts(self, account_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        """Return the usage of each of these agents, projects and runs by id, including those without usage.

        Charges that are being written may be missing. ``lenient``: omit and log those whose account is
        damaged. Raises STORAGE_UNAVAILABLE.
        """
        ...
