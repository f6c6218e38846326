"""Conversion between trees of git and files of a folder. git itself never accesses the folder."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from wonder_server.adapters.git.storage.bare_repository import BareRepository
from wonder_server.adapters.git.storage.command import RunOptions
from wonder_server.adapters.git.storage.queries import FILES, Entry, entries, with_sizes
from wonder_server.adapters.git.worktree import safe_files
from wonder_server.core.errors import Reason, error
from wonder_server.ports.repositories import File

RACY_WINDOW_NS: Final = 2_000_000_000
"""A file read sooner after its last change than this may change again with the same timestamp."""

MAX_BATCH_FILES: Final = 500
MAX_BATCH_BYTES: Final = 32 << 20
"""Maximum bytes of contents in memory, or in a file beside the repository. A larger content goes through a
file."""

DEFAULT_MAX_BYTES: Final = 1 << 30
"""Maximum total bytes of the files of a worktree, unless the operator sets another limit."""

_MAX_BLOB: Final = 1 << 44


class StatCache:
    """File states of one folder with the hashes of the contents, so that unchanged files are not read
    again."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[tuple[int, ...], str]] = {}

    def id_of(self, found: safe_files.FoundFile) -> str:
        """Return the hash of the file's content if the file is unchanged, else ""."""
        fingerprint, known = self._entries.get(found.path, ((), ""))
        return known if fingerprint == found.fingerprint else ""

    def store(self, found: safe_files.FoundFile, content_id: str, read_ns: int) -> None:
        """Store the hash of a content that was read at ``read_ns``, unless the file was changed just
        before."""
        if found.changed_ns + RACY_WINDOW_NS < read_ns:
            self._entries[found.path] = (found.fingerprint, content_id)

    def retain(self, paths: Iterable[str]) -> None:
        """Drop all other paths."""
        kept = set(paths)
        self._entries = {path: entry for path, entry in self._entries.items() if path in kept}


def blob_id(content: bytes) -> str:
    """Return git's id of this content."""
    found = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    found.update(content)
    return found.hexdigest()


def snapshot(
    bare: BareRepository, root: Path, base: str, stat_cache: StatCache, max_bytes: int = DEFAULT_MAX_BYTES
) -> str:
    """Store the files in ``root`` in the repository, and return their tree.

    ``base`` is the commit or tree that the files started from, or "". Its files are included even if
    ``.gitignore`` excludes them. LIMIT_EXCEEDED above ``max_bytes``, before any file is read.
    """
    before = {entry.path: entry for entry in entries(bare, base)} if base else {}
    above = {path[:at] for path in before for at, letter in enumerate(path) if letter == "/"}
    changes, present = [], set[str]()
    listed = list(safe_files.walk(root, lambda path: path in before or path in above))
    _check_bytes([(found.size, found.path) for found in listed], max_bytes)
    with tempfile.TemporaryFile(dir=bare.folder) as stream:
        for found in listed:
            content_id = stat_cache.id_of(found)
            if not content_id:
                read_ns = time.time_ns()
                content = safe_files.read(root, found.path)
                if content is None:
                    continue  # The file was removed meanwhile.
                content_id = blob_id(content)
                _stream(stream, content)
                if stream.tell() >= MAX_BATCH_BYTES:
                    _fast_import(bare, stream)
                stat_cache.store(found, content_id, read_ns)
            present.add(found.path)
            old = before.get(found.path)
            if old is None or (old.mode, old.id) != (found.mode, content_id):
                changes.append((found.mode, content_id, found.path))
        if changes and stream.tell():
            _fast_import(bare, stream)
    stat_cache.retain(present)
    removed = [(e.mode, "", e.path) for e in before.values() if e.mode in FILES and e.path not in present]
    if not removed and not changes:
        return _tree(bare, base)
    return bare.tree_with(base, [*removed, *changes])


def _tree(bare: BareRepository, base: str) -> str:
    if not base:
        return bare.tree_with("", [])
    return bare.git.run(bare.folder, "rev-parse", "--verify", f"{base}^{{tree}}").text


def _stream(stream: IO[bytes], content: bytes) -> None:
    stream.write(b"blob\ndata %d\n" % len(content))
    stream.write(content)
    stream.write(b"\n")


