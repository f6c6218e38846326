"""Bounds on what an MCP server may send: bytes, messages, log lines.

A server that passes a bound loses its session. All that it sends is hostile until checked.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any, Final

from wonder_server.core.printable import printable
from wonder_server.core.schema import payloads
from wonder_server.logs import logger

MAX_MESSAGE_BYTES: Final = payloads.MAX_BYTES
"""Of one message. The result of an action holds no more, so a larger answer could not be used."""

MAX_MESSAGES: Final = 5_000
MESSAGES_PER_S: Final = 1_000
"""Messages that are no answers: `MAX_MESSAGES` at once, and this many a second in the long run. Of a call the
progress, of a session all others. Each costs about 50 µs, so that a flood has 5 % of a core."""

BURST_BYTES: Final = 4 * MAX_MESSAGE_BYTES
BYTES_PER_S: Final = 4 * MAX_MESSAGE_BYTES
"""Above that a process is read more slowly: parsing takes about 10 ms a MiB."""

STDERR_BYTES_PER_S: Final = 1 << 20
"""Standard error is read more slowly above that. Most of it is dropped: see `LINES_PER_S`."""

MAX_LOG_LINES: Final = 20
LOG_LINES_PER_S: Final = 10
"""Log lines of one server."""


class TokenBucket:
    """A token bucket: ``most`` at once, ``per_second`` in the long run."""

    def __init__(self, capacity: float, per_second: float) -> None:
        self._capacity = capacity
        self._per_second = per_second
        self._available = capacity
        self._updated_at = asyncio.get_running_loop().time()

    def take(self, amount: float = 1) -> bool:
        """Take ``amount``; return False and take nothing if that is more than is left."""
        if self.wait_s(amount) > 0:
            return False
        self._available -= amount
        return True

    def spend(self, amount: float) -> float:
        """Take ``amount``, in debt if need be. Return the seconds until the debt is paid."""
        waiting = self.wait_s(amount)
        self._available -= amount
        return waiting

    def wait_s(self, amount: float) -> float:
        """Return the seconds until ``amount`` is there."""
        now = asyncio.get_running_loop().time()
        self._available = min(self._capacity, self._available + (now - self._updated_at) * self._per_second)
        self._updated_at = now
        return max(0.0, (amount - self._available) / self._per_second)


class ServerLog:
    """Log lines about one server, `LINES_PER_S` at most. ``left_out`` counts those that were not written."""

    def __init__(self, server: str) -> None:
        self._log = logger("mcp").bind(server=printable(server, 100))
        self._budget = TokenBucket(MAX_LOG_LINES, LOG_LINES_PER_S)
        self._omitted = 0

    def log_stderr(self, lines: list[bytes]) -> None:
        """Log lines of the server's standard error."""
        for position, line in enumerate(lines):
            if line.strip() and not self._write(logging.INFO, "mcp_server_stderr", text=line):
                self._omitted += len(lines) - position - 1
                return

    def log_failure(self, why: str) -> None:
        """Log that a session came to an unwanted end."""
        self._write(logging.WARNING, "mcp_server_failed", why=why)

    def close(self) -> None:
        """Log the number of lines that were left out, if there were any."""
        if self._omitted:
            left_out, self._omitted = self._omitted, 0
            self._log.info("mcp_server_stderr", text="", left_out=left_out)

    def _write(self, level: int, event: str, **texts: str | bytes) -> bool:
        if not self._budget.take():
            self._omitted += 1
            return False
        fields: dict[str, Any] = {
            name: printable(text if isinstance(text, str) else text.decode("utf-8", "replace"))
            for name, text in texts.items()
        }
        if self._omitted:
            fields["left_out"], self._omitted = self._omitted, 0
        self._log.log(level, event, **fields)
        return True


def fraction(progress: Any, total: Any) -> float | None:
    """Return the part that is done, from 0 to 1; None if the numbers do not say."""
    if not (is_number(progress) and is_number(total)) or not total:
        return None
    return min(max(float(progress) / float(total), 0.0), 1.0)


def is_number(value: Any) -> bool:
    """Return True for a number that a float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= payloads.MAX_INTEGER if isinstance(value, int) else math.isfinite(value)
