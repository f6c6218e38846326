"""Budgets that keep the code readable. ruff holds the complexity of functions (C901)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.sources import ROOT, SDK, SERVER, files, outline, text

MAX_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
MAX_PUBLIC_METHODS = 20
MAX_ANY_PER_1000_LINES = 8

TEST_FILE_LINES, TEST_FUNCTION_LINES = 600, 80
"""Tests tell one story each, and some stories are long."""


def is_generated(path: Path) -> bool:
    head = text(path)[:400].lower()
    return "generated" in head and ("do not edit" in head or "protoc" in head)


SOURCES = [
    path
    for folder in ("server", "sdk", "tools", "bench", "examples", "tests")
    for path in files(ROOT / folder)
    if not is_generated(path) and "build" not in path.relative_to(ROOT).parts
]


def is_test(path: Path) -> bool:
    return path.is_relative_to(ROOT / "tests")


def test_a_file_is_short_enough_to_read() -> None:
    long = [
        str(path)
        for path in SOURCES
        if len(text(path).splitlines()) > (TEST_FILE_LINES if is_test(path) else MAX_LINES)
    ]
    assert not long


def test_a_function_is_short_enough_to_read() -> None:
    long = [
        f"{path}:{function.line} {function.name}"
        for path in SOURCES
        for function in outline(path).functions
        if function.lines > (TEST_FUNCTION_LINES if is_test(path) else MAX_FUNCTION_LINES)
    ]
    assert not long


def test_a_function_has_few_parameters() -> None:
    """Keyword-only parameters of the SDK do not count: they are options, named at the call."""
    many = [
        f"{path}:{function.line} {function.name}"
        for path in SOURCES
        for function in outline(path).functions
        if not is_test(path)
        and function.parameters - (function.options if path.is_relative_to(SDK) else 0) > MAX_PARAMETERS
    ]
    assert not many


def test_a_class_has_few_public_methods() -> None:
    many = [
        f"{path}:{each.line} {each.name}"
        for path in SOURCES
        for each in outline(path).classes
        if each.public_methods > MAX_PUBLIC_METHODS
    ]
    assert not many


def test_any_stands_only_where_nothing_better_is_true() -> None:
    """JSON has names of its own: see `wonder_server.core.json_types`."""
    texts = [text(path) for path in files(SERVER)]
    lines = sum(each.count("\n") for each in texts)
    count = sum(len(re.findall(r"\bAny\b", each)) for each in texts)
    assert 1000 * count / lines <= MAX_ANY_PER_1000_LINES, f"{count} in {lines} lines"
