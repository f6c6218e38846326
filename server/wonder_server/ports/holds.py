"""Holds: stores that remove nothing for some time, so that their files can be copied."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Holds(Protocol):
    """A store whose removals can be held."""

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Keep everything that the store has until the end of the block. New content can be added."""
        ...
