"""The confirmation of commands that delete."""

from __future__ import annotations

import argparse
import sys

from wonder_sdk.cli.shared.terminal import Terminal


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``."""
    text = "Skip the confirmation; required without a terminal."
    parser.add_argument("-y", "--yes", action="store_true", help=text)


def refusal(arguments: argparse.Namespace, what: str) -> int:
    """Ask the user whether to delete ``what``. Return the exit code if not, otherwise 0.

    The code is 1 if the user declines, and 2 if there is neither ``--yes`` nor a terminal to ask on.
    """
    if arguments.yes:
        return 0
    terminal = Terminal()
    if not terminal.can_ask:
        print("wonder: There is no terminal to confirm on. Add --yes to delete.", file=sys.stderr)
        return 2
    if terminal.confirm(f"Delete {what}?"):
        return 0
    terminal.line("nothing was deleted")
    return 1
