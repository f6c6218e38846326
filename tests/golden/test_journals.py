"""Recorded journals of earlier servers replay to the same decisions with today's planners.

If a test fails, a change made recorded runs unreadable or changed their decisions. If the change is
intended, describe it in the changelog and record again (`tests.golden.journals`).
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.golden.journals import dump, load
from wonder_server.actors.runs.replay import replay
from wonder_server.core.conversation.model.turn_progress import TurnProgress
from wonder_server.core.coordinator.model.progress import ExecutionEnd, RunProgress
from wonder_server.core.json_types import JsonDict, JsonValue

CHANGED = {
    field: {each.encode_name for each in msgspec.structs.fields(progress)}
    for field, progress in (("turn", TurnProgress), ("run", RunProgress), ("execution", ExecutionEnd))
}
"""The fields of rows that change, by the field of decisions that carries them."""

FILES = sorted(Path(__file__).parent.glob("*.jsonl"))


def test_all_recorded_journals_exist() -> None:
    assert [file.stem for file in FILES] == [
        "conversation-async-tools",
        "conversation-called-progress",
        "conversation-called",
        "conversation-cancelled-progress",
        "conversation-cancelled",
        "conversation-killed-progress",
        "conversation-killed",
        "conversation-large-result",
        "conversation-late-result",
        "conversation-repaired",
        "conversation-replied",
        "conversation-tools-and-limits-progress",
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
        "run-timed",
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
    """New fields may have been added; none may have been removed, unless it repeats another."""
    text = file.read_text(encoding="utf-8")
    again = dump(*load(text)).splitlines()
    known: dict[str, JsonDict] = {}
    for old, new in zip(text.splitlines(), again, strict=True):
        assert is_within(without_repetitions(json.loads(old), known), json.loads(new))


def without_repetitions(step: JsonDict, known: dict[str, JsonDict]) -> JsonDict:
    """Return a step without what its decisions repeat of rows that earlier decisions carry.

    Earlier versions wrote whole turns, runs and node executions into each decision about them. ``known`` has
    the rows so far, by id.
    """
    for tag, decision in step.get("decisions", ()):
        for name, progress in CHANGED.items():
            row = decision.get(name)
            # The run of a tool call, which has the field `run` too, is no row.
            if not isinstance(row, dict) or "id" not in row:
                continue
            if tag in ("StartTurn", "StartRun", "DispatchNode", "RetryNode", "KeepExecution"):
                known[row["id"]] = row
                continue
            for constant in row.keys() - progress:
                assert row[constant] == known[row["id"]][constant], f"{tag} changed {constant}"
                del row[constant]
    return step


def is_within(old: JsonValue, new: JsonValue) -> bool:
    """Return True if ``new`` contains everything in ``old``."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(k in new and is_within(v, new[k]) for k, v in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(old) == len(new) and all(map(is_within, old, new))
    return bool(old == new)
