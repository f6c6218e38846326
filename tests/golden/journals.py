"""Recorded journals as files, with one JSON object a line, readable without the server's code.

The first line names the planner, ``{"planner": "conversation"}``. Each further line is a step::

    {"sequence": 1, "at_ms": …, "input": ["Create", {…}], "decisions": [["StartConversation", {…}]]}

Inputs, decisions and fields have their stored names. `dump` writes a journal, `load` reads it.

After an intended change of decisions, record new ones with ``python -m tests.golden.record``. Old journals
that must still replay stay; see the test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass

import msgspec

from wonder_server.codec.stored_names import classes_by_tag, tag_of
from wonder_server.core.actor.planner import Planner
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.ports.journal import Entry

_PLANNERS: dict[str, Planner] = {planner.kind: planner for planner in (CONVERSATION, RUN)}


def dump(planner: Planner, entries: list[Entry]) -> str:
    """Return a journal as the text of a file."""
    lines: list[JsonDict] = [{"planner": planner.kind}]
    for entry in entries:
        lines.append(
            {
                "sequence": entry.sequence,
                "at_ms": entry.at_ms,
                "input": _tagged(entry.input),
                "decisions": [_tagged(decision) for decision in entry.decisions],
            }
        )
    return "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)


def load(text: str) -> tuple[Planner, list[Entry]]:
    """Return the journal in a file's text, and its planner."""
    head, *lines = (json.loads(line) for line in text.splitlines())
    planner = _PLANNERS[head["planner"]]
    inputs, decisions = classes_by_tag(planner.inputs), classes_by_tag(planner.decisions)
    entries = [
        Entry(
            line["sequence"],
            line["at_ms"],
            _built(line["input"], inputs),
            tuple(_built(decision, decisions) for decision in line["decisions"]),
        )
        for line in lines
    ]
    return planner, entries


def _tagged(value: object) -> list[JsonValue]:
    return [tag_of(type(value)), _whole(value)]


def _whole(value: object) -> JsonValue:
    """Return a value with all its fields, so that a changed default does not change the file's meaning."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole(item) for item in value]
    if isinstance(value, msgspec.Struct) or is_dataclass(value):
        fields = msgspec.inspect.type_info(type(value)).fields  # type: ignore[union-attr]
        return {field.encode_name: _whole(getattr(value, field.name)) for field in fields}
    return msgspec.to_builtins(value)


def _built(tagged: list[JsonValue], known: Mapping[str, type]) -> JsonValue:
    name, body = tagged
    return msgspec.convert(body, type=known[name])
