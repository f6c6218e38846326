"""What changed between two revisions, in lines that a person can read (feature A7)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from wonder_server.core.definitions.document import Draft, draft_to_json

CONTEXT_LINES = 2


def diff(before: Draft | None, after: Draft | None) -> str:
    """A unified diff of the two as outlines; None is "not there". Empty if they say the same."""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), "before", "after", n=CONTEXT_LINES, lineterm=""
    )
    return "\n".join(list(lines)[2:])


def _lines(draft: Draft | None) -> list[str]:
    return [] if draft is None else list(outline(draft_to_json(draft)))


def outline(value: Any, indent: str = "") -> Iterator[str]:
    """JSON as an indented outline, near to YAML: one scalar a line, long texts line by line."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _entry(f"{key}:", item, indent)
    else:
        for item in value:
            yield from _entry("-", item, indent)


def _entry(label: str, item: Any, indent: str) -> Iterator[str]:
    inner = indent + "  "
    if isinstance(item, (dict, list)) and item:
        yield indent + label
        yield from outline(item, inner)
    elif isinstance(item, str) and "\n" in item:
        yield f"{indent}{label} |"
        yield from (inner + line for line in item.splitlines())
    else:
        yield f"{indent}{label} {item if isinstance(item, str) and item else json.dumps(item)}"
