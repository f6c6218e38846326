"""What is in the way of a merge, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wonder_sdk.cli.terminal import Terminal

if TYPE_CHECKING:
    from wonder_sdk import v1

_KINDS = {
    "CONTENT": "both changed the same lines",
    "BOTH_ADDED": "both added it",
    "DELETED": "one changed what the other deleted",
    "BINARY": "both changed it, and it is no text",
}


def show_conflicts(terminal: Terminal, conflicts: Sequence[v1.MergeConflict], target: str) -> int:
    """Name each file and what happened to it; 1, the exit code of a merge that was not made."""
    terminal.line(f"nothing was merged: {len(conflicts)} in conflict with {target}", "bold")
    for conflict in conflicts:
        name = conflict.kind.name or ""
        terminal.line(f"  {conflict.path}: {_KINDS.get(name, name.lower())}")
    return 1
