"""`Outages`: log lines about failed connections to providers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from wonder_server.adapters.models.common.provider_errors import UNREACHABLE
from wonder_server.core.errors import Fault
from wonder_server.logs import logger

LOG_INTERVAL_S: Final = 60
"""Seconds between two lines about one provider. A turn retries for minutes, and many turns do so at once."""

_log = logger("models")


class Outages:
    """Log of failed connections: the first of a provider immediately, then one line in `LOG_INTERVAL_S`.

    ``calls`` in a line is the number of failed calls since the previous line.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[str, float] = {}
        self._calls: dict[str, int] = {}

    def record(self, provider: str, fault: Fault) -> None:
        """Count and log a fault of `unreachable` or `connection_lost`; ignore other faults."""
        if fault.metadata.get("kind") != UNREACHABLE:
            return
        calls = self._calls.get(provider, 0) + 1
        self._calls[provider] = calls
        now = self._clock()
        if now - self._logged.get(provider, float("-inf")) >= LOG_INTERVAL_S:
            _log.warning("provider_unreachable", provider=provider, problem=fault.message, calls=calls)
            self._logged[provider], self._calls[provider] = now, 0
