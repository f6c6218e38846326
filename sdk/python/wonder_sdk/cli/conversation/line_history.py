"""The prompt of ``wonder chat``, and the lines typed at it, which later chats offer."""

from __future__ import annotations

import atexit
from pathlib import Path

from wonder_sdk.cli.shared.terminal import Terminal

_PROMPT = "you> "
_HISTORY = Path.home() / ".wonder_history"


def prompt(terminal: Terminal) -> str:
    """Return the prompt, styled for readline."""
    styled = terminal.style(_PROMPT, "cyan")
    if styled == _PROMPT:
        return _PROMPT
    # Mark the escape sequences as zero-width for readline.
    before, after = styled.split(_PROMPT)
    return f"\x01{before}\x02{_PROMPT}\x01{after}\x02"


def keep() -> None:
    """Read the history of earlier chats, and write it at the exit."""
    try:
        import readline
    except ImportError:
        return
    if readline.get_current_history_length():
        return
    try:
        readline.read_history_file(_HISTORY)
    except OSError:
        pass
    readline.set_history_length(1_000)
    atexit.register(_save)


def _save() -> None:
    import readline

    try:
        _HISTORY.touch(mode=0o600)
        readline.write_history_file(_HISTORY)
    except OSError:
        pass
