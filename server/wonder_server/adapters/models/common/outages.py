"""`Outages`: log lines about connections to providers that fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from wonder_server.adapters.models.common.provider_errors import UNREACHABLE
from wonder_server.core.errors import Fault
from wonder_server.logs import logger

LOG_INTERVAL_S: Final = 60
"""Seconds between two lines about one provider. A turn tries again for minutes, and many turns do at once."""

_log = logger("models")


class Outages:
    """Logs the first failed connection to a provider at once, and then at most one line in `WINDOW_S`.

    ``calls`` is the number of calls that a line stands for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[str, float] = {}
        self._calls: dict[str, int] = {}

    def record(self, provider: str, fault: Fault) -> None:
        """Count the fault and log it, if it is one of `faults.unreachable` or `faults.connection_lost`."""
        if fault.metadata.get("kind") != UNREACHABLE:
            return
        calls = self._calls.get(provider, 0) + 1
        self._calls[provider] = calls
        now = self._clock()
        if now - self._logged.get(provider, float("-inf")) >= LOG_INTERVAL_S:
            _log.warning("provider_unreachable", provider=provider, problem=fault.message, calls=calls)
            self._logged[provider], self._calls[provider] = now, 0
