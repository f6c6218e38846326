"""Budgets that keep the code readable. ruff holds the complexity of functions (C901)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, SDK, SERVER, files, longest_section, outline, text

MAX_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
MAX_PUBLIC_METHODS = 20
MAX_ANY_PER_1000_LINES = 8
MAX_ANY_PER_FILE = 10

DEFINITION = re.compile(r"^ +(?:async )?def [A-Za-z]", re.MULTILINE)

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
    long = []
    for path in SOURCES:
        most = TEST_FUNCTION_LINES if is_test(path) else MAX_FUNCTION_LINES
        if longest_section(path) > most:
            long += [
                f"{path}:{each.line} {each.name}" for each in outline(path).functions if each.lines > most
            ]
    assert not long


MANY_OPTIONS = {
    "client.py create_conversation": "each sets another field of the conversation",
    "conversation/chat.py send": "each sets another field of the message",
    "methods/artifacts.py write_artifact": "project and branch say where; the others describe the commit",
    "methods/artifacts.py delete_artifact": "those of write_artifact",
    "methods/artifacts.py merge_artifacts": "one call, whose conflicts are repeated with `resolutions`",
    "methods/artifacts.py merge_branch": "one call, whose conflicts are repeated with `resolutions`",
    "methods/workflows.py list_runs": "independent filters, of which a call uses one or two",
    "methods/workflows.py fork_run": "`before` and `after_sequence` exclude each other",
    "worker/worker.py __init__": "the connection is that of `Client`, and the limits are the worker's",
}
"""Functions of the SDK with more keyword-only options than the budget, each with the reason.

A call uses one or two of them. Plain keywords are named at the call, shown in its signature, and checked by
Python when misspelt. A group of options that several methods share is a TypedDict, as `StartOptions`.
"""


def test_a_function_has_few_parameters() -> None:
    many, excused = [], set()
    for path in SOURCES:
        for function in () if is_test(path) else outline(path).functions:
            if function.parameters <= MAX_PARAMETERS:
                continue
            name = f"{path.relative_to(SDK)} {function.name}" if path.is_relative_to(SDK) else ""
            if name in MANY_OPTIONS and function.parameters - function.options <= MAX_PARAMETERS:
                excused.add(name)
            else:
                many.append(f"{path}:{function.line} {function.name}")
    assert not many
    assert excused == MANY_OPTIONS.keys(), "Remove the functions that need no exemption."


def test_a_class_has_few_public_methods() -> None:
    many = [
        f"{path}:{each.line} {each.name}"
        for path in SOURCES
        if len(DEFINITION.findall(text(path))) > MAX_PUBLIC_METHODS
        for each in outline(path).classes
        if each.public_methods > MAX_PUBLIC_METHODS
    ]
    assert not many


TYPED = {
    "server": [SERVER],
    "sdk": [SDK],
    "programs": [ROOT / "bench", ROOT / "tools", ROOT / "examples"],
}


@pytest.mark.parametrize("part", TYPED)
def test_any_stands_only_where_nothing_better_is_true(part: str) -> None:
    """JSON has names of its own: see `wonder_server.core.json_types` and `wonder_sdk.json_types`."""
    texts = {
        path: text(path)
        for folder in TYPED[part]
        for path in files(folder)
        if not is_generated(path) and "_proto" not in path.parts
    }
    counts = {path: len(re.findall(r"\bAny\b", each)) for path, each in texts.items()}
    count, lines = sum(counts.values()), sum(each.count("\n") for each in texts.values())
    assert 1000 * count / lines <= MAX_ANY_PER_1000_LINES, f"{count} in {lines} lines"
    crowded = {str(path): count for path, count in counts.items() if count > MAX_ANY_PER_FILE}
    assert not [path for path in crowded if not path.endswith(ANY_OF_LIBRARIES)], crowded


ANY_OF_LIBRARIES = "rpc/server/call_pipeline.py"
"""It wraps handlers of every method, and the types of grpc.aio have no common parent for them."""
