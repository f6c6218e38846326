"""What keeps the code readable: no long files, no long functions, generated code aside."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.sources import ROOT, files, outline, text

MAX_LINES = 600
MAX_FUNCTION_LINES = 80


def is_generated(path: Path) -> bool:
    head = text(path)[:400].lower()
    return "generated" in head and ("do not edit" in head or "protoc" in head)


SOURCES = [
    path
    for folder in ("server", "sdk", "tools", "bench", "examples", "tests")
    for path in files(ROOT / folder)
    if not is_generated(path) and "build" not in path.relative_to(ROOT).parts
]


def test_a_file_is_short_enough_to_read() -> None:
    long = [str(path) for path in SOURCES if len(text(path).splitlines()) > MAX_LINES]
    assert not long


def test_a_function_is_short_enough_to_read() -> None:
    long = [
        f"{path}:{function.line} {function.name}"
        for path in SOURCES
        for function in outline(path).functions
        if function.lines >= MAX_FUNCTION_LINES
    ]
    assert not long
