"""Queries of a repository: files, history, search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from wonder_server.adapters.git.storage.bare_repository import EMPTY_TREE, BareRepository
from wonder_server.adapters.git.storage.command import RepositoryDamagedError, RunOptions
from wonder_server.core.frozen import replace
from wonder_server.ports.repositories import Commit, File, Match, SearchResult

MAX_LINE_LENGTH: Final = 500
MAX_PATHS: Final = 1_000
GREP_BYTES: Final = 8 << 20
FILES: Final = ("100644", "100755", "120000")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a listing."""

    mode: str
    id: str
    path: str


def entries(
    bare: BareRepository, at: str, paths: Sequence[str] = (), *, deep: bool = True
) -> Iterator[Entry]:
    """Yield the entries below a commit or tree in byte order of their paths; only ``paths`` if given."""
    mode_option = ("-r",) if deep else ("-t",)
    out = bare.git.run(bare.folder, "ls-tree", *mode_option, "-z", "--full-tree", at, "--", *paths).out
    for line in out.split(b"\0"):
        if line:
            head, _, path = line.partition(b"\t")
            mode, _, blob = head.split(b" ")
            yield Entry(mode.decode(), blob.decode(), path.decode("utf-8", "surrogateescape"))


def files(bare: BareRepository, at: str, prefix: str, after: str, limit: int) -> list[File]:
    """Return files; see the port. Paths that are not UTF-8 are omitted, since no request could name them."""
    tree = bare.resolve(at)
    if not tree:
        return []
    folder = prefix.rpartition("/")[0]
    found = [
        entry
        for entry in entries(bare, tree, (f"{folder}/",) if folder else ())
        if entry.mode in FILES and entry.path.startswith(prefix) and is_text(entry.path)
    ]
    found.sort(key=lambda entry: entry.path)
    if after:
        found = [entry for entry in found if entry.path > after]
    return with_sizes(bare, found[:limit] if limit else found)


def with_sizes(bare: BareRepository, found: Sequence[Entry]) -> list[File]:
    """Return the entries with the sizes of their contents.

    An unreadable content is marked as damaged, with size 0, so that it does not hide the other files.
    """
    wanted = "".join(f"{entry.id}\n" for entry in found).encode()
    options = RunOptions(input=wanted, allow_errors=True)
    sizes = bare.git.run(bare.folder, "cat-file", "--batch-check=%(objectsize)", options=options).text.split(
        "\n"
    )
    if found and len(sizes) != len(found):
        raise RepositoryDamagedError("git ended in the middle of the sizes")
    return [
        File(
            path=entry.path,
            id=entry.id,
            mode=entry.mode,
            size=int(size) if size.isdigit() else 0,
            is_damaged=not size.isdigit(),
        )
        for entry, size in zip(found, sizes, strict=False)
    ]


def entry_at(bare: BareRepository, tree: str, path: str) -> Entry | None:
    """Return the entry at exactly this path, folders (mode ``040000``) included; None if there is none."""
    return next((e for e in entries(bare, tree, (path,), deep=False) if e.path == path), None)


def read(bare: BareRepository, at: str, path: str, max_bytes: int) -> File | None:
    """Return one file with its content; see the port."""
    tree = bare.resolve(at)
    entry = entry_at(bare, tree, path) if tree else None
    if entry is None or entry.mode not in FILES:
        return None
    content = bare.blob(entry.id, max_bytes)
    return File(path=path, id=entry.id, mode=entry.mode, size=len(content), content=content)


def has_branches(bare: BareRepository, below: str) -> bool:
    """Return True if there are branches named ``<below>/…``."""
    return bool(bare.git.run(bare.folder, "for-each-ref", "--count=1", f"refs/heads/{below}/").text)


def is_text(path: str) -> bool:
    """Return True if a path from git is valid UTF-8."""
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)


# --- history --------------------------------------------------------------------------------------


