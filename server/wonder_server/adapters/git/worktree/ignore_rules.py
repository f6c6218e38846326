"""Rules of ``.gitignore``: the files of a folder that a repository excludes.

The server evaluates the rules itself, because git never accesses a folder that agents write. Invalid rules
are skipped, as in git. The regular expressions run in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import re2

Pattern: TypeAlias = Any
"""A compiled expression of re2, which has no types."""

MAX_RULES: Final = 2_000
MAX_RULE_LENGTH: Final = 300
_RE2_OPTIONS: Final = re2.Options()
_RE2_OPTIONS.log_errors = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``pattern`` matches paths relative to the folder ``base`` of its ``.gitignore``."""

    pattern: Pattern
    negated: bool
    folders_only: bool
    base: str


def read_rules(text: str, base: str) -> list[Rule]:
    """Parse one ``.gitignore``. ``base`` is its folder: "" or a path that ends with a slash."""
    found = []
    for line in text.splitlines()[:MAX_RULES]:
        rule = _rule(line, base)
        if rule is not None:
            found.append(rule)
    return found


def is_ignored(rules: Sequence[Rule], path: str, *, is_folder: bool) -> bool:
    """Return True if the last matching rule excludes ``path``. The caller has checked the folders above
    it."""
    path = path.encode("utf-8", "replace").decode()
    for rule in reversed(rules):
        if rule.folders_only and not is_folder:
            continue
        if path.startswith(rule.base) and rule.pattern.fullmatch(path[len(rule.base) :]):
            return not rule.negated
    return False


def _rule(line: str, base: str) -> Rule | None:
    line = re.sub(r"(?<!\\)[ \t]+\Z", "", line.removesuffix("\r"))
    if not line or line.startswith("#") or len(line) > MAX_RULE_LENGTH:
        return None
    negated = line.startswith("!")
    line = line[1:] if negated else line
    folders_only = line.endswith("/")
    line = line.removesuffix("/")
    anchored = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    try:
        pattern = _pattern(line, anchored)
    except re2.error:
        return None
    return Rule(pattern, negated, folders_only, base)


@lru_cache(1_000)
def _pattern(line: str, anchored: bool) -> Pattern:
    """Convert a rule to an expression over paths."""
    out, at = ("" if anchored else "(?:.*/)?"), 0
    while at < len(line):
        rest = line[at:]
        if rest.startswith("**/") and (at == 0 or line[at - 1] == "/"):
            out, at = out + "(?:.*/)?", at + 3
        elif rest == "**" and at and line[at - 1] == "/":
            out, at = out + ".+", at + 2
        elif rest[0] == "*":
            out, at = out + "[^/]*", at + len(rest) - len(rest.lstrip("*"))
        elif rest[0] == "?":
            out, at = out + "[^/]", at + 1
        elif rest[0] == "[" and (found := re.match(r"\[([!^]?)((?:\]|\\.|[^\]\\])(?:\\.|[^\]\\])*)\]", rest)):
            out += f"[{'^/' if found[1] else ''}{_character_class(found[2])}]"
            at += found.end()
        elif rest[0] == "\\" and len(rest) > 1:
            out, at = out + re.escape(rest[1]), at + 2
        else:
            out, at = out + re.escape(rest[0]), at + 1
    return re2.compile(f"(?s){out}", _RE2_OPTIONS)


def _character_class(inside: str) -> str:
    inside = inside.replace("[", r"\[").replace("&&", r"&\&").replace("||", r"|\|").replace("~~", r"~\~")
    return r"\]" + inside[1:] if inside.startswith("]") else inside
