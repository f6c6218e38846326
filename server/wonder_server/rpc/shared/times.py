"""Conversion between milliseconds since 1970 and ``google.protobuf.Timestamp``."""

from __future__ import annotations

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from wonder_server.core.errors import Reason, error

# Range of a Timestamp: from 0001-01-01 to the end of 9999-12-31.
_MIN_SECONDS: Final = -62_135_596_800
_MAX_SECONDS: Final = 253_402_300_799


def to_timestamp(ms: int) -> Timestamp | None:
    """Return the Timestamp of ``ms``. 0, which the core uses for "never", is None: an unset field."""
    if ms == 0:
        return None
    seconds, rest = divmod(ms, 1000)
    return Timestamp(seconds=seconds, nanos=rest * 1_000_000)


def set_timestamp(timestamp: Timestamp, ms: int) -> None:
    """Set an unset field to ``ms``; 0 leaves it unset."""
    if ms:
        timestamp.seconds, rest = divmod(ms, 1000)
        timestamp.nanos = rest * 1_000_000


def from_timestamp(timestamp: Timestamp, field: str = "") -> int:
    """Return the milliseconds of ``timestamp``, rounded down; 0 if it is unset or zero.

    ``field`` is its path in the request. Raises FIELD_INVALID for a time outside the years 1 to 9999.
    """
    seconds, nanos = timestamp.seconds, timestamp.nanos
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS or not 0 <= nanos < 1_000_000_000:
        raise error(
            Reason.FIELD_INVALID,
            f"{field or 'The time'} is not a time between the years 1 and 9999.",
            field=field,
        )
    return seconds * 1000 + nanos // 1_000_000
