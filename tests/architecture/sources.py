"""The project's Python files, each read and parsed once for all tests of this folder.

The tests look at statements alone where they can: a tenth of the nodes of a syntax tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "server" / "wonder_server"
SDK = ROOT / "sdk" / "python" / "wonder_sdk"


class Import(NamedTuple):
    """One imported name: the full name of the module, with the name that is taken from it."""

    name: str
    line: int
    at_start: bool
    """False inside functions, and for types only."""


class Function(NamedTuple):
    name: str
    line: int
    lines: int
    parameters: int
    """Without ``self``, ``cls``, ``*args`` and ``**kwargs``."""
    options: int
    """Parameters that are keyword-only."""


class Class(NamedTuple):
    name: str
    line: int
    public_methods: int


class Outline(NamedTuple):
    """The parts of a module that the tests judge."""

    imports: tuple[Import, ...]
    functions: tuple[Function, ...]
    classes: tuple[Class, ...]


@cache
def files(folder: Path) -> tuple[Path, ...]:
    """Return every Python file below ``folder``, sorted."""
    return tuple(sorted(folder.rglob("*.py")))


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def outline(path: Path) -> Outline:
    """Return the imports and functions of a module."""
    imports: list[Import] = []
    functions: list[Function] = []
    classes: list[Class] = []
    for node, at_start in _statements(ast.parse(text(path)), True):
        match node:
            case ast.Import():
                imports += [Import(alias.name, node.lineno, at_start) for alias in node.names]
            case ast.ImportFrom():
                module = "." * node.level + (node.module or "")
                imports += [Import(f"{module}.{alias.name}", node.lineno, at_start) for alias in node.names]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                lines = (node.end_lineno or 0) - node.lineno + 1
                functions.append(
                    Function(node.name, node.lineno, lines, _parameters(node.args), len(node.args.kwonlyargs))
                )
            case ast.ClassDef():
                methods = [each for each in node.body if isinstance(each, _FUNCTION)]
                public = sum(not each.name.startswith("_") for each in methods)
                classes.append(Class(node.name, node.lineno, public))
    return Outline(tuple(imports), tuple(functions), tuple(classes))


_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def _parameters(arguments: ast.arguments) -> int:
    named = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"]))


_OPENING = re.compile(r"(?P<inside> {4})?(?P<word>async def|def|class|@)")


def longest_section(path: Path) -> int:
    """Return the most lines between the starts of two functions, or of two methods of a class.

    No function of the module is longer. This takes a tenth of the time of `outline`.
    """
    longest, start, in_class = 0, 0, False
    for number, line in enumerate([*text(path).splitlines(), "def"]):
        found = _OPENING.match(line)
        if found and (in_class or not found["inside"]):
            longest, start = max(longest, number - start), number
            if not found["inside"] and found["word"] != "@":
                in_class = found["word"] == "class"
    return longest


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module, which stays in memory: use `outline` where it says enough."""
    return ast.parse(text(path))


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of a module, each with the last part of the called name."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name, node


def _statements(parent: ast.AST, at_start: bool) -> Iterator[tuple[ast.AST, bool]]:
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        for node in getattr(parent, part, ()):
            yield node, at_start
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_types(node)
            yield from _statements(node, at_start and not inside)


def _is_for_types(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
    return False
