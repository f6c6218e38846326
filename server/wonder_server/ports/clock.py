"""The clock."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Server time, in milliseconds since 1970 UTC.

    Within one process the time never decreases, and a step of the machine's wall clock does not change its
    rate. After a restart it may be lower, as the wall clock may be.
    """

    def now_ms(self) -> int: ...
