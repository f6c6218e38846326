"""Usage of agents over their lifetime, in all conversations (feature C6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wonder_server.core.budget import Account


class Accounts(Protocol):
    """Sums of the journals' rows of `wonder_server.core.budget.CHARGES`."""

    async def accounts(self, agent_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        """Return the usage of each of these agents by id, including agents without usage.

        Charges that are being written may be missing. ``lenient``: omit and log agents whose account is
        damaged. Raises STORAGE_UNAVAILABLE.
        """
        ...
