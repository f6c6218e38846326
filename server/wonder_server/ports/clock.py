"""Time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Server time, in milliseconds since 1970 UTC.

    It never goes backwards in one process, and a step of the machine's wall clock does not change how fast
    it runs. Over a restart it may be set back, as the wall clock may have been.
    """

    def now_ms(self) -> int: ...
