"""What is printed, and how: colours only for people, never for files and pipes."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from typing import TextIO

_CODES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Terminal:
    """Where output goes. Styles are dropped unless ``out`` is a terminal and NO_COLOR is not set."""

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
        """Print as it is, at once. Text is cleaned of control characters: it may come from anywhere."""
        if not text:
            return
        clean = printable(text)
        self.out.write(self.style(clean, style) if style else clean)
        self.out.flush()
        self._at_line_start = clean.endswith("\n")

    def raw(self, text: str) -> None:
        """Print what this program has made itself, escape sequences and all, at once."""
        self.out.write(text)
        self.out.flush()
        self._at_line_start = True

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line of its own."""
        self.fresh_line()
        self.write(text, style)
        self.out.write("\n")
        self.out.flush()
        self._at_line_start = True

    def fresh_line(self) -> None:
        """Begin a new line unless one has just begun."""
        if not self._at_line_start:
            self.out.write("\n")
            self._at_line_start = True

    def confirm(self, question: str) -> bool:
        """Ask whoever is there; a script has said what it wants by calling."""
        if not (self.is_interactive and sys.stdin.isatty()):
            return True
        try:
            return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    def note(self, text: str) -> None:
        """A dim line, cut off where the terminal ends."""
        flat = " ".join(printable(text).split())
        max_width = max(20, self.width - 3)
        self.line("  " + (flat if len(flat) <= max_width else flat[: max_width - 1] + "…"), "dim")


def printable(text: str) -> str:
    """``text`` without what could drive a terminal: escape sequences and their like."""
    return "".join(each for each in text if each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cs"))
