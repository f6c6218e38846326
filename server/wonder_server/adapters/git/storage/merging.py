"""Merges of two commits without a working tree, and their conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from wonder_server.adapters.git.storage import queries
from wonder_server.adapters.git.storage.bare_repository import BareRepository
from wonder_server.adapters.git.storage.command import RunOptions
from wonder_server.core.errors import Reason, error
from wonder_server.core.frozen import replace
from wonder_server.ports.repositories import Change, Conflict

MAX_TEXT_BYTES: Final = 256 << 10
"""Maximum bytes of one text of a conflict."""

MAX_TEXTS_BYTES: Final = 2 << 20
"""Maximum bytes of all texts of one merge's conflicts."""
_MAY_FAIL: Final = RunOptions(ok_codes=(0, 1))


def merge_trees(
    bare: BareRepository, ours: str, theirs: str
) -> tuple[str, tuple[Conflict, ...], Mapping[str, str]]:
    """Merge two commits. Return the tree, the conflicts, and the moved files.

    With conflicts, the tree contains conflict markers. Where one side has a file and the other a folder, git
    keeps the file under another name; the moved files map its path to that name.
    """
    output = bare.git.run(
        bare.folder, "-c", "merge.conflictStyle=merge", "merge-tree", "--write-tree", "-z",
        "--allow-unrelated-histories", "--messages", ours, theirs, options=_MAY_FAIL,
    )  # fmt: skip
    tree, _, rest = output.out.partition(b"\0")
    if output.code == 0:
        return tree.decode().strip(), (), {}
    listing, _, messages = rest.partition(b"\0\0")
    stages: dict[str, dict[int, str]] = {}
    for line in listing.split(b"\0"):
        head, tab, path = line.partition(b"\t")
        if tab:
            _, blob, stage = head.split(b" ")
            stages.setdefault(path.decode("utf-8", "replace"), {})[int(stage)] = blob.decode()
    moved = {
        original: kept_as
        for original, kept_as in _renamed_files(messages)
        if kept_as in stages and original not in stages
    }
    for original, kept_as in moved.items():
        stages[original] = stages.pop(kept_as)
    found = [_conflict(bare, path, found) for path, found in sorted(stages.items())]
    if not found:
        # git names some conflicts only in messages, such as a file where the other side has a folder.
        found = [Conflict(path=path, kind="content") for path in _conflicting_paths(messages)]
    return tree.decode().strip(), _limit_texts(found), moved


def merge_with_resolutions(
    bare: BareRepository, ours: str, theirs: str, resolutions: Sequence[Change]
) -> tuple[str, tuple[Conflict, ...]]:
    """Merge two commits and apply ``resolutions`` if they resolve all conflicts. ``ours`` may be "".

    FIELD_INVALID for a resolution of a file without a conflict.
    """
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
                f"'{each.path}' is not in conflict. Resolve only the paths of the latest conflicts.",
                field=f"resolutions[{number}].path",
            )
        if each.path in moved and each.content is not None:
            raise error(
                Reason.FIELD_INVALID,
                f"'{each.path}' is a file on one side and a folder on the other. Delete the file and write "
                "its content to another path.",
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


def refuse_unneeded(resolutions: Sequence[Change]) -> None:
    """Raise FIELD_INVALID if there are resolutions, for a merge that has nothing to do."""
    if resolutions:
        raise error(
            Reason.FIELD_INVALID,
            f"'{resolutions[0].path}' is not in conflict: the target already contains the source. Merge "
            "without resolutions.",
            field="resolutions[0].path",
        )


def is_ancestor(bare: BareRepository, older: str, newer: str) -> bool:
    """Return True if ``newer`` contains ``older``."""
    output = bare.git.run(bare.folder, "merge-base", "--is-ancestor", older, newer, options=_MAY_FAIL)
    return output.code == 0


def merge_base(bare: BareRepository, one: str, other: str) -> str:
    """Return the common ancestor of two commits, or ""."""
    output = bare.git.run(bare.folder, "merge-base", one, other, options=_MAY_FAIL)
    return output.text.split()[0] if output.text else ""


def _parse_messages(messages: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield kind and paths of each message ``count\\0path\\0…kind\\0text\\0``."""
    parts = iter(messages.lstrip(b"\0").split(b"\0"))
    for count in parts:
        if not count.isdigit():
            break
        paths = [next(parts, b"").decode("utf-8", "replace") for _ in range(int(count))]
        kind, _ = next(parts, b""), next(parts, b"")
        yield kind.decode("utf-8", "replace"), paths


def _conflicting_paths(messages: bytes) -> list[str]:
    """Return the paths of all conflict messages."""
    return sorted(
        {path for kind, paths in _parse_messages(messages) if kind.startswith("CONFLICT") for path in paths}
    )


def _renamed_files(messages: bytes) -> Iterator[tuple[str, str]]:
    """Yield ``(path, path~side)`` for each file that git keeps under another name because of a folder."""
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
    """Return a content as text, ending with "…" if it is cut; None for binary content."""
    output = bare.git.run(
        bare.folder,
        "cat-file",
        "blob",
        blob,
        options=RunOptions(max_bytes=MAX_TEXT_BYTES, may_truncate=True, ok_codes=(0, 128)),
    )
    if b"\0" in output.out:
        return None
    text = output.out.decode("utf-8", "replace")
    return text + "…" if output.is_truncated else text


def _limit_texts(found: list[Conflict]) -> tuple[Conflict, ...]:
    """Drop the texts of conflicts beyond `MAX_TEXTS_BYTES`."""
    remaining, kept = MAX_TEXTS_BYTES, []
    for conflict in found:
        remaining -= len(conflict.base.encode()) + len(conflict.ours.encode()) + len(conflict.theirs.encode())
        fits = remaining >= 0
        kept.append(conflict if fits else replace(conflict, base="", ours="", theirs="", truncated=True))
    return tuple(kept)
