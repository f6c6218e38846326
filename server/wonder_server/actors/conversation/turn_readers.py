"""Clients that read the streams of turns. A turn can be cancelled after the last of them has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

CANCEL_AFTER_S: Final = 5.0
"""Seconds in which a lost client can resume the stream of its turn, before the turn is cancelled."""


@dataclass(slots=True)
class _Readers:
    """The clients that read a turn now, and the timer after the last one has left."""

    count: int = 0
    timer: asyncio.TimerHandle | None = field(default=None)


class TurnReaders:
    """The clients that read the streams of turns on this node."""

    def __init__(self, cancel_after_s: float = CANCEL_AFTER_S) -> None:
        self._cancel_after_s = cancel_after_s
        self._turns: dict[str, _Readers] = {}

    @property
    def count(self) -> int:
        """Number of turns that are read, or would be cancelled soon."""
        return len(self._turns)

    @contextmanager
    def reading(self, turn_id: str, cancel: Callable[[], None] | None) -> Iterator[None]:
        """Register a client of a turn while the context lasts.

        ``cancel`` cancels the turn, or is None to let it continue. It is called if the context ends with a
        `asyncio.CancelledError`, since the client has left, and no other client reads the turn within
        `CANCEL_AFTER_S`.
        """
        readers = self._turns.setdefault(turn_id, _Readers())
        readers.count += 1
        if readers.timer is not None:
            readers.timer.cancel()
            readers.timer = None
        has_left = False
        try:
            yield
        except asyncio.CancelledError:
            has_left = True
            raise
        finally:
            readers.count -= 1
            self._check_readers(turn_id, readers, cancel if has_left else None)

    def abandon(self, turn_id: str, cancel: Callable[[], None]) -> None:
        """Register that the client of a turn left before it could read."""
        readers = self._turns.setdefault(turn_id, _Readers())
        if readers.timer is None:
            self._check_readers(turn_id, readers, cancel)

    def _check_readers(self, turn_id: str, readers: _Readers, cancel: Callable[[], None] | None) -> None:
        if readers.count:
            return
        if cancel is None:
            del self._turns[turn_id]
            return

        def end() -> None:
            del self._turns[turn_id]
            cancel()

        readers.timer = asyncio.get_running_loop().call_later(self._cancel_after_s, end)
