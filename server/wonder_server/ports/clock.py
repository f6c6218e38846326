"""Time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall time, in milliseconds since 1970 UTC."""

    def now_ms(self) -> int: ...
