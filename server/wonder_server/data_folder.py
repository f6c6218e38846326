"""The data folder belongs to one server at a time.

``LOCK`` is held with an exclusive `flock` for the life of the process, so that it is free again the
moment the process ends, however it ends; its text says who holds it. ``ADDRESS`` tells tools where
the running server listens. Only the server's user may enter the folder: what it holds is private, and a file
that a command in a sandbox makes is out of reach for other users of the machine.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wonder_server.logs import logger

_log = logger("server")


class DataFolderError(Exception):
    """The data folder cannot be used. The message is a plain sentence."""


class DataFolder:
    """A data folder that this process holds. Made by `DataFolder.take`, given back by `release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def acquire(cls, path: Path, listen: str) -> DataFolder:
        """Make the folder if it is missing, lock it, and close it to other users.

        Raises `DataFolderError` when another process holds it or it cannot be written.
        """
        path = path.resolve()
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise DataFolderError(f"The data folder {path} cannot be written: {problem.strerror}.") from None
        folder = cls.lock(path, "Stop that server, or give this one another folder with --data-dir.")
        try:
            folder._make_private()
            folder.record_address(listen)
        except DataFolderError:
            os.close(folder._lock)
            raise
        return folder

    @classmethod
    def lock(cls, path: Path, advice: str = "Stop that server first.") -> DataFolder:
        """Lock a folder that is there, for a moment in which no server may have it.

        ``advice``: what to do if a server has it.

        Raises `DataFolderError` when another process holds it or its lock file cannot be opened.
        """
        path = path.resolve()
        try:
            lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise DataFolderError(f"The data folder {path} cannot be written: {problem.strerror}.") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _lock_holder(lock)
            os.close(lock)
            raise DataFolderError(f"The data folder {path} is in use by {holder}. {advice}") from None
        return cls(path, lock)

    def _make_private(self) -> None:
        """Set the mode 0700. Where the folder belongs to another user, its files are made private instead."""
        status = self.path.stat()
        mode = stat.S_IMODE(status.st_mode)
        if not mode & 0o077:
            return
        if status.st_uid == os.geteuid():
            with self._translate_errors("."):
                self.path.chmod(0o700)
            _log.info("data_dir_secured", data=str(self.path), mode=f"{mode:04o}", now="0700")
            return
        # Not everywhere: what a merge writes in a repository on this machine is for its other users too.
        os.umask(0o077)
        _log.warning(
            "data_dir_exposed", data=str(self.path), mode=f"{mode:04o}",
            effect="other users may enter it; new files in it are private",
            mend="give the folder to the server's user, or its mode 0700",
        )  # fmt: skip

    def record_address(self, address: str) -> None:
        """Record in the lock where this process listens. Raises `DataFolderError`."""
        text = json.dumps({"pid": os.getpid(), "listen": address}) + "\n"
        with self._translate_errors("LOCK"):
            # In this order it needs no room that the file does not have already.
            os.pwrite(self._lock, text.encode(), 0)
            os.ftruncate(self._lock, len(text))

    def publish_address(self, address: str) -> None:
        """Write ``ADDRESS``: the server is ready and answers there. On a full disk there is none.

        Raises `DataFolderError`.
        """
        self.record_address(address)
        fresh = self.path / "ADDRESS.new"
        (self.path / "ADDRESS").unlink(missing_ok=True)
        with self._translate_errors("ADDRESS"):
            fresh.write_text(address + "\n", encoding="ascii")
            fresh.replace(self.path / "ADDRESS")

    @contextmanager
    def _translate_errors(self, name: str) -> Iterator[None]:
        """Say in a plain sentence when a file of the folder cannot be written. That the disk is full is no
        reason not to start: the server then reads and deletes."""
        try:
            yield
        except OSError as problem:
            if problem.errno in (errno.ENOSPC, errno.EDQUOT):
                return
            raise DataFolderError(f"{self.path / name} cannot be written: {problem.strerror}.") from None

    def release(self) -> None:
        """Remove ``ADDRESS`` and give up the lock. The lock file stays: removing it would race."""
        (self.path / "ADDRESS").unlink(missing_ok=True)
        os.close(self._lock)


def _lock_holder(lock: int) -> str:
    try:
        found = json.loads(os.pread(lock, 4096, 0))
        return f"process {int(found['pid'])} (listening on {found['listen']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
