"""The data folder, which one server uses at a time.

``LOCK`` is held with an exclusive `flock` for the life of the process, so the system releases it whenever the
process ends. Its text names the holder. ``ADDRESS`` tells tools where the running server listens. Only the
server's user may enter the folder: its content is private, and other users of the machine cannot reach a file
that a command in a sandbox creates.
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
from wonder_server.ports.backups import UNFINISHED

_log = logger("server")


class DataFolderError(Exception):
    """The data folder cannot be used. The message is a sentence."""


class DataFolder:
    """A data folder that this process has locked. `acquire` or `lock` makes it, `release` unlocks it."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def acquire(cls, path: Path, listen: str) -> DataFolder:
        """Create the folder if it is missing, lock it, and close it to other users.

        Raises `DataFolderError` if another process holds the lock or the folder cannot be written.
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
        """Lock an existing folder, so that no server can use it.

        ``advice`` ends the message if a server holds the lock. Raises `DataFolderError` if another process
        holds the lock or the lock file cannot be opened.
        """
        path = path.resolve()
        if (path / UNFINISHED).exists():
            raise DataFolderError(
                f"The restore to {path} has not finished. Wait for it, or call `wonder restore` for this "
                "folder again: it begins anew."
            )
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
        """Set the mode 0700. If another user owns the folder, make new files private instead."""
        status = self.path.stat()
        mode = stat.S_IMODE(status.st_mode)
        if not mode & 0o077:
            return
        if status.st_uid == os.geteuid():
            with self._translate_errors("."):
                self.path.chmod(0o700)
            _log.info("data_dir_secured", data=str(self.path), mode=f"{mode:04o}", now="0700")
            return
        # Only here: other users share the files that a merge writes into a repository of this machine.
        os.umask(0o077)
        _log.warning(
            "data_dir_exposed", data=str(self.path), mode=f"{mode:04o}",
            effect="other users may enter it; new files in it are private",
            mend="give the folder to the server's user, or its mode 0700",
        )  # fmt: skip

    def record_address(self, address: str) -> None:
        """Write this process and its address into the lock file. Raises `DataFolderError`."""
        text = json.dumps({"pid": os.getpid(), "listen": address}) + "\n"
        with self._translate_errors("LOCK"):
            # In this order the write needs no additional disk space.
            os.pwrite(self._lock, text.encode(), 0)
            os.ftruncate(self._lock, len(text))

    def publish_address(self, address: str) -> None:
        """Write ``ADDRESS``, which tells tools that the server is ready. Skip it on a full disk.

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
        """Turn an OSError of a file in the folder into `DataFolderError`.

        Ignore a full disk: the server starts, and accepts reads and deletions.
        """
        try:
            yield
        except OSError as problem:
            if problem.errno in (errno.ENOSPC, errno.EDQUOT):
                return
            raise DataFolderError(f"{self.path / name} cannot be written: {problem.strerror}.") from None

    def release(self) -> None:
        """Remove ``ADDRESS`` and release the lock. Keep the lock file: removal would race."""
        (self.path / "ADDRESS").unlink(missing_ok=True)
        os.close(self._lock)


def _lock_holder(lock: int) -> str:
    try:
        found = json.loads(os.pread(lock, 4096, 0))
        return f"process {int(found['pid'])} (listening on {found['listen']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
