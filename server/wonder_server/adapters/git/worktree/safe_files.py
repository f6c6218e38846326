"""Access to files of a folder that agents write to, without following links or running anything in it.

Each folder of a path is opened on its own and must be a folder, not a link to one. A file is opened only if
it is a regular file. So access stays inside the folder, even if a command in the sandbox swaps entries at the
same time.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from wonder_server.adapters.git.worktree.ignore_rules import Rule, is_ignored, read_rules
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.paths import is_git_directory

MAX_FILE: Final = 100 << 20
MAX_FILES: Final = 200_000
MAX_DEPTH: Final = 100
_MAX_LINK: Final = 8_192
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


Root = Path | int
"""A folder: a path whose last component is not a link, or an open file descriptor."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file or link of the folder. ``fingerprint`` changes whenever the content may have changed."""

    path: str
    mode: str
    fingerprint: tuple[int, ...]
    changed_ns: int

    @property
    def size(self) -> int:
        """Return the apparent size in bytes, including holes."""
        return self.fingerprint[1]


Known = Callable[[str], bool]
"""Returns True if the repository has this path, or a path below it."""


def walk(root: Root, known: Known) -> Iterator[FoundFile]:
    """Yield the files below ``root`` that the repository has or does not exclude, in no order."""
    handle = os.dup(root) if isinstance(root, int) else os.open(root, _FOLDER)
    count = 0
    try:
        for found in _walk(handle, "", [], known, 0):
            count += 1
            if count > MAX_FILES:
                raise error(
                    Reason.LIMIT_EXCEEDED,
                    f"The worktree has more than {MAX_FILES} files. List files to exclude in .gitignore.",
                    limit=str(MAX_FILES),
                )
            yield found
    finally:
        os.close(handle)


def _walk(handle: int, base: str, rules: list[Rule], known: Known, depth: int) -> Iterator[FoundFile]:
    own = _read(handle, ".gitignore", 1 << 20)
    rules = [*rules, *read_rules(own.decode("utf-8", "replace"), base)] if own else rules
    with os.scandir(handle) as listing:
        names = sorted(entry.name for entry in listing)
    for name in names:
        if is_git_directory(name):
            continue
        path = base + name
        try:
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except OSError:
            continue  # The entry was removed meanwhile.
        if stat.S_ISDIR(status.st_mode):
            if known(path) or not is_ignored(rules, path, is_folder=True):
                yield from _walk_folder(handle, path, rules, known, depth)
        elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            if known(path) or not is_ignored(rules, path, is_folder=False):
                yield FoundFile(
                    path, _mode(status), _fingerprint(status), max(status.st_mtime_ns, status.st_ctime_ns)
                )


def _walk_folder(handle: int, path: str, rules: list[Rule], known: Known, depth: int) -> Iterator[FoundFile]:
    """Yield the files of one folder inside the open folder ``handle``."""
    if depth >= MAX_DEPTH:
        raise _unreadable(path, f"is nested more than {MAX_DEPTH} folders deep")
    try:
        inner = os.open(path.rpartition("/")[2], _FOLDER, dir_fd=handle)
    except PermissionError:
        raise _unreadable(path, "may not be listed by the server") from None
    except OSError:
        return  # The folder was removed or replaced meanwhile.
    try:
        yield from _walk(inner, path + "/", rules, known, depth + 1)
    finally:
        os.close(inner)


