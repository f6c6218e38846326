"""Trees to files and files to trees, without git ever seeing the folder."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Final

from wonder_server.adapters.git import folders
from wonder_server.adapters.git.bare import Bare
from wonder_server.adapters.git.reading import FILES, Entry, entries

SETTLED_NS: Final = 2_000_000_000
"""A file that was changed so shortly before it was read may change again without looking different."""

BATCH: Final = 500
MOST: Final = 1 << 30


class Glances:
    """What files of one folder looked like when they were read, so that they need not be read again."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[tuple[int, ...], str]] = {}

    def id_of(self, found: folders.Found) -> str:
        """The hash of the file's content, if it looks as it did; else empty."""
        look, known = self._seen.get(found.path, ((), ""))
        return known if look == found.look else ""

    def keep(self, found: folders.Found, content_id: str, read_ns: int) -> None:
        if found.changed_ns + SETTLED_NS < read_ns:
            self._seen[found.path] = (found.look, content_id)

    def only(self, paths: Iterable[str]) -> None:
        """Forget all others."""
        kept = set(paths)
        self._seen = {path: seen for path, seen in self._seen.items() if path in kept}


def blob_id(content: bytes) -> str:
    """The id that git gives to this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def snapshot(bare: Bare, root: Path, base: str, glances: Glances) -> str:
    """The tree of the files in ``root``, kept in the repository. ``base`` is the commit or tree on which they
    rest, or empty: what is in it counts even if ``.gitignore`` names it."""
    before = {entry.path: entry for entry in entries(bare, base)} if base else {}
    above = {path[:at] for path in before for at, letter in enumerate(path) if letter == "/"}
    changes, there = [], set[str]()
    with tempfile.TemporaryFile() as stream:
        for found in folders.walk(root, lambda path: path in before or path in above):
            content_id = glances.id_of(found)
            if not content_id:
                read_ns = time.time_ns()
                content = folders.read(root, found.path)
                if content is None:
                    continue  # It was removed meanwhile.
                content_id = blob_id(content)
                _stream(stream, content)
                glances.keep(found, content_id, read_ns)
            there.add(found.path)
            old = before.get(found.path)
            if old is None or (old.mode, old.id) != (found.mode, content_id):
                changes.append((found.mode, content_id, found.path))
        if changes:
            _import(bare, stream)
    glances.only(there)
    gone = [(e.mode, "", e.path) for e in before.values() if e.mode in FILES and e.path not in there]
    if not gone and not changes:
        return _tree(bare, base)
    return bare.tree_with(base, [*gone, *changes])


def _tree(bare: Bare, base: str) -> str:
    if not base:
        return bare.tree_with("", [])
    return bare.git.run(bare.folder, "rev-parse", "--verify", f"{base}^{{tree}}").text


def _stream(stream: IO[bytes], content: bytes) -> None:
    stream.write(b"blob\ndata %d\n" % len(content) + content + b"\n")


def _import(bare: Bare, stream: IO[bytes]) -> None:
    """Keep all that was written into ``stream``, with one run of git."""
    stream.write(b"done\n")
    stream.seek(0)
    bare.git.run(bare.folder, "fast-import", "--quiet", "--done", input=stream)


# --- files from trees -----------------------------------------------------------------------------


def check_out(bare: Bare, tree: str, root: Path) -> None:
    """Write the files of a tree into the folder, byte for byte as they are kept."""
    listed = (e for e in entries(bare, tree) if e.mode in FILES and folders.is_inside(e.path))
    while batch := list(islice(listed, BATCH)):
        contents = bare.blobs([entry.id for entry in batch], MOST)
        for entry in batch:
            folders.write(root, entry.path, contents[entry.id], entry.mode)


def apply(bare: Bare, root: folders.Root, old: str, new: str) -> None:
    """Make the files that are as in the tree ``old`` those of the tree ``new``. What is different from both
    has been changed meanwhile and is left as it is."""
    before = _files(entries(bare, old))
    after = _files(entries(bare, new))
    differing = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    # What goes first makes room for what comes.
    for path in sorted(differing, key=lambda path: (path in after, path)):
        if _now(root, path) == before.get(path):
            kept = after.get(path)
            folders.write(root, path, bare.blob(kept[1], MOST) if kept else None, kept[0] if kept else "")


def different(bare: Bare, root: folders.Root, old: str, new: str) -> str | None:
    """Return a path that differs between the trees ``old`` and ``new`` and in the folder is as in neither."""
    before, after = _files(entries(bare, old)), _files(entries(bare, new))
    for path in sorted({**before, **after}):
        wanted = (before.get(path), after.get(path))
        if wanted[0] != wanted[1] and _now(root, path) not in wanted:
            return path
    return None


def _files(listed: Iterable[Entry]) -> Mapping[str, tuple[str, str]]:
    return {
        entry.path: (entry.mode, entry.id)
        for entry in listed
        if entry.mode in FILES and folders.is_inside(entry.path)
    }


def _now(root: folders.Root, path: str) -> tuple[str, str] | None:
    found = folders.look(root, path)
    content = folders.read(root, path) if found else None
    return (found, blob_id(content)) if found and content is not None else None
