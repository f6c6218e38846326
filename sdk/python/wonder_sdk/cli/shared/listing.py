"""Rows of a list: aligned columns on a terminal, separated by tabs in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from wonder_sdk.cli.shared.terminal import Terminal


def show(terminal: Terminal, rows: Iterable[Sequence[str]]) -> None:
    """Print one line for each row."""
    listed = [tuple(" ".join(cell.split()) for cell in row) for row in rows]
    for row in aligned(listed) if terminal.is_interactive else listed:
        terminal.line(("  " if terminal.is_interactive else "\t").join(row).rstrip())


def aligned(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Pad the cells to the width of their column, except the last column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1:] = [0]
    return [tuple(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def local(when: datetime | None) -> str:
    """Format a time in the local time zone, to the second."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S") if when else ""