def _fast_import(bare: BareRepository, stream: IO[bytes]) -> None:
    """Store all contents written to ``stream`` with one git command, and empty the stream."""
    stream.write(b"done\n")
    stream.seek(0)
    bare.git.run(bare.folder, "fast-import", "--quiet", "--done", options=RunOptions(input=stream))
    stream.seek(0)
    stream.truncate()


def _check_bytes(files: Sequence[tuple[int, str]], max_bytes: int) -> None:
    """Raise LIMIT_EXCEEDED, naming the largest files, if ``files`` (size, path) exceed ``max_bytes`` in
    total."""
    if (total := sum(size for size, _ in files)) > max_bytes:
        largest = ", ".join(f"'{path[:100]}' ({size})" for size, path in sorted(files, reverse=True)[:3])
        raise error(
            Reason.LIMIT_EXCEEDED,
            f"The files of the worktree have {total} bytes, more than {max_bytes}. The largest are {largest}."
            " Remove them, list them in .gitignore, or ask the operator to raise the setting worktree_bytes.",
            limit=str(max_bytes),
        )


# --- files from trees -----------------------------------------------------------------------------


def check_out(bare: BareRepository, tree: str, root: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
    """Write the files of a tree into the folder, byte for byte.

    LIMIT_EXCEEDED above ``max_bytes``, before any file is written.
    """
    listed = [e for e in entries(bare, tree) if e.mode in FILES and safe_files.is_inside(e.path)]
    files = with_sizes(bare, listed)
    _check_bytes([(file.size, file.path) for file in files], max_bytes)
    for batch in _batches(files):
        if len(batch) == 1:
            _write(bare, root, batch[0].path, batch[0].id, batch[0].mode)
            continue
        contents = bare.blobs([file.id for file in batch], 2 * MAX_BATCH_BYTES)
        for file in batch:
            safe_files.write(root, file.path, contents[file.id], file.mode)


def _batches(files: Iterable[File]) -> Iterator[list[File]]:
    """Group files by `MAX_BATCH_FILES` and `MAX_BATCH_BYTES`. A larger file is a group of its own."""
    batch, remaining = list[File](), MAX_BATCH_BYTES
    for file in files:
        if batch and (len(batch) == MAX_BATCH_FILES or file.size > remaining):
            yield batch
            batch, remaining = [], MAX_BATCH_BYTES
        batch.append(file)
        remaining -= file.size
    if batch:
        yield batch


def _write(bare: BareRepository, root: safe_files.Root, path: str, blob_id: str, mode: str) -> None:
    """Write one content of any length without holding it in memory."""
    with tempfile.TemporaryFile(dir=bare.folder) as stream:
        bare.blob_into(blob_id, stream, _MAX_BLOB)
        safe_files.write(root, path, stream, mode)


def apply_tree_diff(bare: BareRepository, root: safe_files.Root, old: str, new: str) -> None:
    """Change files that are as in the tree ``old`` to those of the tree ``new``.

    Files that differ from both trees were changed meanwhile and stay.
    """
    before = _files(entries(bare, old))
    after = _files(entries(bare, new))
    differing = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    # Remove files first: a folder may take the place of a removed file.
    for path in sorted(differing, key=lambda path: (path in after, path)):
        if _current(root, path) == before.get(path):
            kept = after.get(path)
            if kept:
                _write(bare, root, path, kept[1], kept[0])
            else:
                safe_files.write(root, path, None)


def conflicting_path(bare: BareRepository, root: safe_files.Root, old: str, new: str) -> str | None:
    """Return a path that differs between the trees ``old`` and ``new`` and matches neither in the folder, or
    None."""
    before, after = _files(entries(bare, old)), _files(entries(bare, new))
    for path in sorted({**before, **after}):
        wanted = (before.get(path), after.get(path))
        if wanted[0] != wanted[1] and _current(root, path) not in wanted:
            return path
    return None


def _files(listed: Iterable[Entry]) -> Mapping[str, tuple[str, str]]:
    return {
        entry.path: (entry.mode, entry.id)
        for entry in listed
        if entry.mode in FILES and safe_files.is_inside(entry.path)
    }


def _current(root: safe_files.Root, path: str) -> tuple[str, str] | None:
    found = safe_files.file_mode(root, path)
    content = safe_files.read(root, path) if found else None
    return (found, blob_id(content)) if found and content is not None else None
