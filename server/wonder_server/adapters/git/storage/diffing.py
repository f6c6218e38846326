"""Differences between two trees, file by file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.adapters.git.storage.bare_repository import EMPTY_TREE, BareRepository
from wonder_server.adapters.git.storage.command import RunOptions
from wonder_server.adapters.git.storage.merging import merge_base
from wonder_server.ports.repositories import Diff, FileDiff

MAX_FILES: Final = 5_000
_CHANGES: Final = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "T": "modified"}
_DIFF_OPTIONS: Final = ("-r", "-M", "-l1000", "--no-ext-diff", "--no-textconv", "--no-color")


def diff(bare: BareRepository, base: str, at: str, paths: Sequence[str], max_bytes: int) -> Diff:
    """Return the differences between two commits or trees; see the port."""
    before, now = bare.resolve(base), bare.resolve(at)
    if before and now:
        kinds = {bare.git.run(bare.folder, "cat-file", "-t", each).text for each in (before, now)}
        if kinds == {"commit"}:
            before = merge_base(bare, before, now)
    if not before and not now:
        return Diff()
    trees = (before or EMPTY_TREE, now or EMPTY_TREE)
    listed = _list_changes(bare, trees, paths)
    counts = _line_counts(bare, trees, paths)
    patches, is_cut = _patches(bare, trees, paths, max_bytes)
    truncated = is_cut or len(listed) > MAX_FILES
    found = []
    for number, (change, old, path) in enumerate(listed[:MAX_FILES]):
        added, removed = counts.get(path, (0, 0))
        patch = patches[number] if number < len(patches) else ""
        found.append(
            FileDiff(path=path, old_path=old, change=change, additions=added, deletions=removed, patch=patch)
        )
    return Diff(base=before, files=tuple(found), truncated=truncated)


def _list_changes(
    bare: BareRepository, trees: tuple[str, str], paths: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Return change, old path (of a renamed file) and path of each file."""
    out = bare.git.run(
        bare.folder, "diff-tree", *_DIFF_OPTIONS, "-z", "--name-status", *trees, "--", *paths
    ).out
    parts = iter(out.decode("utf-8", "replace").split("\0"))
    found = []
    for status in parts:
        if status:
            old = next(parts) if status[0] == "R" else ""
            found.append((_CHANGES.get(status[0], "modified"), old, next(parts)))
    return found


def _line_counts(
    bare: BareRepository, trees: tuple[str, str], paths: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """Return the number of added and removed lines, by path."""
    out = bare.git.run(bare.folder, "diff-tree", *_DIFF_OPTIONS, "-z", "--numstat", *trees, "--", *paths).out
    parts = iter(out.decode("utf-8", "replace").split("\0"))
    found = {}
    for part in parts:
        if part:
            added, removed, path = part.split("\t", 2)
            if not path:
                next(parts)
                path = next(parts)
            found[path] = (int(added) if added.isdigit() else 0, int(removed) if removed.isdigit() else 0)
    return found


def _patches(
    bare: BareRepository, trees: tuple[str, str], paths: Sequence[str], max_bytes: int
) -> tuple[list[str], bool]:
    """Return complete patches, in the order of the list, up to ``max_bytes``; and True if some are
    missing."""
    output = bare.git.run(
        bare.folder, "diff-tree", *_DIFF_OPTIONS, "--patch", "--full-index", *trees, "--", *paths,
        options=RunOptions(max_bytes=max_bytes, may_truncate=True),
    )  # fmt: skip
    pieces = output.out.decode("utf-8", "replace").split("\ndiff --git ")
    if output.is_truncated:
        pieces.pop()  # The last piece may be incomplete.
    return [_hunks(piece) for piece in pieces], output.is_truncated


def _hunks(piece: str) -> str:
    """Return a patch from its first hunk on; "" for a binary file."""
    at = piece.find("\n@@ ")
    return piece[at + 1 :].rstrip("\n") + "\n" if at >= 0 else ""
