"""Tests of tool results without copies."""

from __future__ import annotations

import copy
import json

import pytest

from wonder_server.core.conversation.context.dialects import DIALECTS, dialect_of, result_text
from wonder_server.core.conversation.context.tool_output import without_copies
from wonder_server.core.conversation.model.values import ToolResult
from wonder_server.core.json_types import JsonDict, JsonValue

TEXT = {"type": "text", "text": "It is sunny."}
IMAGE = {"type": "image", "data": "A" * 4_000, "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///a.md", "name": "a"}
EMBEDDED = {"type": "resource", "resource": {"uri": "file:///b.md", "text": "inside"}}
BLOB = {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA", "mimeType": "x/y"}}


def of_mcp(*content: JsonDict, structured: JsonValue = None, is_error: bool = False) -> JsonDict:
    """The result of the action ``mcp``."""
    text = "\n".join(block["text"] for block in content if block["type"] == "text")
    return {"content": list(content), "text": text, "structured": structured, "is_error": is_error}


@pytest.mark.parametrize(
    ("result", "read"),
    [
        (of_mcp(TEXT), "It is sunny."),
        (of_mcp(TEXT, TEXT), "It is sunny.\nIt is sunny."),
        (of_mcp(), ""),
        (of_mcp(TEXT, structured={"sun": 1}), {"sun": 1}),
        (of_mcp(TEXT, is_error=True), {"is_error": True, "text": "It is sunny."}),
        (of_mcp(TEXT, structured={"a": 1}, is_error=True), {"is_error": True, "structured": {"a": 1}}),
        (of_mcp(TEXT, IMAGE), "It is sunny.\n[image image/png: 3000 bytes, not shown]"),
        (of_mcp(LINK, EMBEDDED), "[resource_link file:///a.md a]\n[resource file:///b.md]\ninside"),
        (of_mcp(BLOB), "[resource file:///c x/y: 3 bytes, not shown]"),
        (
            of_mcp(TEXT, IMAGE, structured={"a": 1}),
            {"structured": {"a": 1}, "beside": ["[image image/png: 3000 bytes, not shown]"]},
        ),
    ],
)
def test_a_result_of_mcp_is_its_structured_data_or_else_its_text(result: JsonValue, read: JsonValue) -> None:
    before = copy.deepcopy(result)
    assert without_copies(result) == read
    assert without_copies({"listing": [result]}) == {"listing": [read]}
    assert result == before, "the record keeps all forms"


@pytest.mark.parametrize(
    "value",
    [
        "text",
        {"content": "a document", "text": "a", "structured": None, "is_error": False},
        {"content": [TEXT], "text": "something else", "structured": None, "is_error": False},
        {"content": [{"no": "type"}], "text": "", "structured": None, "is_error": False},
        {"content": [], "text": "", "structured": 1, "is_error": "no"},
        {**of_mcp(TEXT), "more": 1},
        {"status": 200, "body": {"text": "x"}, "headers": {}},
        {"path": "a.md", "files": 0, "text": "Its content, not its name."},
        {"repositories": [{"lines": [1]}], "lines": []},
        [1, None, {"a": [True]}],
    ],
)
def test_a_value_without_copies_stays_unchanged(value: JsonValue) -> None:
    assert without_copies(value) is value


def test_a_line_of_an_index_becomes_its_text_and_lines_of_repositories_occur_once() -> None:
    line = {"path": "src/", "files": 3, "text": "src/ (3 files)", "repository": "code"}
    named = {**line, "text": "code: src/ (3 files)"}
    more = {"path": "", "files": 0, "text": "and 2 more", "repository": "code"}
    repository = {"name": "code", "known": True, "files": 5, "lines": [line, more]}
    unknown = {"name": "other", "known": False}
    index = {"repositories": [repository, unknown], "lines": [named, more]}
    expected = {**repository, "lines": ["src/ (3 files)", "and 2 more"]}
    assert without_copies({"files": index}) == {"files": {"repositories": [expected, unknown]}}


@pytest.mark.parametrize("name", DIALECTS)
def test_each_format_sends_a_result_once(name: str) -> None:
    result = of_mcp({"type": "text", "text": '{"found": "needle"}'}, structured={"found": "needle"})
    good = ToolResult(tool_call_id="c1", success=True, result={"listing": result})
    resumed = dialect_of(name).resume(
        {}, {"role": "assistant", "content": "", "parts": [], "output": []}, [good]
    )
    assert json.dumps(resumed).count("needle") == 1
    assert "is_error" not in json.dumps(resumed)
    assert result_text(good) == '{"listing":{"found":"needle"}}'
