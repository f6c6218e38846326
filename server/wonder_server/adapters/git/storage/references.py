"""Branches of a repository, read and set as data in its files. No program runs, no symbolic link is followed.

A branch is a file below ``refs/heads`` or a line of ``packed-refs``; the file takes precedence. An unreadable
entry is damage and raises `BrokenReferenceError`, so damage is never reported as a missing branch.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ID: Final = re.compile(r"[0-9a-f]{40}\Z")
_HEADS: Final = "refs/heads/"
_MAX_BYTES: Final = 64 << 20
_MAX_DEPTH: Final = 64
_MAX_LINKS: Final = 5
"""Maximum number of symbolic references followed from one branch, as in git."""


class BrokenReferenceError(Exception):
    """A reference is unreadable. The message is a clause for users."""


class HostRepositoryError(Exception):
    """A host folder cannot be used as a repository. The message is a clause for users."""


class RefLockedError(Exception):
    """Another git process is changing the branch."""


def read_file(handle: int, name: str, max_bytes: int = _MAX_BYTES) -> bytes | None:
    """Return the content of a regular file below the folder ``handle``, or None if it does not exist.

    Raises `BrokenReferenceError` for anything else at this path, and above ``max_bytes``.
    """
    *folders, last = name.split("/")
    try:
        with open_folder(handle, folders) as inner:
            file = os.open(last, FILE, dir_fd=inner)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        raise BrokenReferenceError(f"{name} cannot be read: {problem.strerror}") from None
    with open(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            if stat.S_ISDIR(os.fstat(file).st_mode):
                return None
            raise BrokenReferenceError(f"{name} is not a regular file")
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise BrokenReferenceError(f"{name} has more than {max_bytes} bytes")
    return content


@contextmanager
def open_folder(handle: int, folders: list[str]) -> Iterator[int]:
    """Open a folder below ``handle``, one component at a time, without following a symbolic link."""
    current = os.dup(handle)
    try:
        for folder in folders:
            inner = os.open(folder, FOLDER, dir_fd=current)
            os.close(current)
            current = inner
        yield current
    finally:
        os.close(current)


def head_of(handle: int) -> str:
    """Return the branch that HEAD of the repository ``handle`` names, or "" if HEAD names no branch."""
    content = read_file(handle, "HEAD", 4_096)
    if content is None:
        raise BrokenReferenceError("HEAD is missing")
    text = content.decode("utf-8", "replace").strip()
    return text[5:].strip().removeprefix(_HEADS) if text.startswith(f"ref: {_HEADS}") else ""


def branch(handle: int, name: str) -> str:
    """Return the commit id of a branch, or "" if it does not exist. Raises `BrokenReferenceError`."""
    seen = f"{_HEADS}{name}"
    for _ in range(_MAX_LINKS):
        content = read_file(handle, seen, 4_096)
        if content is None:
            return _packed_references(handle).get(seen, "")
        text = content.decode("utf-8", "replace").strip()
        if _ID.match(text):
            return text
        if not text.startswith("ref: refs/"):
            raise BrokenReferenceError(f"the reference '{seen[:200]}' contains no commit id")
        seen = text[5:].strip()
        if ".." in seen or not seen.startswith(_HEADS):
            raise BrokenReferenceError(f"the reference '{name[:200]}' points outside {_HEADS}")
    raise BrokenReferenceError(f"the reference '{name[:200]}' passes through more than {_MAX_LINKS} others")


def branches(handle: int) -> dict[str, str]:
    """Return the commit id of each branch. Raises `BrokenReferenceError` if one is unreadable."""
    # Loose files first: git writes packed-refs before it removes the files.
    loose = list(_loose_branches(handle))
    found = {name: branch(handle, name) for name in loose}
    packed = _packed_references(handle)
    for full, commit_id in packed.items():
        if full.startswith(_HEADS):
            found.setdefault(full.removeprefix(_HEADS), commit_id)
    return {name: commit_id for name, commit_id in found.items() if commit_id}


def _loose_branches(handle: int) -> Iterator[str]:
    try:
        with open_folder(handle, ["refs", "heads"]) as heads:
            yield from _walk(heads, "", 0)
    except OSError as problem:
        raise BrokenReferenceError(f"{_HEADS} cannot be read: {problem.strerror}") from None


def _walk(folder: int, base: str, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        raise BrokenReferenceError(f"{_HEADS}{base[:200]} is nested too deeply")
    with os.scandir(folder) as listing:
        names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing)
    for name, is_folder in names:
        if is_folder:
            with open_folder(folder, [name]) as inner:
                yield from _walk(inner, f"{base}{name}/", depth + 1)
        elif not name.endswith(".lock"):
            yield base + name


def _packed_references(handle: int) -> dict[str, str]:
    """Return the references in ``packed-refs``, by full name."""
    content = read_file(handle, "packed-refs")
    found: dict[str, str] = {}
    for line in (content or b"").decode("utf-8", "surrogateescape").split("\n"):
        if not line or line[0] in "#^":
            continue
        commit_id, space, name = line.partition(" ")
        if not space or not _ID.match(commit_id):
            raise BrokenReferenceError("packed-refs contains a line that is not a reference")
        found[name] = commit_id
    return found


# --- changes --------------------------------------------------------------------------------------


def set_branch(handle: int, name: str, new: str, old: str) -> bool:
    """Move a branch from the commit ``old`` ("": no such branch) to ``new``. Return False if it is not at
    ``old``.

    This follows git's own protocol, so it excludes other git processes: it creates ``<name>.lock`` beside the
    file, then renames it. Everything happens in one folder, opened component by component. Raises
    `RefLockedError`, `HostRepositoryError`, `BrokenReferenceError`.
    """
    folder_name, _, last = f"{_HEADS}{name}".rpartition("/")
    with _make_folders(handle, folder_name.split("/"), name) as folder:
        lock = f"{last}.lock"
        try:
            file = os.open(lock, NEW_FILE, 0o666, dir_fd=folder)
        except FileExistsError:
            raise RefLockedError from None
        try:
            with open(file, "wb") as stream:
                stream.write(f"{new}\n".encode())
                stream.flush()
                os.fsync(file)
            if _read_locked(handle, folder, last, name) != old:
                return False
            with contextlib.suppress(OSError):  # git leaves empty folders of deleted branches.
                os.rmdir(last, dir_fd=folder)
            os.rename(lock, last, src_dir_fd=folder, dst_dir_fd=folder)
            lock = ""
            os.fsync(folder)
        except IsADirectoryError:
            raise HostRepositoryError(f"names of other branches begin with '{name}/'") from None
        finally:
            if lock:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(lock, dir_fd=folder)
    return True


@contextmanager
def _make_folders(handle: int, folders: list[str], name: str) -> Iterator[int]:
    """Open the folder of a branch, creating missing folders."""
    current = os.dup(handle)
    try:
        for folder in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o777, dir_fd=current)
            try:
                inner = os.open(folder, FOLDER, dir_fd=current)
            except OSError as problem:
                raise HostRepositoryError(
                    f"'{folder[:100]}' in the path of branch '{name}' is not a folder ({problem.strerror})"
                ) from None
            os.close(current)
            current = inner
        yield current
    finally:
        os.close(current)


def _read_locked(handle: int, folder: int, last: str, name: str) -> str:
    """Return the commit id of the branch, whose lock the caller holds."""
    content = read_file(folder, last, 4_096)
    if content is None:
        packed = _packed_references(handle)
        for other in packed:
            if other.startswith(f"{_HEADS}{name}/") or f"{_HEADS}{name}".startswith(f"{other}/"):
                raise HostRepositoryError(
                    f"its branch '{other.removeprefix(_HEADS)}' prevents a branch named '{name}'"
                )
        return packed.get(f"{_HEADS}{name}", "")
    text = content.decode("utf-8", "replace").strip()
    if text.startswith("ref:"):
        raise HostRepositoryError(f"its branch '{name}' is a symbolic reference")
    if not _ID.match(text):
        raise BrokenReferenceError(f"the reference '{_HEADS}{name}' contains no commit id")
    return text
