"""A folder with one backup, while a backup is made into it.

    manifest.json               the backup, see `manifest`
    databases-<generation>/     the databases; each backup has a generation of its own
    files/ab/abcdef…            all other contents by SHA-256, which later backups use again
    LOCK                        held while a backup is made

Until the manifest is replaced, nothing that the earlier one names is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wonder_server.adapters.backup.manifest import (
    NAME,
    BackupError,
    Manifest,
    StoredFile,
    copy_file,
    hash_file,
    read_manifest,
    sync_folder,
    write_manifest,
)

SPARE_BYTES: Final = 64 << 20
_GENERATION: Final = "databases-"
_KNOWN: Final = (NAME, f"{NAME}.new", "LOCK", "files")

OnFile = Callable[[int], None]
"""Gets the size of each file that is in the backup. Raises to stop."""


class BackupFolder:
    """The folder of a backup, locked. `open_folder` makes it. Every method blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = secrets.token_hex(8)
        self.databases = path / f"{_GENERATION}{self.generation}"
        self._files = path / "files"
        self._earlier = _earlier(path)
        self._new_folders: set[Path] = set()
        self.new_bytes = 0
        """Bytes that this backup has written."""
        self.databases.mkdir(mode=0o700)
        self._files.mkdir(exist_ok=True, mode=0o700)

    def require_space(self, needed: int) -> None:
        """Raise `BackupError` unless the disk has space for so many bytes of databases, and some more."""
        free = shutil.disk_usage(self.path).free
        if free < needed + SPARE_BYTES:
            raise BackupError(
                f"The disk of {self.path} has {free >> 20} MiB free, and the databases need "
                f"{(needed + SPARE_BYTES) >> 20} MiB. Free some disk space."
            )

    def add_database(self, name: str, copy: Path) -> StoredFile:
        """Flush a complete copy of a database, and describe it."""
        handle = os.open(copy, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        size, digest = hash_file(copy)
        self.new_bytes += size
        return StoredFile(path=name, place=str(copy.relative_to(self.path)), size=size, sha256=digest)

    def add_tree(
        self, data: Path, name: str, on_file: OnFile, place_of: Callable[[str], str] = str
    ) -> list[StoredFile]:
        """Add all files below the folder ``name`` of the data folder, and return their descriptions.

        ``place_of`` returns the path to restore a file to; "" leaves it out. The first file of a path counts.
        A file that is removed meanwhile is left out. Sockets and other special files are left out too."""
        found: dict[str, StoredFile] = {}
        root = data / name
        for folder, folders, files in os.walk(root):
            # References before the objects that they name: objects are only added.
            folders.sort(key=lambda each: (each == "objects", each))
            linked = [each for each in folders if (Path(folder) / each).is_symlink()]
            for each in sorted([*files, *linked]):
                path = Path(folder) / each
                restored = place_of(str(path.relative_to(data)))
                if restored and restored not in found:
                    with contextlib.suppress(FileNotFoundError):
                        if (described := self._add(path, restored)) is not None:
                            found[restored] = described
                            on_file(described.size)
        return [*found.values()]

    def add_file(self, path: Path, name: str) -> StoredFile | None:
        """Add one file of the data folder; None if it is no regular file or link."""
        return self._add(path, name)

    def finish(self, manifest: Manifest) -> None:
        """Make the backup complete, then remove what it does not need."""
        for folder in sorted(self._new_folders):
            sync_folder(folder)
        for folder in (self.databases, self._files, self.path):
            sync_folder(folder)
        write_manifest(self.path, manifest)
        self._remove_unused(manifest)

    def _add(self, path: Path, name: str) -> StoredFile | None:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return StoredFile(path=name, link=os.fsdecode(os.readlink(path)))
        if not stat.S_ISREG(status.st_mode):
            return None
        executable = bool(status.st_mode & stat.S_IXUSR)
        earlier = self._earlier.get(name)
        if (
            earlier is not None
            and (earlier.size, earlier.mtime_ns) == (status.st_size, status.st_mtime_ns)
            and _size(self.path / earlier.place) == earlier.size
        ):
            return earlier
        draft = self._files / f"new-{secrets.token_hex(8)}"
        try:
            size, digest = copy_file(path, draft)
            place = self._files / digest[:2] / digest
            if _size(place) != size:
                if not place.parent.is_dir():
                    place.parent.mkdir(mode=0o700)
                draft.replace(place)
                self.new_bytes += size
                self._new_folders.add(place.parent)
        finally:
            draft.unlink(missing_ok=True)
        return StoredFile(
            path=name,
            place=str(place.relative_to(self.path)),
            size=size,
            sha256=digest,
            mtime_ns=status.st_mtime_ns,
            executable=executable,
        )

    def _remove_unused(self, manifest: Manifest) -> None:
        used = {each.place for each in manifest.files}
        for each in self.path.glob(f"{_GENERATION}*"):
            if each != self.databases:
                shutil.rmtree(each, ignore_errors=True)
        for each in self._files.rglob("*"):
            if each.is_file() and str(each.relative_to(self.path)) not in used:
                each.unlink(missing_ok=True)


@contextmanager
def open_folder(path: Path) -> Iterator[BackupFolder]:
    """Open the folder of a backup; create it if it is missing.

    Raises `BackupError` if it has other contents, if a backup is made into it, or if it cannot be written.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        others = [each.name for each in path.iterdir() if not _is_known(each.name)]
        if others:
            raise BackupError(
                f"{path} has other contents, such as {others[0][:100]!r}. Use an empty folder or a backup."
            )
        lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        raise BackupError(f"The backup {path} cannot be written: {problem.strerror}.") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BackupError(f"Another backup into {path} is in progress.") from None
        for left in path.glob(f"{_GENERATION}*"):
            if left.name not in _generations(path):
                shutil.rmtree(left, ignore_errors=True)
        folder = BackupFolder(path)
        try:
            yield folder
        except OSError as problem:
            shutil.rmtree(folder.databases, ignore_errors=True)
            raise BackupError(
                f"The backup {path} cannot be written: {problem.strerror or problem}."
            ) from None
        except BaseException:
            shutil.rmtree(folder.databases, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _is_known(name: str) -> bool:
    return name in _KNOWN or name.startswith(_GENERATION)


def _earlier(path: Path) -> dict[str, StoredFile]:
    """Return the files of the earlier backup, by path; nothing if there is none, or if it is damaged."""
    try:
        return {each.path: each for each in read_manifest(path).files if each.mtime_ns}
    except BackupError:
        return {}


def _generations(path: Path) -> set[str]:
    try:
        return {f"{_GENERATION}{read_manifest(path).generation}"}
    except BackupError:
        return set()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
