"""Tests of the names that are stored in shards.

``stored_names.json`` lists, by planner, the stored tag of each class of inputs, decisions, rows and events
and the stored names of its fields. None may be removed or changed. ``python -m tests.golden.record_names``
adds those that are missing; then read the difference, since a name stays for good once it is on a disk.

One kind of name was removed: decisions about turns, runs and node executions carried them whole, and carry
what changes now. Readers ignore the other fields, which repeat those of earlier decisions (`test_journals`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from wonder_server.codec.stored_names import (
    TAGS,
    classes_by_tag,
    event_name,
    stored_event,
    stored_path,
    tag_of,
)
from wonder_server.codec.tables import FILTER_COLUMNS
from wonder_server.core.actor.planner import Planner
from wonder_server.core.budget import CHARGES
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import PinnedAgent, PinnedTask, PinnedWorkflow
from wonder_server.core.frozen import Value, field, stored_text
from wonder_server.core.json_types import JsonDict, JsonValue

PINNED = (PinnedAgent, PinnedTask, PinnedWorkflow)
"""Definitions, which are listed once."""

FILE = Path(__file__).with_name("stored_names.json")
PLANNERS = (CONVERSATION, RUN)


class Inner(Value, frozen=True, kw_only=True):
    new: str = field(default="", name="old")


class Outer(Value, frozen=True, kw_only=True):
    same: str = ""
    renamed: Inner | None = field(default=None, name="first")


def stored_names(planner: Planner) -> JsonDict:
    """Return every stored name of a planner's values, in the form of ``stored_names.json``."""
    roots: dict[str, Mapping[str, type]] = {
        "inputs": classes_by_tag(planner.inputs),
        "decisions": classes_by_tag(planner.decisions),
        "rows": planner.row_types,
        "events": {stored_event(planner.kind, name)[1]: cls for name, cls in planner.event_types.items()},
        "pinned": {cls.__name__: cls for cls in PINNED},
    }
    return {
        group: {tag: shape(cls) for tag, cls in sorted(classes.items())} for group, classes in roots.items()
    }


def shape(cls: type, above: tuple[type, ...] = ()) -> JsonDict:
    """Return the stored names of a class's fields, each with those of the values in it."""
    names = {info.encode_name: info.name for info in msgspec.inspect.type_info(cls).fields}  # type: ignore[attr-defined]
    hints = get_type_hints(cls)
    return {
        stored: {
            key: value
            for inner in values_in(hints[name])
            if inner not in above and inner not in PINNED
            for key, value in shape(inner, (*above, cls)).items()
        }
        for stored, name in names.items()
    }


def values_in(hint: Any) -> Iterator[type]:
    """Yield the classes of frozen values that a type hint names."""
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        yield hint
    for part in get_args(hint):
        yield from values_in(part)


def missing(recorded: JsonValue, current: JsonValue, at: str = "") -> list[str]:
    """Return the recorded names that are gone."""
    return [
        name
        for key, within in recorded.items()
        for name in (missing(within, current[key], f"{at}/{key}") if key in current else [f"{at}/{key}"])
    ]


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: str(planner.kind))
def test_no_stored_name_has_changed(planner: Planner) -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))[planner.kind]
    assert missing(recorded, stored_names(planner)) == []


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: str(planner.kind))
def test_every_stored_name_is_in_the_file(planner: Planner) -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))[planner.kind]
    assert missing(stored_names(planner), recorded) == [], "run python -m tests.golden.record_names"


def test_every_class_with_a_tag_is_an_input_or_a_decision() -> None:
    """So the file, which lists those of the planners, has every tag."""
    listed = {cls for planner in PLANNERS for cls in (*planner.inputs, *planner.decisions)}
    assert set(TAGS) == listed


def test_a_name_that_is_missing_on_either_side_is_found() -> None:
    assert missing({"a": {"b": {}, "c": {}}}, {"a": {"b": {}}}) == ["/a/c"]
    assert missing({"a": {}}, {"a": {"b": {}}}) == []


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: str(planner.kind))
def test_every_input_and_decision_has_a_tag_of_its_own(planner: Planner) -> None:
    for classes in (planner.inputs, planner.decisions):
        tags = [TAGS[cls] for cls in classes]
        assert len(set(tags)) == len(tags)


def test_an_event_has_one_name_in_the_code_and_one_in_the_store() -> None:
    assert stored_event("conversation", "participant.left") == ("participant_left", "participant_left")
    assert stored_event("conversation", "workflow_started") == ("workflow_started", "workflow_started")
    assert stored_event("conversation", "conversation_turn") == ("conversation_turn", "turn_started")
    assert stored_event("run", "workflow.cancelled") == ("workflow_cancelled", "run_ended")
    for name in ("participant.left", "conversation_turn", "turn.failed", "workflow.cancelled"):
        assert event_name(stored_event("conversation", name)[0]) == name


def test_a_class_without_a_tag_is_stored_by_its_name() -> None:
    assert tag_of(Inner) == "Inner"


def test_a_renamed_field_is_written_and_read_by_its_stored_name() -> None:
    value = Outer(same="a", renamed=Inner(new="b"))
    data = msgspec.json.encode(value)
    assert data == b'{"same":"a","first":{"old":"b"}}'
    assert msgspec.json.decode(data, type=Outer) == value


def test_a_path_of_attributes_becomes_the_path_of_stored_names() -> None:
    assert stored_path(Outer, "same") == "same"
    assert stored_path(Outer, "renamed.new") == "first.old"


def test_the_text_of_a_fingerprint_has_stored_names() -> None:
    assert stored_text("Tag", Inner(new="b")) == "Tag(old='b')"


def test_the_paths_of_columns_are_stored_paths() -> None:
    """Checks of a folder read columns' values from JSON by the path that writers read attributes by."""
    row_types = {**CONVERSATION.row_types, **RUN.row_types}
    for table, columns in FILTER_COLUMNS.items():
        if table != CHARGES:
            for path in columns:
                assert stored_path(row_types[table], path) == path
