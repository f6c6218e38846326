"""Rights beyond a caller's own: what not everybody with a token may do."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from wonder_server.core.errors import Reason, error
from wonder_server.rpc.auth import ANONYMOUS, caller


class Rights:
    """Who has which right, by the names of their tokens. Where no token is asked for, everybody has all.

    The setting that grants a right is named after it: `memory.search_all` by WONDER_MEMORY_SEARCH_ALL.
    """

    def __init__(self, granted: Mapping[str, Collection[str]]) -> None:
        """``granted``: for each right the names that have it."""
        self._granted = {right: frozenset(names) for right, names in granted.items()}

    def demand(self, right: str) -> None:
        """PERMISSION_DENIED if the current caller does not have it."""
        name = caller.get()
        if name != ANONYMOUS and name not in self._granted.get(right, ()):
            setting = f"WONDER_{right.replace('.', '_').upper()}"
            raise error(
                Reason.PERMISSION_DENIED,
                f"This token does not have the right {right}; the operator grants it to names by the setting "
                f"{setting}.",
                permission=right,
            )
