"""How definitions name each other, and how changes read."""

from __future__ import annotations

import pytest

from wonder_server.core.definitions.diff import diff
from wonder_server.core.definitions.document import parse_draft
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
        "   system_prompt: |",
        "     You help.",
        "-    Always.",
        "+    Often.",
        "   tool_ids:",
        "     - recall",
    ]


def test_the_diff_of_equals_is_empty_and_of_something_new_is_all_of_it() -> None:
    draft = parse_draft({"name": "a", "action": {"kind": "llm", "config": {"x": {}, "y": ""}}})
    assert diff(draft, draft) == ""
    assert diff(None, draft).splitlines()[1:] == [
        "+name: a", "+action:", "+  kind: llm", "+  config:", "+    x: {}", '+    y: ""'
    ]  # fmt: skip
