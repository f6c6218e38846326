"""Recorded journals of earlier servers replay to the same decisions with today's planners.

If a test fails, a change made recorded runs unreadable or changed their decisions. If the change is
intended, describe it in the changelog and record again (`tests.golden.journals`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.journals import dump, load
from wonder_server.actors.runs.replay import replay
from wonder_server.core.json_types import JsonValue

FILES = sorted(Path(__file__).parent.glob("*.jsonl"))


def test_all_recorded_journals_exist() -> None:
    assert [file.stem for file in FILES] == [
        "conversation-called",
        "conversation-cancelled",
        "conversation-killed",
        "conversation-tools-and-limits",
        "run-agent",
        "run-cancelled",
        "run-completed",
        "run-diamond",
        "run-failed",
        "run-forked",
        "run-gate",
        "run-list",
        "run-loop",
        "run-retry",
        "run-sequence",
        "run-signal",
        "run-subworkflow",
        "run-two-of-three",
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_a_recorded_journal_replays_to_the_same_decisions(file: Path) -> None:
    planner, entries = load(file.read_text(encoding="utf-8"))
    result = replay(planner, entries)
    assert result.difference is None, result.difference
    assert result.steps == len(entries) > 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_reading_a_recorded_journal_loses_nothing(file: Path) -> None:
    """New fields may have been added; none may have been removed."""
    text = file.read_text(encoding="utf-8")
    again = dump(*load(text)).splitlines()
    for old, new in zip(text.splitlines(), again, strict=True):
        assert is_within(json.loads(old), json.loads(new))


def is_within(old: JsonValue, new: JsonValue) -> bool:
    """Return True if ``new`` contains everything in ``old``."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(k in new and is_within(v, new[k]) for k, v in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(old) == len(new) and all(map(is_within, old, new))
    return bool(old == new)