def history(
    bare: BareRepository, at: str, paths: Sequence[str], skip: int, limit: int, *, current_only: bool = False
) -> list[Commit]:
    """Return commits, newest first; see the port."""
    head = bare.resolve(at)
    if not head:
        return []
    # By default git follows only the parent of a merge that has the same files, and omits the merge.
    # --simplify-merges follows all parents, and lists a merge whose sides both changed the files;
    # --show-pulls also lists a merge that changed the files of its first parent.
    sides = [] if current_only or not paths else ["--simplify-merges", "--show-pulls"]
    listed = bare.git.run(
        bare.folder, "rev-list", "--date-order", *sides, f"--skip={skip}", f"--max-count={limit}", head,
        "--", *paths,
    )  # fmt: skip
    return with_paths(bare, bare.commits(listed.text.split()))


def with_paths(bare: BareRepository, commits: Sequence[Commit]) -> list[Commit]:
    """Return the commits with the paths that each changed against its first parent."""
    pairs = "".join(f"{c.id} {c.parents[0]}\n" if c.parents else f"{c.id}\n" for c in commits).encode()
    if not pairs:
        return []
    options = RunOptions(input=pairs)
    out = bare.git.run(
        bare.folder, "diff-tree", "--stdin", "-r", "-z", "--raw", "--root", "--no-renames", options=options
    ).out
    changed: dict[str, list[str]] = {}
    current: list[str] = []
    parts = iter(out.split(b"\0"))
    for part in parts:
        if part.startswith(b":"):
            path = next(parts, b"").decode("utf-8", "replace")
            if len(current) < MAX_PATHS:
                current.append(path)
        elif part.strip():
            current = changed.setdefault(part.decode().split()[0], [])
    return [replace(commit, paths=tuple(changed.get(commit.id, ()))) for commit in commits]


# --- search ---------------------------------------------------------------------------------------


def search(bare: BareRepository, at: str, words: Sequence[str], prefix: str, limit: int) -> SearchResult:
    """Return lines and paths that contain all of ``words``; see the port."""
    tree = bare.resolve(at)
    if not tree or not words or tree == EMPTY_TREE:
        return SearchResult()
    folder = prefix.rpartition("/")[0]
    within = (f"{folder}/",) if folder else ()
    lowered = [word.casefold() for word in words]
    found = [
        Match(path=entry.path, line=0, text=entry.path[:MAX_LINE_LENGTH])
        for entry in entries(bare, tree, within)
        if entry.mode in FILES
        and entry.path.startswith(prefix)
        and is_text(entry.path)
        and all(word in entry.path.casefold() for word in lowered)
    ]
    wanted = [part for word in words for part in ("--and", "-e", word)][1:]
    output = bare.git.run(
        bare.folder, "grep", "-I", "-n", "-i", "-F", "-z", "--full-name", "--no-color", "--no-textconv",
        f"--max-count={limit + 1}", *wanted, tree, "--", *within,
        options=RunOptions(ok_codes=(0, 1), max_bytes=GREP_BYTES, may_truncate=True),
    )  # fmt: skip
    lines = output.out.split(b"\n")
    for line in lines[:-1] if output.is_truncated else lines:
        if match := _parse_match(line[len(tree) + 1 :], prefix):
            found.append(match)
    found.sort(key=lambda match: (match.path, match.line))
    return SearchResult(matches=tuple(found[:limit]), truncated=output.is_truncated or len(found) > limit)


def _parse_match(line: bytes, prefix: str) -> Match | None:
    name, _, rest = line.partition(b"\0")
    number, _, text = rest.replace(b"\0", b":", 1).partition(b":")
    path = name.decode("utf-8", "surrogateescape")
    if not number.isdigit() or not path.startswith(prefix) or not is_text(path):
        return None
    return Match(path=path, line=int(number), text=text.decode("utf-8", "replace")[:MAX_LINE_LENGTH])
