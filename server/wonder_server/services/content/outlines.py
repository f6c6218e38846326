"""Outlines: the files of a repository in a few lines, for agents that request parts of it (feature D7).

An outline is built on first use and cached until a change of its files: turns read it more often than
agents write."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from wonder_server.core.frozen import Value
from wonder_server.ports.repositories import File

MAX_LINES: Final = 40
MAX_CHARACTERS: Final = 4_000
"""Maximum length of all lines together. An outline has at least one line."""

MAX_FILES: Final = 50_000
"""Maximum number of files to count."""

RETRY_S: Final = 30.0
"""Time after which an unavailable listing is requested again."""

_MAX_CACHED: Final = 256


class Line(Value, frozen=True, kw_only=True):
    """A file, or a folder (its path ends in ``/``) with the number of all ``files`` below it."""

    path: str
    files: int = 0
    size: int = 0

    @property
    def text(self) -> str:
        """Text for a model, without line breaks and unprintable characters."""
        shown = "".join(each if each.isprintable() else "?" for each in self.path)
        if not self.files:
            return shown
        return f"{shown} ({self.files} file{'s' if self.files > 1 else ''})"


class Outline(Value, frozen=True, kw_only=True):
    """Number of ``files`` (a minimum if ``truncated``), and ``lines`` by path, without ``omitted_lines``
    lines."""

    files: int = 0
    truncated: bool = False
    lines: tuple[Line, ...] = ()
    omitted_lines: int = 0


def outline(files: Sequence[File], max_lines: int = MAX_LINES) -> Outline:
    """Return the outline of ``files``, which are sorted by path. Expand folders, those with the fewest files
    first, within ``max_lines``."""
    truncated = len(files) > MAX_FILES
    files = files[:MAX_FILES]
    closed = [(len(inside), path, inside) for path, inside in _children(files, "")]
    count, shown = len(closed), list[Line]()
    heapq.heapify(closed)
    while closed:
        size, path, inside = heapq.heappop(closed)
        if not path.endswith("/"):
            shown.append(Line(path=path, size=inside[0].size))
            continue
        parts = list(_children(inside, path)) if size <= max_lines or count < max_lines else []
        if not parts or count - 1 + len(parts) > max_lines:
            shown.append(Line(path=path, files=size))
            continue
        count += len(parts) - 1
        for part, below in parts:
            heapq.heappush(closed, (len(below), part, below))
    # If there are still too many lines, keep folders before files: they represent more files.
    shown.sort(key=lambda line: (not line.files, line.path))
    kept = shown[: _fitting_count(shown, max_lines)]
    kept.sort(key=lambda line: line.path)
    return Outline(
        files=len(files), truncated=truncated, lines=tuple(kept), omitted_lines=len(shown) - len(kept)
    )


def _children(files: Sequence[File], folder: str) -> Iterator[tuple[str, Sequence[File]]]:
    """Yield the files and folders directly in ``folder``, each with its files."""
    begin = len(folder)
    for name, group in itertools.groupby(files, lambda file: "".join(file.path[begin:].partition("/")[:2])):
        yield folder + name, list(group)


def _fitting_count(lines: Sequence[Line], max_lines: int) -> int:
    """Return the number of leading lines that fit into `MAX_CHARACTERS`."""
    remaining = MAX_CHARACTERS
    for count, line in enumerate(lines[:max_lines]):
        remaining -= len(line.path)
        if count and remaining < 0:
            return count
    return min(len(lines), max_lines)


class _Builder:
    """An outline being built; ``is_valid`` until a change of its files."""

    def __init__(self) -> None:
        self.is_valid = True


class Outlines:
    """Cache of outlines, by owner and name."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, str], tuple[float, Outline | None]] = {}
        self._builders: dict[str, set[_Builder]] = {}

    async def get(
        self,
        owner: str,
        name: str,
        files: Callable[[], Awaitable[Sequence[File] | None]],
        *,
        max_lines: int = MAX_LINES,
        max_age_s: float = float("inf"),
    ) -> Outline | None:
        """Return the outline of the files that ``files`` returns, from the cache if it is valid and at most
        ``max_age_s`` seconds old. None if ``files`` returns None."""
        found = self._cache.get((owner, name))
        if found is not None and time.monotonic() < found[0]:
            return found[1]
        builder = _Builder()
        self._builders.setdefault(owner, set()).add(builder)
        try:
            listed = await files()
            made = await asyncio.to_thread(outline, listed, max_lines) if listed is not None else None
        finally:
            self._builders[owner].discard(builder)
            if not self._builders[owner]:
                del self._builders[owner]
        if builder.is_valid:
            self._cache.pop((owner, name), None)
            while len(self._cache) >= _MAX_CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[owner, name] = (
                time.monotonic() + (max_age_s if listed is not None else RETRY_S),
                made,
            )
        return made

    def invalidate(self, *owners: str) -> None:
        """Invalidate the outlines of these owners."""
        for owner in owners:
            for builder in self._builders.get(owner, ()):
                builder.is_valid = False
        for key in [key for key in self._cache if key[0] in owners]:
            del self._cache[key]

    @contextmanager
    def invalidating(self, *owners: str) -> Iterator[None]:
        """Invalidate the outlines of these owners at the end of the block, also after an error."""
        try:
            yield
        finally:
            self.invalidate(*owners)
