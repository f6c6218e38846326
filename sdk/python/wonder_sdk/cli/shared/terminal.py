"""Terminal output; styles are used on terminals only, never in files and pipes."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from typing import TextIO

_CODES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Terminal:
    """Output stream of a command. Styles need a terminal, and NO_COLOR must not be set."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.is_interactive = self.out.isatty()
        self.is_styled = (
            self.is_interactive and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self._at_line_start = True

    @property
    def width(self) -> int:
        return shutil.get_terminal_size((100, 24)).columns

    def style(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.is_styled and text else text

    def write(self, text: str, style: str = "") -> None:
        """Write the text immediately, without control characters: it can come from anywhere."""
        if not text:
            return
        clean = printable(text)
        self.out.write(self.style(clean, style) if style else clean)
        self.out.flush()
        self._at_line_start = clean.endswith("\n")

    def raw(self, text: str) -> None:
        """Write a text of this program immediately, including its escape sequences."""
        self.out.write(text)
        self.out.flush()
        self._at_line_start = True

    def line(self, text: str = "", style: str = "") -> None:
        """Write the text as a separate line."""
        self.fresh_line()
        self.write(text, style)
        self.out.write("\n")
        self.out.flush()
        self._at_line_start = True

    def fresh_line(self) -> None:
        """Start a new line unless the cursor is at the start of one."""
        if not self._at_line_start:
            self.out.write("\n")
            self._at_line_start = True

    @property
    def can_ask(self) -> bool:
        """True if a user can answer `confirm`."""
        return self.is_interactive and sys.stdin.isatty()

    def confirm(self, question: str) -> bool:
        """Ask the user for confirmation.

        Without a terminal return True: a script has confirmed by calling.
        """
        if not self.can_ask:
            return True
        try:
            return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    def note(self, text: str) -> None:
        """Write a dim line, cut to the terminal's width."""
        flat = " ".join(printable(text).split())
        max_width = max(20, self.width - 3)
        self.line("  " + (flat if len(flat) <= max_width else flat[: max_width - 1] + "…"), "dim")


def printable(text: str) -> str:
    """Return ``text`` without control characters, such as those of escape sequences."""
    return "".join(each for each in text if each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cs"))