def _mode(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "120000"
    return "100755" if status.st_mode & stat.S_IXUSR else "100644"


def _fingerprint(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


# --- one file -------------------------------------------------------------------------------------


def read(root: Root, path: str, max_bytes: int = MAX_FILE) -> bytes | None:
    """Return the content of a file, or the target of a link; None if there is neither. PAYLOAD_TOO_LARGE."""
    with contextlib.suppress(OSError), _inside(root, path, make=False) as (handle, name):
        return _read(handle, name, max_bytes)
    return None


def file_mode(root: Root, path: str) -> str:
    """Return the mode of a file or link in git's form; "" if there is neither."""
    with contextlib.suppress(OSError), _inside(root, path, make=False) as (handle, name):
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        return _mode(status) if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) else ""
    return ""


def _read(handle: int, name: str, max_bytes: int) -> bytes | None:
    try:
        file = os.open(name, _FILE, dir_fd=handle)
    except PermissionError:
        raise _unreadable(name, "may not be read by the server") from None
    except OSError:
        try:
            return os.fsencode(os.readlink(name, dir_fd=handle))
        except OSError:
            return None
    with open(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        content = opened.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise error(
            Reason.PAYLOAD_TOO_LARGE,
            f"The file '{name[:100]}' has more than {max_bytes} bytes. Remove it or list it in .gitignore.",
            limit=str(max_bytes),
        )
    return content


def write(root: Root, path: str, content: bytes | IO[bytes] | None, mode: str = "") -> None:
    """Replace a file's content in one step; None removes the file. Without ``mode``, the file keeps its mode.

    FIELD_INVALID if another file, link or folder prevents it.
    """
    try:
        with _inside(root, path, make=content is not None) as (handle, name):
            if content is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=handle)
            else:
                _replace(handle, name, content, mode)
    except FileNotFoundError:
        if content is not None:
            raise _path_blocked(path) from None
    except (NotADirectoryError, IsADirectoryError, FileExistsError, PermissionError):
        raise _path_blocked(path) from None
    except OSError as problem:
        if problem.errno == 40:  # ELOOP: a link instead of a folder.
            raise _path_blocked(path) from None
        raise
    if content is None:
        _prune(root, path)


def _replace(handle: int, name: str, content: bytes | IO[bytes], mode: str) -> None:
    if not mode:
        try:
            mode = _mode(os.stat(name, dir_fd=handle, follow_symlinks=False))
        except OSError:
            mode = "100644"
        mode = "100644" if mode == "120000" else mode
    draft = f".wonder-{secrets.token_hex(8)}"
    try:
        if mode == "120000":
            target = content if isinstance(content, bytes) else content.read(_MAX_LINK)
            os.symlink(os.fsdecode(target), draft, dir_fd=handle)
        else:
            bits = 0o755 if mode == "100755" else 0o644
            file = os.open(
                draft,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                bits,
                dir_fd=handle,
            )
            with open(file, "wb") as opened:
                if isinstance(content, bytes):
                    opened.write(content)
                else:
                    shutil.copyfileobj(content, opened, 1 << 20)
        os.rename(draft, name, src_dir_fd=handle, dst_dir_fd=handle)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=handle)
        raise


def is_inside(path: str) -> bool:
    """Return True if a path from a tree stays inside the folder and outside git's own folders."""
    return not any(part in ("", ".", "..") or is_git_directory(part) for part in path.split("/"))


@contextlib.contextmanager
def _inside(root: Root, path: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """Yield the open folder of ``path`` and the last component. Each folder is opened without following a
    link."""
    if not is_inside(path):
        raise _path_blocked(path)
    *folders, name = path.split("/")
    handle = os.dup(root) if isinstance(root, int) else os.open(root, _FOLDER)
    try:
        for folder in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o755, dir_fd=handle)
            inner = os.open(folder, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle, name
    finally:
        os.close(handle)


def _prune(root: Root, path: str) -> None:
    """Remove the empty parent folders of a removed file, as git does."""
    folder = path.rpartition("/")[0]
    while folder:
        try:
            with _inside(root, folder, make=False) as (handle, name):
                os.rmdir(name, dir_fd=handle)
        except OSError:
            return
        folder = folder.rpartition("/")[0]


def _unreadable(path: str, problem: str) -> WonderError:
    """Return FIELD_INVALID for an unreadable entry: omitting it would look like a deletion."""
    return error(
        Reason.FIELD_INVALID,
        f"'{path[:200]}' in the worktree {problem}, so the work cannot be read completely. Change its "
        "permissions or remove it.",
        field="path",
    )


def _path_blocked(path: str) -> WonderError:
    return error(
        Reason.FIELD_INVALID,
        f"'{path}' cannot be written: a file, a link or a folder is in its way. Choose another path.",
        field="path",
    )


def remove(folder: Path) -> None:
    """Delete a folder with its contents. Links are deleted, not followed.

    Commands may have left folders read-only, so each becomes writable first.
    """
    try:
        handle = os.open(folder, _FOLDER)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            folder.unlink()
        return
    try:
        _remove_contents(handle)
    finally:
        os.close(handle)
    folder.rmdir()


def _remove_contents(handle: int) -> None:
    with contextlib.suppress(OSError):
        os.fchmod(handle, 0o700)
    with os.scandir(handle) as listing:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    for name, is_folder in names:
        if is_folder:
            with contextlib.suppress(OSError):
                os.chmod(name, 0o700, dir_fd=handle)
            inner = os.open(name, _FOLDER, dir_fd=handle)
            try:
                _remove_contents(inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=handle)
        else:
            os.unlink(name, dir_fd=handle)
