"""Merge flags, and the presentation of merge conflicts."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared.terminal import Terminal
from wonder_sdk.cli.shared.text_summary import counted

if TYPE_CHECKING:
    from wonder_sdk import v1

_KINDS = {
    "CONTENT": "both changed the same lines",
    "BOTH_ADDED": "both added the file",
    "DELETED": "one side changed the file, the other deleted it",
    "BINARY": "both changed this binary file",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that both kinds of merge take."""
    parser.add_argument("--check", action="store_true", help="Check for conflicts without merging.")
    parser.add_argument("--show", action="store_true", help="Show the texts of files in conflict.")
    parser.add_argument(
        "--resolve",
        action="append",
        default=[],
        type=_resolution,
        metavar="PATH=FILE",
        help="Set the content of a file in conflict to the local FILE, or delete it if FILE is empty; "
        "repeatable.",
    )


def resolutions(arguments: argparse.Namespace) -> dict[str, bytes | None]:
    """Return the new content of each resolved file. Raises OSError for a file that cannot be read."""
    given: list[tuple[str, Path | None]] = arguments.resolve
    return {path: file.read_bytes() if file is not None else None for path, file in given}


def show_conflicts(
    terminal: Terminal,
    arguments: argparse.Namespace,
    conflicts: Sequence[v1.MergeConflict],
    *,
    source: str,
    target: str,
    again: Sequence[str],
) -> int:
    """Print each conflict and the commands to resolve them, and return 1, the exit code of a failed merge.

    ``again`` is the merge command that the printed commands extend.
    """
    outcome = "cannot be merged" if arguments.check else "nothing was merged"
    terminal.line(f"{outcome}: {counted(len(conflicts), 'file')} in conflict with {target}", "bold")
    for conflict in conflicts:
        name = conflict.kind.name or ""
        terminal.line(f"  {conflict.path}: {_KINDS.get(name, name.lower())}")
        if arguments.show:
            _print_versions(terminal, conflict, source, target)
    command = shlex.join(again)
    if not arguments.show:
        terminal.line(f"show both sides: {command} --show", "dim")
    named = " ".join(f"--resolve {shlex.quote(each.path)}=FILE" for each in conflicts[:5])
    more = " …" if len(conflicts) > 5 else ""
    terminal.line(f"resolve all conflicts: {command} {named}{more}", "dim")
    return 1


def _print_versions(terminal: Terminal, conflict: v1.MergeConflict, source: str, target: str) -> None:
    if conflict.truncated:
        terminal.line("    the texts are too long to show", "dim")
        return
    sides = (("merge base", conflict.base), (target, conflict.ours), (source, conflict.theirs))
    for side, text in sides:
        terminal.line(f"  --- {conflict.path}, {side}{'' if text else ': empty'}", "cyan")
        for line in text.splitlines():
            terminal.line(line)


def _resolution(text: str) -> tuple[str, Path | None]:
    path, equals, file = text.rpartition("=")
    if not path or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not PATH=FILE")
    return path, Path(file) if file else None
