"""What keeps the code readable: no long files, no long functions, generated code aside."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 600
MAX_FUNCTION_LINES = 80


def is_generated(path: Path) -> bool:
    head = path.read_text(encoding="utf-8")[:400].lower()
    return "generated" in head and ("do not edit" in head or "protoc" in head)


SOURCES = [
    path
    for folder in ("server", "sdk", "tools", "bench", "examples", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not is_generated(path) and "build" not in path.relative_to(ROOT).parts
]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_enough_to_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, node.name
