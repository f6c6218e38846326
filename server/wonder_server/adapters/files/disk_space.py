"""Free space of the data folder's disk, and a reserve for a full disk.

On a full disk clients must still be able to read and delete, and deleting needs some space: SQLite writes to
its WAL before it frees pages. So the server keeps a file ``RESERVE`` of a few MiB. When the free space falls
below a quarter of the reserve, the server truncates that file and accepts only reads and deletions. When
enough space is free again, it fills the file and accepts everything.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.logs import logger

_log = logger("store")

RESERVE_NAME: Final = "RESERVE"
_MIB: Final = 1 << 20
_LONG_LOG_FREE_BYTES: Final = 1 << 30
"""Free space from which on WAL files may be long. It is twice what the WAL files of 34 stores take, at 16 MiB
each, so it does not disappear between two updates unless another program fills the disk."""


def free_bytes(folder: Path) -> int:
    """Return the bytes that this process may still write to the file system of ``folder``."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class DiskSpaceGuard:
    """State of the disk as of the last `update`. For the event loop, except `write_rejection`."""

    def __init__(self, folder: Path, reserve_bytes: int, free: Callable[[Path], int] = free_bytes) -> None:
        """``reserve_bytes`` 0 disables the reserve; the disk then never counts as full."""
        self._folder = folder
        self._file = folder / RESERVE_NAME
        self._reserve = reserve_bytes
        self._low_bytes = reserve_bytes // 4
        self._resume_bytes = reserve_bytes + 2 * self._low_bytes
        self._free = free
        self._available = 0
        self._is_full = False

    def write_rejection(self) -> WonderError | None:
        """Return the STORAGE_UNAVAILABLE error for writes while the disk is full, else None."""
        if not self._is_full:
            return None
        return error(
            Reason.STORAGE_UNAVAILABLE,
            "The disk of the server's data folder is full, so the server accepts only reads and deletions. "
            f"{self._shortage()} The server accepts writes again by itself.",
            transient=True,
        )

    def _shortage(self) -> str:
        """Return a sentence with the required and the available free space, as of the last update."""
        if self._available >= self._resume_bytes:
            return f"The file {RESERVE_NAME} could not be written there. See the server's log for the cause."
        wanted = -(-self._resume_bytes * 100 // _MIB) / 100
        # Rounded down, so that the message never shows more free space than required.
        free = self._available * 100 // _MIB / 100
        return (
            f"{wanted:,.6g} MiB must be free there, and {free:,.6g} are. Free disk space, or delete data "
            "that is no longer needed."
        )

    def should_checkpoint(self, log_bytes: int) -> bool:
        """Return True if WAL files of ``log_bytes`` should be truncated before the disk is full."""
        try:
            return bool(
                self._reserve and log_bytes and self._free(self._folder) < 2 * self._low_bytes + log_bytes
            )
        except OSError:
            return False

    def max_log_bytes(self) -> int | None:
        """Return the size from which on a WAL file should be checkpointed; None if it may be long.

        A checkpoint can grow the store by the size of the WAL. On a disk that may be full soon, the growth
        must fit in the reserve.
        """
        if not self._reserve:
            return None
        try:
            return None if self._free(self._folder) >= _LONG_LOG_FREE_BYTES else self._reserve // 2
        except OSError:
            return self._reserve // 2

    def update(self) -> bool:
        """Measure the free space, and release or fill the reserve. Return True while the disk is full."""
        if not self._reserve:
            return False
        try:
            free, reserved = self._free(self._folder), self._reserved_bytes()
            self._available = free + reserved
            if self._is_full or (not reserved and self._file.exists()):
                # The file is empty: the disk was full, maybe when an earlier process stopped.
                enough = self._available >= self._resume_bytes
            else:
                enough = free >= self._low_bytes if reserved else free >= self._reserve + self._low_bytes
            self._set_full(not enough or not self._fill_reserve(reserved), free)
        except OSError as problem:
            _log.warning("disk_reserve_failed", problem=problem.strerror or str(problem))
        return self._is_full

    def _set_full(self, is_full: bool, free: int) -> None:
        if is_full:
            self._release_reserve()
        if is_full and not self._is_full:
            _log.error("disk_full", free_bytes=free, reserve_bytes=self._reserve)
        elif self._is_full and not is_full:
            _log.info("disk_space_available", free_bytes=free)
        self._is_full = is_full

    def _reserved_bytes(self) -> int:
        try:
            return os.stat(self._file).st_blocks * 512
        except FileNotFoundError:
            return 0

    def _fill_reserve(self, reserved: int) -> bool:
        """Fill the reserve. Return False if the disk has too little space for it."""
        if reserved >= self._reserve:
            return True
        try:
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, self._reserve)
            finally:
                os.close(file)
        except OSError as problem:
            _log.warning("disk_reserve_failed", problem=problem.strerror or str(problem))
            return False
        return True

    def _release_reserve(self) -> None:
        try:
            os.truncate(self._file, 0)
        except FileNotFoundError:
            return
