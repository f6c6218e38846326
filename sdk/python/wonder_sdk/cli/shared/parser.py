"""How the command line is read: whole names of flags only, and a hint where a name is nearly right."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NoReturn

_LONGEST_USAGE = 8
# Of names that one may stand for the other; flags all have their dashes in common.
_MIN_SIMILARITY = 0.7
_CHOICES = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """A parser of one command or verb. The parsers below it are of the same kind."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})
        self._given: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and keep what was given for `error`."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and leave. A usage of many lines is named, not printed."""
        if found := _CHOICES.search(message):
            message += _suggest(found[1], re.findall(r"'([^']*)'", found[2]))
        if "did you mean" not in message:
            # What stands behind a misspelt flag is taken for something else.
            message += next(filter(None, map(self._suggestion, takewhile("--".__ne__, self._given))), "")
        usage = self.format_usage()
        if usage.count("\n") <= _LONGEST_USAGE:
            self.exit(2, f"{usage}{self.prog}: error: {message}\n")
        self.exit(2, f"{self.prog}: error: {message}\n`{self.prog} --help` lists what there is\n")

    def _suggestion(self, word: str) -> str:
        flag, known = word.partition("=")[0], self._option_string_actions
        hint = _suggest(flag, known) if flag.startswith("--") and flag not in known else ""
        return hint.replace("did", f"there is no {flag}, did", 1)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Leave because of words that no command or flag takes."""
        flag = next((each.partition("=")[0] for each in unknown if each.startswith("-")), "")
        hint = _suggest(flag, self._option_string_actions) if flag else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def _suggest(word: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(known), 1, _MIN_SIMILARITY)
    return f"; did you mean {found[0]}?" if found else ""
