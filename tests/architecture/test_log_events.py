"""Every event that the server logs has a snake_case name and a row in docs/operating.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.sources import ROOT, SERVER, calls, files, text, tree

PAGE = ROOT / "docs" / "operating.md"
EVENT = re.compile(r"[a-z]+(_[a-z]+)*\Z")
LEVELS = {"debug": 0, "info": 0, "warning": 0, "error": 0, "exception": 0, "critical": 0, "log": 1}
"""Methods of a logger, with the position of the event among their arguments."""


def is_logger(node: ast.expr) -> bool:
    """Return True for ``_log``, ``self._log`` and ``logger("…")``: modules use no other name for a logger."""
    match node:
        case ast.Name(id="_log") | ast.Attribute(attr="_log") | ast.Call(func=ast.Name(id="logger")):
            return True
    return False


def logged(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the event argument of every call of a logger."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=receiver, attr=method), args=arguments) if (
                is_logger(receiver) and method in LEVELS
            ):
                yield arguments[LEVELS[method]]


@cache
def loggers() -> dict[Path, ast.Module]:
    """Return the modules that have a logger."""
    return {path: tree(path) for path in files(SERVER) if "logger(" in text(path)}


def writers(tree: ast.Module) -> dict[str, int]:
    """Return the functions that pass a parameter on to a logger as the event, with its position."""
    found = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            names = [each.arg for each in function.args.args if each.arg != "self"]
            for event in logged(function):
                if isinstance(event, ast.Name):
                    found[function.name] = names.index(event.id)
    return found


def literals(events: Iterator[ast.expr]) -> set[str]:
    return {str(event.value) for event in events if isinstance(event, ast.Constant)}


@cache
def events() -> frozenset[str]:
    """Return every literal event, passed to a logger or to a function that passes it on."""
    found: set[str] = set()
    public: dict[str, int] = {}
    for path, module in loggers().items():
        passing = writers(module)
        public |= {name: position for name, position in passing.items() if not name.startswith("_")}
        found |= literals(logged(module))
        found |= literals(call.args[passing[name]] for name, call in calls(path) if name in passing)
    users = [path for path in files(SERVER) if any(f"{name}(" in text(path) for name in public)]
    for path in users:
        found |= literals(call.args[public[name]] for name, call in calls(path) if name in public)
    return frozenset(found)


def documented() -> set[str]:
    """Return the events in the first column of the table of log events."""
    section = text(PAGE).split("## Log events\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {event for row in rows for event in re.findall("`([^`]+)`", row)}


def test_the_server_logs_events_directly_and_through_functions() -> None:
    assert {"ready", "handler_failed", "mcp_server_stderr", "context_assembly_failed"} <= events()


def test_an_event_is_a_literal_or_a_parameter() -> None:
    for path, module in loggers().items():
        for event in logged(module):
            assert isinstance(event, ast.Constant | ast.Name), f"{path}:{event.lineno}: {ast.unparse(event)}"


def test_events_are_snake_case() -> None:
    assert [event for event in sorted(events()) if not EVENT.match(event)] == []


def test_the_document_lists_every_event_and_no_other() -> None:
    assert documented() == events()
