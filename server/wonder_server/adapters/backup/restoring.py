"""Backups read back: every file is checked against the manifest as it is copied."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from wonder_server.adapters.backup.manifest import (
    BackupError,
    DamagedBackupError,
    Manifest,
    StoredFile,
    copy_file,
    read_manifest,
    sync_folder,
)
from wonder_server.ports.backups import UNFINISHED

Known = Mapping[str, Sequence[str]]
"""The migrations that this version knows, by the kind of database: ``shards``, ``catalog``, ``memory``."""


_COUNT: Final = "shards/COUNT"
"""The file without which a folder is no data folder. It comes last."""


def open_backup(folder: Path, known: Known) -> Manifest:
    """Return the manifest of a backup that this version can read. Raises `BackupError`."""
    manifest = read_manifest(folder)
    for name, applied in manifest.migrations.items():
        kind = name.split("/")[0].removesuffix(".db")
        if list(applied) != list(known.get(kind, ()))[: len(applied)]:
            raise BackupError(
                f"The backup {folder} was made by a newer version of Wonder ({manifest.version}): its {name} "
                "has changes that this version does not know. Use that version, or a newer one."
            )
    for each in manifest.files:
        _check_path(each.path)
        if not each.link:
            _check_path(each.place)
    return manifest


def restore(backup: Path, manifest: Manifest, data: Path, on_file: Callable[[StoredFile], None]) -> None:
    """Copy all files of a backup to the new folder ``data``, and check each. Raises `BackupError`.

    No server starts on a folder with the file `UNFINISHED`, which is there until all files are."""
    folders: set[Path] = {data}
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    (data / UNFINISHED).touch(mode=0o600)
    sync_folder(data)
    for each in sorted(manifest.files, key=lambda each: each.path == _COUNT):
        target = data / each.path
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _check_inside(data, target.parent)
            if each.link:
                target.symlink_to(each.link)
            else:
                _restore_file(backup, each, target)
        except OSError as problem:
            raise BackupError(f"{target} cannot be restored: {problem.strerror}.") from None
        folders.add(target.parent)
        on_file(each)
    for folder in sorted(folders):
        sync_folder(folder)
    (data / UNFINISHED).unlink()
    sync_folder(data)


def clear(data: Path) -> None:
    """Remove what a restore that did not finish has written; the folder itself stays, and so does any
    other."""
    if not (data / UNFINISHED).exists():
        return
    for each in sorted(data.iterdir(), key=lambda each: each.name == UNFINISHED):
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _restore_file(backup: Path, each: StoredFile, target: Path) -> None:
    try:
        size, digest = copy_file(backup / each.place, target)
    except FileNotFoundError:
        raise DamagedBackupError(f"The backup is damaged: {each.place} of {each.path} is missing.") from None
    if (size, digest) != (each.size, each.sha256):
        raise DamagedBackupError(f"The backup is damaged: {each.place} is not the content of {each.path}.")
    target.chmod(0o700 if each.executable else 0o600)
    if each.mtime_ns:
        os.utime(target, ns=(each.mtime_ns, each.mtime_ns))


def _check_path(path: str) -> None:
    """Raise `BackupError` for a path that leaves its folder."""
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise BackupError(f"The manifest is damaged: {path[:100]!r} is not a path in the folder.")


def _check_inside(data: Path, folder: Path) -> None:
    """Raise `BackupError` if a link of the backup leads a path out of the data folder."""
    if not folder.resolve().is_relative_to(data.resolve()):
        raise BackupError(f"The manifest is damaged: {folder} is a link out of the folder.")
