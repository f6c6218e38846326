"""Log lines of rejected calls: at most one a second for each reason.

A read of something that does not exist is an answer, so its line has the level info: `wonder apply` asks
whether a library exists before it creates it. Other lines have the level warning.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from typing import Final, TypeAlias

from wonder_server.core.errors import Reason
from wonder_server.logs import logger

LogValue: TypeAlias = str | int | float
_Kind: TypeAlias = tuple[Reason, bool]
"""A reason, and True for reads of something that does not exist."""

WINDOW_S: Final = 1.0

_log = logger("rpc")


class RejectionLog:
    """Logs the first rejection of a reason at once, and the later ones of each second in one line.

    Reads that found nothing have lines of their own.

    ``calls`` is the number of rejections of a line. Its other fields are those of the latest rejection.
    """

    def __init__(self, schedule: Callable[[float, Callable[[], None]], object] | None = None) -> None:
        """Create the log.

        ``schedule(seconds, callback)`` calls once; the default is the event loop's `call_later`.
        """
        self._schedule = schedule
        self._windows: dict[_Kind, _Window] = {}
        self.calls = Counter[Reason]()
        """Rejections by reason, since the start."""

    def record(self, reason: Reason, *, is_read: bool = False, **fields: LogValue) -> None:
        """Count a rejection, and log it if its reason was not logged within the last second."""
        self.calls[reason] += 1
        kind = (reason, is_read and reason.value.endswith("_NOT_FOUND"))
        window = self._windows.get(kind)
        if window is not None:
            window.calls += 1
            window.fields = fields
            window.context = copy_context()
            return
        self._windows[kind] = _Window()
        self._open_window(kind, 1, fields)

    def flush(self) -> None:
        """Log the rejections that are counted and not yet logged."""
        for kind, window in self._windows.items():
            if window.calls:
                window.context.run(_write_line, kind, window.calls, window.fields)
                window.calls = 0

    def _open_window(self, kind: _Kind, calls: int, fields: dict[str, LogValue]) -> None:
        _write_line(kind, calls, fields)
        later = self._schedule or asyncio.get_running_loop().call_later
        later(WINDOW_S, lambda: self._on_window_end(kind))

    def _on_window_end(self, kind: _Kind) -> None:
        window = self._windows.pop(kind)
        if window.calls:
            self._windows[kind] = _Window()
            window.context.run(self._open_window, kind, window.calls, window.fields)


class _Window:
    """Rejections of one reason since its last line. ``context`` is that of the latest, for its trace."""

    __slots__ = ("calls", "context", "fields")

    def __init__(self) -> None:
        self.calls = 0
        self.fields: dict[str, LogValue] = {}
        self.context = copy_context()


def _write_line(kind: _Kind, calls: int, fields: dict[str, LogValue]) -> None:
    reason, found_nothing = kind
    level = logging.INFO if found_nothing else logging.WARNING
    _log.log(level, "rpc_rejected", reason=reason.value, **fields, calls=calls)
