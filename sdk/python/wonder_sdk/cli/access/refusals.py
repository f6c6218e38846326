"""Errors of arguments that name no principal or role, printed in one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from wonder_sdk.cli.access.names import NotAName

if TYPE_CHECKING:
    from wonder_sdk import sync

Command = Callable[[argparse.Namespace, "sync.Client"], int]


def explained(command: Command) -> Command:
    """Return ``command``, which then prints a `NotAName` and returns 1."""

    def run(arguments: argparse.Namespace, client: sync.Client) -> int:
        try:
            return command(arguments, client)
        except NotAName as problem:
            print(f"wonder: {problem}", file=sys.stderr)
            return 1

    return run
