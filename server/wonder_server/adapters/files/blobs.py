"""Objects as files of a folder: ``ab/abcdef…``, named by the hash of their content.

An object is written to a temporary file, flushed and renamed. After a crash it exists completely or not at
all. The next `FileBlobs.open` removes the temporary files in ``tmp`` that a crash left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from wonder_server.core.errors import Reason, error
from wonder_server.ports.blobs import is_key, key_of

HELD: Final = "tmp/held-{key}"
"""Place of an object that was deleted while deletions are held."""


def place_of(path: str) -> str:
    """Return the place of an object whose file has this path, also if it is held; "" for a draft."""
    folder, _, name = path.rpartition("/")
    if folder.rpartition("/")[2] != "tmp":
        return path
    key = name.removeprefix("held-")
    return f"{folder.removesuffix('tmp')}{key[:2]}/{key}" if is_key(key) else ""


class FileBlobs:
    """Implements the port ``Blobs``."""

    def __init__(self, folder: Path) -> None:
        """Internal; use `open`."""
        self._folder = folder
        self._holds = 0

    @classmethod
    async def open(cls, folder: Path) -> FileBlobs:
        """Open the folder; create it if it is missing. Errors: STORAGE_UNAVAILABLE."""
        blobs = cls(folder)
        await asyncio.to_thread(blobs._prepare)
        return blobs

    async def put(self, content: bytes) -> str:
        return await asyncio.to_thread(self._put, content)

    async def get(self, key: str) -> bytes | None:
        return await asyncio.to_thread(self._read_verified, key)

    async def exists(self, key: str) -> bool:
        return is_key(key) and await asyncio.to_thread(self._path(key).is_file)

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self._delete, key)

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Implements the port ``Holds``. Deleted objects are kept in ``tmp`` until the end of the block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                await asyncio.to_thread(self._remove_held)

    # --- run in a thread ------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key

    def _prepare(self) -> None:
        with _translate_errors(f"The folder {self._folder}", "created"):
            (self._folder / "tmp").mkdir(parents=True, exist_ok=True)
            for draft in (self._folder / "tmp").iterdir():
                draft.unlink()

    def _put(self, content: bytes) -> str:
        key = key_of(content)
        if self._get(key) == content:
            return key
        path, draft = self._path(key), self._folder / "tmp" / secrets.token_hex(16)
        with _translate_errors(f"The object {key}", "written"):
            is_new = not path.parent.is_dir()
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with draft.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
            _sync(path.parent)
            if is_new:
                _sync(self._folder)
        return key

    def _read_verified(self, key: str) -> bytes | None:
        content = self._get(key)
        if content is not None and key_of(content) != key:
            raise error(
                Reason.STORAGE_UNAVAILABLE,
                f"The object {self._path(key)} is damaged. Restore it from a backup.",
                object=key,
            )
        return content

    def _get(self, key: str) -> bytes | None:
        if not is_key(key):
            return None
        with _translate_errors(f"The object {key}", "read"):
            try:
                return self._path(key).read_bytes()
            except FileNotFoundError:
                return None

    def _delete(self, key: str) -> None:
        if is_key(key):
            with _translate_errors(f"The object {key}", "deleted"):
                if self._holds:
                    with contextlib.suppress(FileNotFoundError):
                        self._path(key).replace(self._folder / HELD.format(key=key))
                else:
                    self._path(key).unlink(missing_ok=True)

    def _remove_held(self) -> None:
        for each in (self._folder / "tmp").glob("held-*"):
            each.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Flush a folder, so that renames in it are durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _translate_errors(subject: str, action: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise error(
            Reason.STORAGE_UNAVAILABLE,
            f"{subject} could not be {action}: {problem.strerror or problem}.",
            transient=True,
        ) from None
