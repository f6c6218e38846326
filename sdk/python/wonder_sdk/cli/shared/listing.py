"""Rows of a list: aligned columns on a terminal, separated by tabs in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.methods.paging import Request, Response


def show(
    terminal: Terminal, rows: Iterable[Sequence[str]], *, nothing: str, headings: Sequence[str] = ()
) -> None:
    """Print one line for each row, and on a terminal the ``headings`` above them.

    Without rows print ``nothing`` on stderr: a program gets an empty stdout.
    """
    listed = [tuple(" ".join(cell.split()) for cell in row) for row in rows]
    if not listed:
        Terminal(sys.stderr).line(nothing, "dim")
    elif headings and terminal.is_interactive:
        listed.insert(0, tuple(headings))
    for row in aligned(listed) if terminal.is_interactive else listed:
        terminal.line(("  " if terminal.is_interactive else "\t").join(row).rstrip())


def aligned(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Pad the cells to the width of their column, except the last column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1:] = [0]
    return [tuple(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def pages(list_page: Callable[[Request], Response], request: Request) -> Iterator[Response]:
    """Yield the page that ``request`` names and those after it. The request changes."""
    while True:
        page = list_page(request)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def local(when: datetime | None) -> str:
    """Format a time in the local time zone, to the second."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S") if when else ""
