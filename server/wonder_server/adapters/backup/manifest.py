"""The manifest of a backup: every file with its size and hash. It is written last.

A folder without a manifest is no backup. A backup that is repeated into the same folder replaces the manifest
in one step, so until then the folder is the earlier backup.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from wonder_server.core.frozen import Value

NAME: Final = "manifest.json"
FORMAT: Final = 1
"""Format of the folder. A version that writes another one is newer than those that know only this."""
CHUNK_BYTES: Final = 1 << 20


class BackupError(Exception):
    """The backup cannot be made or used. The message is a sentence for the operator."""


class DamagedBackupError(BackupError):
    """A file of the backup is not the one that was backed up."""


class StoredFile(Value, frozen=True, kw_only=True):
    """One file of the data folder. ``path`` is relative to it. ``place`` is the file's path in the backup;
    "" for a symbolic link, whose target is ``link``. ``mtime_ns`` is that of the data folder."""

    path: str
    place: str = ""
    size: int = 0
    sha256: str = ""
    mtime_ns: int = 0
    executable: bool = False
    link: str = ""


class Manifest(Value, frozen=True, kw_only=True):
    """A complete backup. ``migrations`` are those that each database has applied, in order.

    ``objects_elsewhere``: a bucket has the objects, so they are not in the backup.
    """

    format: int
    version: str
    created_ms: int
    generation: str
    files: tuple[StoredFile, ...]
    migrations: dict[str, tuple[str, ...]]
    objects_elsewhere: bool = False


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a backup. Raises `BackupError`."""
    try:
        raw = (folder / NAME).read_bytes()
    except FileNotFoundError:
        raise BackupError(
            f"{folder} is not a backup: it has no {NAME}, which a backup gets when it is complete."
        ) from None
    except OSError as problem:
        raise BackupError(f"{folder / NAME} cannot be read: {problem.strerror}.") from None
    try:
        found = msgspec.json.decode(raw)
        known = found["format"]
        if known != FORMAT:
            raise BackupError(
                f"{folder} has the format {str(known)[:20]!r}, and this version reads the format {FORMAT}. "
                "Use the version of Wonder that made the backup, or a newer one."
            )
        return msgspec.convert(found, Manifest)
    except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError):
        raise BackupError(f"{folder / NAME} is damaged. Use another backup.") from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step, durably."""
    draft = folder / f"{NAME}.new"
    with draft.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / NAME)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that its names are durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def copy_file(source: Path, target: Path) -> tuple[int, str]:
    """Copy the content of a regular file to a new file, flush it, and return its size and SHA-256."""
    digest, size = hashlib.sha256(), 0
    # A link that came in place of the file is not followed.
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(CHUNK_BYTES):
            digest.update(chunk)
            writer.write(chunk)
            size += len(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    return size, digest.hexdigest()


def hash_file(path: Path) -> tuple[int, str]:
    """Return the size and the SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as reader:
        while chunk := reader.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()
