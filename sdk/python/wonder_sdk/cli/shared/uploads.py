"""Uploads of local files: checked before the first one is sent, and with errors that name the file."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wonder_sdk.cli.shared.terminal import printable

if TYPE_CHECKING:
    from wonder_sdk import sync, v1

_SERVERS_HINT = " Set media_type."
"""End of the server's message about a content that shows no type; the command has another option."""
_HINT = " Use `wonder files put --type TYPE`."


def check(paths: Sequence[str]) -> bool:
    """Return True if each path is a file that can be read. Else print the problems."""
    problems = list(filter(None, map(_problem, paths)))
    for problem in problems:
        print(f"wonder: {printable(problem)}", file=sys.stderr)
    return not problems


def upload(client: sync.Client, path: str, *, project: str, media_type: str = "") -> v1.File:
    """Upload the file at ``path``. Raises WonderError and OSError with the path in the message."""
    from wonder_sdk import InvalidArgumentError, ResourceExhaustedError

    try:
        return client.upload(path, project=project, media_type=media_type)
    except (InvalidArgumentError, ResourceExhaustedError) as problem:
        problem.message = f"{path}: {problem.message.replace(_SERVERS_HINT, _HINT)}"
        raise
    except OSError as problem:
        problem.filename = problem.filename or path
        raise


def _problem(path: str) -> str:
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            return f"{path} is a folder; name a file."
        # To open a pipe would wait for its writer, and an upload states its size first.
        if not stat.S_ISREG(mode):
            return f"{path} is not a regular file. Write its content to a file first."
        os.close(os.open(path, os.O_RDONLY))
    except OSError as problem:
        return f"{path} cannot be read: {problem.strerror}."
    except ValueError:
        return f"{path!r} is not a path."
    return ""
