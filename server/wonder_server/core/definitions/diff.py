"""Differences between two revisions, as readable lines (feature A7)."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator

from wonder_server.core.definitions.document import DefinitionDraft, draft_to_json
from wonder_server.core.json_types import JsonDict, JsonValue

CONTEXT_LINES = 2


def diff(before: DefinitionDraft | None, after: DefinitionDraft | None) -> str:
    """Return a unified diff of two definitions in outline form. None is a missing definition. Empty if they
    are equal."""
    return diff_of(
        None if before is None else draft_to_json(before), None if after is None else draft_to_json(after)
    )


def diff_of(before: JsonDict | None, after: JsonDict | None) -> str:
    """Return a unified diff of two documents in outline form. None is a missing document. Empty if they are
    equal."""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), "before", "after", n=CONTEXT_LINES, lineterm=""
    )
    return "\n".join(list(lines)[2:])


def _lines(document: JsonDict | None) -> list[str]:
    return [] if document is None else list(outline(document))


def outline(value: JsonValue, indent: str = "") -> Iterator[str]:
    """Yield JSON as block-style YAML: one scalar a line, long texts line by line, keys in the given order."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _entry(f"{indent}{_scalar(key)}:", item, indent)
        return
    for item in value:
        inner = indent + "  "
        if isinstance(item, (dict, list)) and item:
            first, *others = outline(item, inner)
            yield f"{indent}- {first[len(inner) :]}"
            yield from others
        else:
            yield from _entry(f"{indent}-", item, indent)


def _entry(label: str, item: JsonValue, indent: str) -> Iterator[str]:
    inner = indent + "  "
    if isinstance(item, (dict, list)) and item:
        yield label
        yield from outline(item, inner)
    elif isinstance(item, str) and _BLOCK.match(item):
        kept = "+" if item.endswith("\n\n") else "" if item.endswith("\n") else "-"
        yield f"{label} |{kept}"
        yield from (inner + line if line else "" for line in item.removesuffix("\n").split("\n"))
    else:
        yield f"{label} {_scalar(item)}"


_BLOCK = re.compile(r"[^\s\x00-\x1f][^\r\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]*\n", re.DOTALL)
"""A text of several lines that YAML can contain unquoted."""

_PLAIN = re.compile(r"[A-Za-z_/](?:[\w/.,()<>=+*?!@'\"$%&;-]|(?<! ) (?![ #])|:(?=[\w/]))*(?<! )\Z", re.ASCII)
_WORDS_WITH_MEANING = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def _scalar(value: JsonValue) -> str:
    """Return a scalar in YAML. A text is unquoted only if YAML reads it as a text."""
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS_WITH_MEANING:
        return value
    if isinstance(value, str) and '"' in value and "'" not in value and value.isprintable():
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)
