"""Trees of git as values: parsed, changed and written without a process per step.

`Objects` reads the objects for a group of changes with one process and writes the new ones with one.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from wonder_server.adapters.git.storage.bare_repository import BareRepository
from wonder_server.adapters.git.storage.command import RepositoryDamagedError, RunOptions

FOLDER: Final = "40000"
_TYPES: Final = {"commit": 1, "tree": 2, "blob": 3}
_MAX_LOOSE: Final = 16
"""Up to this number, new objects become files of their own, each with an fsync. More become one pack, with
two."""

_MAX_PACKS: Final = 40
"""From this number on, packs are merged: each lookup of an object searches them one by one."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a tree. ``mode`` has git's form: ``40000`` for a folder."""

    mode: str
    id: str


Tree = Mapping[bytes, TreeEntry]


def object_id(kind: str, content: bytes) -> str:
    """Return the id that git gives to an object."""
    return hashlib.sha1(
        b"%s %d\0" % (kind.encode(), len(content)) + content, usedforsecurity=False
    ).hexdigest()


class Objects:
    """Objects of one repository: existing ones, and new ones that `flush` writes."""

    def __init__(self, bare: BareRepository) -> None:
        self._bare = bare
        self._trees: dict[str, Tree] = {}
        self._new: dict[str, tuple[str, bytes]] = {}

    def preload(self, commit: str, paths: Iterable[str]) -> str:
        """Read the commit's tree and the folders on the way to ``paths`` at once. Return the tree's id."""
        folders = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
        names = [f"{commit}^{{tree}}", *(f"{commit}:{folder}" for folder in sorted(folders))]
        found = self._bare.batch(names)
        for object_id, kind, content in found:
            if kind == "tree":
                self._trees[object_id] = _parse_tree(content)
        if not found or found[0][1] != "tree":
            raise RepositoryDamagedError(f"the tree of the commit {commit} is missing")
        return found[0][0]

    def tree(self, tree_id: str) -> Tree:
        """Return a tree; "" is the empty one. Raises `RepositoryDamagedError` if it is missing."""
        if not tree_id:
            return {}
        if tree_id not in self._trees:
            (found,) = self._bare.objects([tree_id], "tree")
            self._trees[tree_id] = _parse_tree(found)
        return self._trees[tree_id]

    def add(self, kind: str, content: bytes) -> str:
        """Add a new object for `flush`. Return its id."""
        added = object_id(kind, content)
        self._new[added] = (kind, content)
        return added

    def at(self, tree_id: str, path: str) -> TreeEntry | None:
        """Return the entry at a path; None if it is missing or a file takes the place of a parent folder."""
        leaf: TreeEntry | None = TreeEntry(FOLDER, tree_id)
        for part in path.encode().split(b"/"):
            if leaf is None or leaf.mode != FOLDER:
                return None
            leaf = self.tree(leaf.id).get(part)
        return leaf

    def with_entry(self, tree_id: str, path: str, leaf: TreeEntry | None) -> str:
        """Return the id of the tree with ``leaf`` at ``path``. None removes the entry and its empty folders.

        The result is "" if the tree becomes empty.
        """
        return self._with_entry(tree_id, path.encode().split(b"/"), leaf)

    def _with_entry(self, tree_id: str, parts: list[bytes], leaf: TreeEntry | None) -> str:
        entries = dict(self.tree(tree_id))
        name = parts[0]
        if len(parts) > 1:
            inner = entries.get(name)
            below = self._with_entry(inner.id if inner and inner.mode == FOLDER else "", parts[1:], leaf)
            leaf = TreeEntry(FOLDER, below) if below else None
        if leaf is None:
            entries.pop(name, None)
        else:
            entries[name] = leaf
        if not entries:
            return ""
        new_id = self.add("tree", _serialize_tree(entries))
        self._trees[new_id] = entries
        return new_id

    def flush(self) -> None:
        """Write new objects; they are on disk when this returns."""
        if not self._new:
            return
        packed = bytearray(b"PACK\0\0\0\2" + len(self._new).to_bytes(4, "big"))
        for kind, content in self._new.values():
            packed += _head(_TYPES[kind], len(content)) + zlib.compress(content, 1)
        packed += hashlib.sha1(packed, usedforsecurity=False).digest()
        git, folder = self._bare.git, self._bare.folder
        if len(self._new) <= _MAX_LOOSE:
            git.run(folder, "unpack-objects", "-q", options=RunOptions(input=bytes(packed)))
        else:
            git.run(folder, "index-pack", "--stdin", options=RunOptions(input=bytes(packed)))
            if sum(1 for _ in (folder / "objects" / "pack").glob("*.pack")) >= _MAX_PACKS:
                git.run(folder, "repack", "--geometric=2", "-d", "-q", options=RunOptions(seconds=600.0))
        self._new.clear()


def _parse_tree(content: bytes) -> Tree:
    entries, at = dict[bytes, TreeEntry](), 0
    while at < len(content):
        end = content.find(b"\0", at)
        mode, space, name = content[at:end].partition(b" ")
        at = end + 21
        if end < 0 or not space or at > len(content):
            raise RepositoryDamagedError("a tree cannot be read")
        entries[name] = TreeEntry(mode.decode("ascii", "replace"), content[end + 1 : at].hex())
    return entries


def _serialize_tree(entries: Tree) -> bytes:
    """Serialize a tree. git sorts folders as if their names ended with a slash."""
    ordered = sorted(entries.items(), key=lambda each: each[0] + (b"/" if each[1].mode == FOLDER else b""))
    return b"".join(
        b"%s %s\0%s" % (leaf.mode.encode(), name, bytes.fromhex(leaf.id)) for name, leaf in ordered
    )


def _head(number: int, size: int) -> bytes:
    """Return the header of an object in a pack: type and size, seven bits at a time after the first four."""
    byte, size = (number << 4) | (size & 15), size >> 4
    out = bytearray()
    while size:
        out.append(byte | 128)
        byte, size = size & 127, size >> 7
    out.append(byte)
    return bytes(out)
