"""References between definitions, and differences between revisions."""

from __future__ import annotations

import json

import pytest
import yaml

from wonder_server.core.definitions.diff import diff, outline
from wonder_server.core.definitions.document import DefinitionDraft, draft_to_json, parse_draft
from wonder_server.core.definitions.references import (
    Reference,
    is_library_name,
    parse_reference,
)

DEF = "def_01J9ZQ3V8M6T0A4C1R5W7E2KXB"


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        (DEF, Reference(definition_id=DEF)),
        (f"{DEF}@3", Reference(definition_id=DEF, revision=3)),
        ("wonder/std/recall", Reference(library="wonder/std", name="recall")),
        ("team/recall@12", Reference(library="team", name="recall", revision=12)),
        ("recall", Reference(name="recall")),
    ],
)
def test_a_reference_is_an_id_or_a_name_with_or_without_a_revision(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference
    assert str(reference) == text


@pytest.mark.parametrize(
    "text", ["", "@1", "a@", "a@0", "a@-1", "a@x", "a@1@2", "a/b/c/d", "/a", "a/", "A", "a b", "../x", "a\n"]
)
def test_anything_else_is_no_reference(text: str) -> None:
    assert parse_reference(text) is None


def test_a_bare_name_means_the_library_of_the_definition_that_refers() -> None:
    bare, full = Reference(name="recall"), Reference(library="team", name="recall")
    assert bare.within("wonder/std") == Reference(library="wonder/std", name="recall")
    assert full.within("wonder/std") == full


def test_a_library_has_one_or_two_segments() -> None:
    assert is_library_name("team") and is_library_name("wonder/std")
    assert not is_library_name("a/b/c") and not is_library_name("") and not is_library_name("a/")
    assert is_library_name(f"{'a' * 49}/{'b' * 50}") and not is_library_name(f"{'a' * 50}/{'b' * 50}")


def test_a_diff_shows_the_lines_that_changed() -> None:
    before = parse_draft(
        {"name": "p", "persona": {"system_prompt": "You help.\nAlways.", "tool_ids": ["recall"]}}
    )
    after = parse_draft(
        {"name": "p", "persona": {"system_prompt": "You help.\nOften.", "tool_ids": ["recall"]}}
    )
    assert diff(before, after).splitlines() == [
        "@@ -3,5 +3,5 @@",
        "   system_prompt: |-",
        "     You help.",
        "-    Always.",
        "+    Often.",
        "   tool_ids:",
        "     - recall",
    ]


def test_the_diff_of_equal_definitions_is_empty_and_of_a_new_one_complete() -> None:
    draft = parse_draft({"name": "a", "action": {"kind": "llm", "config": {"x": {}, "y": ""}}})
    assert diff(draft, draft) == ""
    assert diff(None, draft).splitlines()[1:] == [
        "+name: a", "+action:", "+  kind: llm", "+  config:", "+    x: {}", '+    y: ""'
    ]  # fmt: skip


def test_the_order_of_keys_in_free_form_fields_is_no_change() -> None:
    def tool(*fields: str) -> DefinitionDraft:
        properties = {name: {"type": "string"} for name in fields}
        spec = {
            "target_type": "task",
            "target_id": "t",
            "input_schema": {"type": "object", "properties": properties},
            "input_mapping": {name: f"input.{name}" for name in fields},
        }
        return parse_draft({"name": "ask", "description": "Ask.", "tool": spec})

    before, after = tool("a", "b", "c"), tool("c", "a", "b")
    assert diff(before, after) == ""
    assert json.dumps(draft_to_json(before)) == json.dumps(draft_to_json(after))
    added = [line for line in diff(before, tool("d", "c", "a", "b")).splitlines() if line[0] in "+-"]
    assert added == ["+      d:", "+        type: string", "+    d: input.d"]


@pytest.mark.parametrize(
    "text",
    ["", " a", "a ", "a: b", "a #b", "- a", "yes", "Null", "12", "1e3", "2024-01-01", "size(x) > 0", "a\nb",
     "a\n", "a\n\n", "a\n\n  b\n", "  a\nb", "\na", "a:", "a\tb", "'q'", '"q" + x', "{a}", "Łódź", "a\r\nb",
     "~", "@x", "wonder/std/recall@3", "http://x/y", "a, b", '"a" + b', """'a' + "b" """, '\\ "a"'],
)  # fmt: skip
def test_an_outline_is_yaml(text: str) -> None:
    value = {"a": [{"id": text, "more": [text, [text, {}], []]}, text], text: {"b": None, "c": [True, 1.5]}}
    assert yaml.safe_load("\n".join(outline(value))) == value
