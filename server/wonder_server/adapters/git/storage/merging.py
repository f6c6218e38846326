"""Merges without a working tree: what git would make of two branches, or what is in its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from wonder_server.adapters.git.storage import queries
from wonder_server.adapters.git.storage.bare_repository import BareRepository
from wonder_server.core.errors import Reason, error
from wonder_server.core.frozen import replace
from wonder_server.ports.repositories import Change, Conflict

MAX_TEXT_BYTES: Final = 256 << 10
"""Bytes of one text of a conflict."""

MAX_TEXTS_BYTES: Final = 2 << 20
"""Bytes of all texts of one merge's conflicts."""


def merge_trees(
    bare: BareRepository, ours: str, theirs: str
) -> tuple[str, tuple[Conflict, ...], Mapping[str, str]]:
    """The tree that two commits make together, and the files in which they are in each other's way; then the
    tree has the conflicts in it. At last, by path, where in that tree files are that gave way to a folder."""
    said = bare.git.run(
        bare.folder, "-c", "merge.conflictStyle=merge", "merge-tree", "--write-tree", "-z",
        "--allow-unrelated-histories", "--messages", ours, theirs, ok_codes=(0, 1),
    )  # fmt: skip
    tree, _, rest = said.out.partition(b"\0")
    if said.code == 0:
        return tree.decode().strip(), (), {}
    listing, _, messages = rest.partition(b"\0\0")
    stages: dict[str, dict[int, str]] = {}
    for line in listing.split(b"\0"):
        head, tab, path = line.partition(b"\t")
        if tab:
            _, blob, stage = head.split(b" ")
            stages.setdefault(path.decode("utf-8", "replace"), {})[int(stage)] = blob.decode()
    moved = {
        true: made_up
        for true, made_up in _renamed_files(messages)
        if made_up in stages and true not in stages
    }
    for true, made_up in moved.items():
        stages[true] = stages.pop(made_up)
    found = [_conflict(bare, path, found) for path, found in sorted(stages.items())]
    if not found:
        # Such as a file in the way of a folder: git names it only in words.
        found = [Conflict(path=path, kind="content") for path in _conflicting_paths(messages)]
    return tree.decode().strip(), _limit_texts(found), moved


def merge_with_resolutions(
    bare: BareRepository, ours: str, theirs: str, resolutions: Sequence[Change]
) -> tuple[str, tuple[Conflict, ...]]:
    """The same, ``ours`` being nothing yet perhaps, with what ``resolutions`` say of files in conflict, if
    they say it of all of them. FIELD_INVALID if they say it of another."""
    moved: Mapping[str, str] = {}
    if ours:
        tree, conflicts, moved = merge_trees(bare, ours, theirs)
    else:
        tree, conflicts = bare.commits([theirs])[0].tree, ()
    paths = {conflict.path for conflict in conflicts}
    for number, each in enumerate(resolutions):
        if each.path not in paths:
            raise error(
                Reason.FIELD_INVALID,
                f"'{each.path}' is not in conflict: resolve what the newest answer names, and nothing else.",
                field=f"resolutions[{number}].path",
            )
        if each.path in moved and each.content is not None:
            raise error(
                Reason.FIELD_INVALID,
                f"'{each.path}' is a file on the one side and a folder on the other: delete the file, and "
                "keep its content under another path.",
                field=f"resolutions[{number}].content",
            )
    if not conflicts or len(paths) > len(resolutions):
        return tree, conflicts
    modes = {entry.path: entry.mode for entry in queries.entries(bare, tree, sorted(paths))}
    contents = [bare.write_object(each.content) if each.content is not None else "" for each in resolutions]
    entries = [
        (modes.get(e.path, e.mode), blob, moved.get(e.path, e.path))
        for e, blob in zip(resolutions, contents, strict=True)
    ]
    return bare.tree_with(tree, entries), ()


def is_ancestor(bare: BareRepository, older: str, newer: str) -> bool:
    """Whether all of ``older`` is in ``newer`` already."""
    return bare.git.run(bare.folder, "merge-base", "--is-ancestor", older, newer, ok_codes=(0, 1)).code == 0


def merge_base(bare: BareRepository, one: str, other: str) -> str:
    """The commit from which both came; empty if there is none."""
    said = bare.git.run(bare.folder, "merge-base", one, other, ok_codes=(0, 1))
    return said.text.split()[0] if said.text else ""


def _parse_messages(messages: bytes) -> Iterator[tuple[str, list[str]]]:
    """Kind and paths of each of the ``count\\0path\\0…kind\\0text\\0`` messages."""
    parts = iter(messages.lstrip(b"\0").split(b"\0"))
    for count in parts:
        if not count.isdigit():
            break
        paths = [next(parts, b"").decode("utf-8", "replace") for _ in range(int(count))]
        kind, _ = next(parts, b""), next(parts, b"")
        yield kind.decode("utf-8", "replace"), paths


def _conflicting_paths(messages: bytes) -> list[str]:
    """Paths that are in conflict."""
    return sorted(
        {path for kind, paths in _parse_messages(messages) if kind.startswith("CONFLICT") for path in paths}
    )


def _renamed_files(messages: bytes) -> Iterator[tuple[str, str]]:
    """Files where the other side has a folder, and the name by which git keeps them in the tree:
    ``(path, path~side)``."""
    for kind, paths in _parse_messages(messages):
        if kind == "CONFLICT (file/directory)" and len(paths) == 2 and paths[0].startswith(f"{paths[1]}~"):
            yield paths[1], paths[0]


def _conflict(bare: BareRepository, path: str, stages: Mapping[int, str]) -> Conflict:
    texts = {stage: _text(bare, blob) for stage, blob in stages.items()}
    if any(text is None for text in texts.values()):
        kind = "binary"
    elif 2 not in stages or 3 not in stages:
        kind = "deleted" if 1 in stages else "both_added"
    else:
        kind = "content" if 1 in stages else "both_added"
    too_long = any(text is not None and len(text.encode()) > MAX_TEXT_BYTES for text in texts.values())
    if kind == "binary" or too_long:
        return Conflict(path=path, kind=kind, truncated=too_long)
    return Conflict(
        path=path,
        kind=kind,
        base=texts.get(1) or "",
        ours=texts.get(2) or "",
        theirs=texts.get(3) or "",
    )


def _text(bare: BareRepository, blob: str) -> str | None:
    """A content as text, one byte more than is shown; None if it is none."""
    said = bare.git.run(
        bare.folder, "cat-file", "blob", blob, max_bytes=MAX_TEXT_BYTES, may_truncate=True, ok_codes=(0, 128)
    )
    if b"\0" in said.out:
        return None
    text = said.out.decode("utf-8", "replace")
    return text + "…" if said.is_truncated else text


def _limit_texts(found: list[Conflict]) -> tuple[Conflict, ...]:
    """The conflicts with as many of their texts as one answer holds."""
    left, kept = MAX_TEXTS_BYTES, []
    for conflict in found:
        left -= len(conflict.base.encode()) + len(conflict.ours.encode()) + len(conflict.theirs.encode())
        kept.append(conflict if left >= 0 else replace(conflict, base="", ours="", theirs="", truncated=True))
    return tuple(kept)
