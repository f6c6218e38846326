"""What is in the way of a merge, for people, and what they say becomes of it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import v1

_KINDS = {
    "CONTENT": "both changed the same lines",
    "BOTH_ADDED": "both added it",
    "DELETED": "one changed what the other deleted",
    "BINARY": "both changed it, and it is no text",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that a merge of either kind takes."""
    parser.add_argument("--check", action="store_true", help="only say whether it can be merged")
    parser.add_argument("--show", action="store_true", help="of files in conflict, show the texts")
    parser.add_argument(
        "--resolve",
        action="append",
        default=[],
        type=_resolution,
        metavar="PATH=FILE",
        help="what a file in conflict becomes: FILE, on this machine; without it, it is deleted. "
        "Once for each of them",
    )


def resolutions(arguments: argparse.Namespace) -> dict[str, bytes | None]:
    """What files in conflict become. Raises OSError for a file that cannot be read."""
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
    """Name each file and what happened to it, and the way on, which begins with the command ``again``; 1, the
    exit code of a merge that was not made."""
    outcome = "cannot be merged" if arguments.check else "nothing was merged"
    terminal.line(f"{outcome}: {len(conflicts)} in conflict with {target}", "bold")
    for conflict in conflicts:
        name = conflict.kind.name or ""
        terminal.line(f"  {conflict.path}: {_KINDS.get(name, name.lower())}")
        if arguments.show:
            _print_versions(terminal, conflict, source, target)
    command = shlex.join(again)
    if not arguments.show:
        terminal.line(f"see both sides: {command} --show", "dim")
    named = " ".join(f"--resolve {shlex.quote(each.path)}=FILE" for each in conflicts[:5])
    more = " …" if len(conflicts) > 5 else ""
    terminal.line(f"say what becomes of all of them: {command} {named}{more}", "dim")
    return 1


def _print_versions(terminal: Terminal, conflict: v1.MergeConflict, source: str, target: str) -> None:
    if conflict.truncated:
        terminal.line("    its texts are too long to be shown", "dim")
        return
    sides = (("where they parted", conflict.base), (target, conflict.ours), (source, conflict.theirs))
    for where, text in sides:
        terminal.line(f"  --- {conflict.path}, {where}{'' if text else ': nothing'}", "cyan")
        for line in text.splitlines():
            terminal.line(line)


def _resolution(text: str) -> tuple[str, Path | None]:
    path, equals, file = text.rpartition("=")
    if not path or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not PATH=FILE")
    return path, Path(file) if file else None
