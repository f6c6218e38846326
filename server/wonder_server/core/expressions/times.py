"""Times as texts: RFC 3339 in UTC with milliseconds, such as ``2026-11-23T09:30:00.000Z``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def utc_text(ms: int) -> str:
    """Return the text of a time. Raises OverflowError outside of the years 1 to 9999."""
    # isoformat takes a third of the time of strftime, and pads years before 1000.
    time = _EPOCH + timedelta(milliseconds=ms)
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
