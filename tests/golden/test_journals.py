"""Journals recorded by earlier servers replay with today's planners: what was decided is decided again.

If one fails, a change made old runs unreadable or made them go another way. Where that is meant, say so in
the change log and record anew (`tests.golden.journals`); where it is not, this test has done its work.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.journals import dump, load
from wonder_server.actors.runs.replay import replay

FILES = sorted(Path(__file__).parent.glob("*.jsonl"))


def test_the_recorded_journals_are_there() -> None:
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
    verdict = replay(planner, entries)
    assert verdict.difference is None, verdict.difference
    assert verdict.steps == len(entries) > 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_nothing_of_a_recorded_journal_is_lost_in_reading_it(file: Path) -> None:
    """Fields may have come since; none may have gone."""
    text = file.read_text(encoding="utf-8")
    again = dump(*load(text)).splitlines()
    for old, new in zip(text.splitlines(), again, strict=True):
        assert is_within(json.loads(old), json.loads(new))


def is_within(old: Any, new: Any) -> bool:
    """Whether ``new`` says all that ``old`` says."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(k in new and is_within(v, new[k]) for k, v in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(old) == len(new) and all(map(is_within, old, new))
    return bool(old == new)
