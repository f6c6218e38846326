"""Backups of everything that the server stores, while it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from wonder_server.core.frozen import Value

UNFINISHED: Final = "RESTORE-UNFINISHED"
"""A file in a data folder to which `wonder restore` is still writing, or was when it was killed."""


class BackupProgress(Value, frozen=True, kw_only=True):
    """The content of a backup so far. ``step`` is ``databases``, ``objects``, ``git`` or ``files``."""

    step: str
    files: int
    bytes: int


class BackupSummary(Value, frozen=True, kw_only=True):
    """A complete backup."""

    name: str
    created_ms: int
    files: int
    bytes: int
    new_bytes: int
    objects_elsewhere: bool


class Backups(Protocol):
    """Makes backups."""

    async def create(self, name: str, on_progress: Callable[[BackupProgress], None]) -> BackupSummary:
        """Make or repeat the backup ``name``. Raises FIELD_INVALID for a name, RESOURCE_IN_USE while another
        backup is made, NOT_IMPLEMENTED without a folder for backups, STORAGE_UNAVAILABLE."""
        ...
