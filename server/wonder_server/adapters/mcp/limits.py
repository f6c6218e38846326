"""Limits for what an MCP server may send: bytes, messages, log lines.

A server that exceeds a limit loses its session. Everything it sends is hostile until checked.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final, TypeGuard

from wonder_server.core.printable import printable
from wonder_server.core.schema import payloads
from wonder_server.logs import logger

MAX_MESSAGE_BYTES: Final = payloads.MAX_BYTES
"""Maximum size of one message. The result of an action cannot be larger, so a larger answer would be
useless."""

MAX_MESSAGES: Final = 5_000
MESSAGES_PER_S: Final = 1_000
"""Messages other than answers: `MAX_MESSAGES` in a burst, and this number per second on average. The limit
applies to the progress of each call and to all other messages of a session. A message costs about 50 µs, so a
flood takes 5 % of a core."""

BURST_BYTES: Final = 4 * MAX_MESSAGE_BYTES
BYTES_PER_S: Final = 4 * MAX_MESSAGE_BYTES
"""Above this rate the server reads a process more slowly: parsing takes about 10 ms per MiB."""

STDERR_BYTES_PER_S: Final = 1 << 20
"""Above this rate the server reads standard error more slowly. It drops most of it: see `LOG_LINES_PER_S`."""

MAX_LOG_LINES: Final = 20
LOG_LINES_PER_S: Final = 10
"""Log lines per second of one server, after a burst of `MAX_LOG_LINES`."""


class TokenBucket:
    """A token bucket: ``capacity`` in a burst, ``per_second`` on average."""

    def __init__(self, capacity: float, per_second: float) -> None:
        self._capacity = capacity
        self._per_second = per_second
        self._available = capacity
        self._updated_at = asyncio.get_running_loop().time()

    def take(self, amount: float = 1) -> bool:
        """Take ``amount`` and return True; take nothing and return False if less is available."""
        if self.wait_s(amount) > 0:
            return False
        self._available -= amount
        return True

    def spend(self, amount: float) -> float:
        """Take ``amount``, going into debt if needed. Return the seconds until the debt is paid."""
        wait_s = self.wait_s(amount)
        self._available -= amount
        return wait_s

    def wait_s(self, amount: float) -> float:
        """Return the seconds until ``amount`` is available."""
        now = asyncio.get_running_loop().time()
        self._available = min(self._capacity, self._available + (now - self._updated_at) * self._per_second)
        self._updated_at = now
        return max(0.0, (amount - self._available) / self._per_second)


class ServerLog:
    """Log lines about one server, at most `LOG_LINES_PER_S`. ``omitted`` counts omitted lines."""

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

    def log_failure(self, reason: str) -> None:
        """Log the unexpected end of a session."""
        self._write(logging.WARNING, "mcp_server_failed", problem=reason)

    def close(self) -> None:
        """Log the number of omitted lines, if any."""
        if self._omitted:
            omitted, self._omitted = self._omitted, 0
            self._log.info("mcp_server_stderr", text="", omitted=omitted)

    def _write(self, level: int, event: str, **texts: str | bytes) -> bool:
        if not self._budget.take():
            self._omitted += 1
            return False
        fields: dict[str, str | int] = {
            name: printable(text if isinstance(text, str) else text.decode("utf-8", "replace"))
            for name, text in texts.items()
        }
        if self._omitted:
            fields["omitted"], self._omitted = self._omitted, 0
        self._log.log(level, event, **fields)
        return True


def fraction(progress: object, total: object) -> float | None:
    """Return the completed part, from 0 to 1; None if the numbers do not give one."""
    if not (is_number(progress) and is_number(total)) or not total:
        return None
    return min(max(float(progress) / float(total), 0.0), 1.0)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return True for a number that a float can represent."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= payloads.MAX_INTEGER if isinstance(value, int) else math.isfinite(value)
