"""What agents have spent in their lives, all conversations together (feature C6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wonder_server.core.budget import Account


class Accounts(Protocol):
    """Adds up what journals were given as rows of `wonder_server.core.budget.CHARGES`."""

    async def accounts(self, agent_ids: Sequence[str], *, lenient: bool = False) -> dict[str, Account]:
        """What each of these agents has spent, by its id; an agent that has spent nothing too. What is being
        written may be missing. ``lenient``: leave out agents whose account is damaged, and log them.
        STORAGE_UNAVAILABLE."""
        ...
