"""Recorded journals as files: one JSON object a line, readable without any of our code.

The first line says whose it is, ``{"planner": "conversation"}``; each further one is a step::

    {"sequence": 1, "at_ms": …, "input": ["Create", {…}], "decisions": [["StartConversation", {…}]]}

with the stored names of the inputs and decisions and their fields. `dump` writes one, `load` reads it.

To record new ones, after a change that is *meant* to change decisions: ``python -m tests.golden.record``
(beside this file). Old journals that must still replay stay; see the test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import msgspec

from wonder_server.adapters.sqlite.codec.stored_names import classes_by_tag, tag_of
from wonder_server.core.actor.planner import Planner
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.ports.journal import Entry

_PLANNERS: dict[str, Planner] = {planner.kind: planner for planner in (CONVERSATION, RUN)}


def dump(planner: Planner, entries: list[Entry]) -> str:
    """A journal as the text of a file."""
    lines: list[dict[str, Any]] = [{"planner": planner.kind}]
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
    """The journal in a file's text, and the planner that it is to be replayed with."""
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


def _tagged(value: Any) -> list[Any]:
    return [tag_of(type(value)), _whole(value)]


def _whole(value: Any) -> Any:
    """A value with all its fields: a file must not come to say something else because a default does."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole(item) for item in value]
    if isinstance(value, msgspec.Struct) or is_dataclass(value):
        fields = msgspec.inspect.type_info(type(value)).fields  # type: ignore[union-attr]
        return {field.encode_name: _whole(getattr(value, field.name)) for field in fields}
    return msgspec.to_builtins(value)


def _built(tagged: list[Any], known: Mapping[str, type]) -> Any:
    name, body = tagged
    return msgspec.convert(body, type=known[name])
