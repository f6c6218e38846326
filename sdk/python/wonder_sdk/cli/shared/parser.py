"""The argument parser of the command: no abbreviated flags, and suggestions for misspelt names."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NoReturn

_LONGEST_USAGE = 8
_MAX_WIDTH = 100
# Similarity above which a name is suggested; all flags share their dashes, so the default 0.6 is too low.
_MIN_SIMILARITY = 0.7
# More choices, such as the commands, are not listed: the help shows them with their texts.
_MAX_CHOICES = 8
_CHOICES = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)


# An example in the help of a command: its line, and the lines that explain it.
_EXAMPLE = re.compile(r"^  (wonder .*)\n(?:      .*\n)+", re.MULTILINE)


def add_examples(verbs: argparse._SubParsersAction[argparse.ArgumentParser], examples: str) -> None:
    """Show the examples of a command in the help of the verbs that they use, except verbs with their own."""
    for verb in verbs.choices.values():
        if verb.epilog is None:
            found = [
                each[0] for each in _EXAMPLE.finditer(examples) if f"{each[1]} ".startswith(f"{verb.prog} ")
            ]
            verb.epilog = "".join(["examples:\n", *found])
            verb.formatter_class = argparse.RawDescriptionHelpFormatter


class Parser(argparse.ArgumentParser):
    """Parser of one command or verb; the parsers of its verbs have the same class."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # Those of argparse.
        super().__init__(*arguments, **{"allow_abbrev": False, **options})
        if self.description:  # The formatter that keeps the lines of the examples wraps nothing.
            self.description = textwrap.fill(self.description, _MAX_WIDTH)
        self._given: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and keep the arguments for the suggestions of `error`."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with code 2. A usage of more than eight lines is not printed."""
        if found := _CHOICES.search(message):
            choices = re.findall(r"'([^']*)'", found[2])
            if len(choices) > _MAX_CHOICES:
                message = f"'{found[1]}' does not exist. Use `{self.prog} --help` for the list"
            message += _suggest(found[1], choices)
        if "did you mean" not in message:
            # The parser reads the value of a misspelt flag as another argument.
            message += next(filter(None, map(self._suggestion, takewhile("--".__ne__, self._given))), "")
        if message.endswith(("required: VERB", "required: COMMAND")):
            message += f"\n{self._verbs()}"
        usage = self.format_usage()
        if usage.count("\n") <= _LONGEST_USAGE:
            self.exit(2, f"{usage}{self.prog}: error: {message}\n")
        self.exit(2, f"{self.prog}: error: {message}\nUse `{self.prog} --help` for the options.\n")

    def _verbs(self) -> str:
        """Return the verbs with their texts, one a line."""
        verbs = [
            (each.dest, each.help or "")
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for each in action._choices_actions
        ]
        width = max((len(name) for name, _ in verbs), default=0)
        return "\n".join(f"  {name:<{width}}  {text}" for name, text in verbs)

    def _suggestion(self, word: str) -> str:
        flag, known = word.partition("=")[0], self._option_string_actions
        hint = _suggest(flag, known) if flag.startswith("--") and flag not in known else ""
        return hint.replace("did", f"{flag} does not exist, did", 1)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Exit because of arguments that no command or flag takes."""
        flag = next((each.partition("=")[0] for each in unknown if each.startswith("-")), "")
        hint = _suggest(flag, self._option_string_actions) if flag else ""
        if flag in self._option_string_actions:  # The main command has hardly any flags.
            hint = f". {flag} follows the command: {self.prog} {flag}"
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def _suggest(word: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(known), 1, _MIN_SIMILARITY)
    return f"; did you mean {found[0]}?" if found else ""
