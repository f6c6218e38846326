"""Prose and names: docstrings open as CONTRIBUTING asks, and no retired word comes back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import ROOT, text
from tests.architecture.test_budgets import SOURCES

DOCUMENTS = (
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile")),
    *sorted((ROOT / "proto").rglob("*.proto")),
    *sorted((ROOT / "server").rglob("*.yaml")),
    *sorted((ROOT / "examples").rglob("*.yaml")),
)

OPENERS = {"What", "Who", "How", "Whether", "Whose", "Whom", "Where", "When", "Which"}
"""A docstring starts with an imperative verb or a noun phrase, never with one of these."""

RETIRED = frozenset(
    """
    ageing anybody attic bills crew crowd demolish demolished demolition heard nobody purse purses rehearsal
    rehearsals rehearsed room rooms rouse roused salvage salvaged scribe somebody spoken told underway vacate
    vacated whoever whomever woken
    """.split()
)
"""Words that have a standard term in their place, in names as in prose. See docs/glossary.md."""

LISTS = {"test_prose.py", "stop_words.py", "earlier_wordings.py"}
"""Files whose words are data."""


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, those of attributes and constants included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                if isinstance(statement.value.value, str):
                    yield statement.lineno, statement.value.value


OPENED = re.compile(rf"\"\"\"\W*({'|'.join(OPENERS)})\b")
"""A string that may be such a docstring. A file without one is not parsed: parsing all takes a second."""


def wrong_openers(path: Path) -> list[str]:
    """Return the docstrings of a file that open with an interrogative."""
    if not OPENED.search(text(path)):
        return []
    found = []
    for line, docstring in docstrings(ast.parse(text(path))):
        first = re.match(r"\W*(\w+)", docstring)
        if first and first.group(1) in OPENERS:
            found.append(f"{path.relative_to(ROOT)}:{line}: {docstring.strip()[:60]}")
    return found


def _split(word: str) -> list[str]:
    return re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", word)


def retired_words(path: Path) -> list[str]:
    """Return the retired words of a file: in names, comments and sentences of code, in all of a document.

    A string of one word is data: a stored name, or an entry of a list of words.
    """
    plain = text(path).lower()
    if not any(word in plain for word in RETIRED):
        return []  # Splitting all files into tokens takes seconds.
    if path.suffix != ".py":
        pieces = list(enumerate(text(path).splitlines(), 1))
    else:
        pieces = [
            (token.start[0] + offset, line)
            for token in tokenize.generate_tokens(io.StringIO(text(path)).readline)
            if token.type in (tokenize.NAME, tokenize.COMMENT)
            or (token.type == tokenize.STRING and " " in token.string)
            for offset, line in enumerate(token.string.splitlines())
        ]
    return [
        f"{path.relative_to(ROOT)}:{number}: {word}: {piece.strip()[:80]}"
        for number, piece in pieces
        for word in re.findall(r"[A-Za-z]+", piece)
        if any(part.lower() in RETIRED for part in _split(word))
    ]


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    assert not [each for path in SOURCES for each in wrong_openers(path)]


def test_retired_words_stay_away() -> None:
    sources = [path for path in SOURCES if path.name not in LISTS]
    assert not [each for path in (*sources, *DOCUMENTS) for each in retired_words(path)]
