"""Log lines of rejected calls: at most one a second for each reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Final, TypeAlias

from wonder_server.core.errors import Reason
from wonder_server.logs import logger

LogValue: TypeAlias = str | int | float

WINDOW_S: Final = 1.0

_log = logger("rpc")


class RejectionLog:
    """Logs the first rejection of a reason at once, and the later ones of each second in one line.

    ``calls`` is the number of rejections of a line. Its other fields are those of the latest rejection.
    """

    def __init__(self, schedule: Callable[[float, Callable[[], None]], object] | None = None) -> None:
        """Create the log.

        ``schedule(seconds, callback)`` calls once; the default is the event loop's `call_later`.
        """
        self._schedule = schedule
        self._windows: dict[Reason, _Window] = {}

    def record(self, reason: Reason, **fields: LogValue) -> None:
        """Count a rejection, and log it if its reason was not logged within the last second."""
        window = self._windows.get(reason)
        if window is not None:
            window.calls += 1
            window.fields = fields
            window.context = copy_context()
            return
        self._windows[reason] = _Window()
        self._open_window(reason, 1, fields)

    def flush(self) -> None:
        """Log the rejections that are counted and not yet logged."""
        for reason, window in self._windows.items():
            if window.calls:
                window.context.run(_write_line, reason, window.calls, window.fields)
                window.calls = 0

    def _open_window(self, reason: Reason, calls: int, fields: dict[str, LogValue]) -> None:
        _write_line(reason, calls, fields)
        later = self._schedule or asyncio.get_running_loop().call_later
        later(WINDOW_S, lambda: self._on_window_end(reason))

    def _on_window_end(self, reason: Reason) -> None:
        window = self._windows.pop(reason)
        if window.calls:
            self._windows[reason] = _Window()
            window.context.run(self._open_window, reason, window.calls, window.fields)


class _Window:
    """Rejections of one reason since its last line. ``context`` is that of the latest, for its trace."""

    __slots__ = ("calls", "context", "fields")

    def __init__(self) -> None:
        self.calls = 0
        self.fields: dict[str, LogValue] = {}
        self.context = copy_context()


def _write_line(reason: Reason, calls: int, fields: dict[str, LogValue]) -> None:
    _log.warning("rpc_rejected", reason=reason.value, **fields, calls=calls)
