"""Outcomes of runs: all that must not depend on faults, on time or on order.

The outcome of each workflow is compared with that of a history without faults.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.definitions import definitions
from tests.simulation.disk import Disk
from wonder_server.core.coordinator.model.values import ExecutionStatus, NodeExecution, Run
from wonder_server.core.errors import Reason
from wonder_server.ports.journal import Event

_NODE_ENDS: Final = ("node_completed", "node_failed", "node_cancelled")

_IDS: Final = re.compile(r"\b[a-z]+_[0-9A-Z]{26}\b")

EXCUSES: Final = frozenset({Reason.OUTCOME_UNKNOWN, Reason.MODEL_UNAVAILABLE})
"""Faults of runs that a crash in the middle of an effect, or a model that is away, explains."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run, without values that differ between executions."""

    status: str
    reason: str
    output: str
    executed: Counter[tuple[str, str, str]]
    """Ended node executions: node, branches, end."""
    emitted: Counter[str]
    """Payloads of the events that tasks emitted."""


def outcome(events: Sequence[Event], marker: str) -> Outcome:
    """Return the outcome of a run that has ended. Each node execution begins and ends exactly once.

    ``marker`` is the part of its values that differs between runs.
    """
    started = [event.emit.value for event in events if event.emit.kind == "node_started"]
    executions: dict[str, NodeExecution] = {each.id: each for each in started}
    assert len(executions) == len(started), "a node execution began twice"
    ended: dict[str, tuple[str, str, str]] = {}
    for event in events:
        execution = event.emit.value
        if event.emit.kind not in _NODE_ENDS or execution.status is ExecutionStatus.RUNNING:
            continue  # A failed attempt that is repeated is still running.
        assert execution.id not in ended, f"{execution.node_id} ended twice"
        ended[execution.id] = (execution.node_id, _branches(executions, execution), event.emit.kind)
        _check_wait(executions[execution.id], execution)
    assert executions.keys() == ended.keys(), "each execution that began has ended, and no other"
    run: Run = events[-1].emit.value
    return Outcome(
        status=run.status.value,
        reason="" if run.fault is None else run.fault.reason.value,
        output=_plain(str(sorted(run.output.items())), marker),
        executed=Counter(ended.values()),
        emitted=Counter(str(e.emit.value.payload) for e in events if e.emit.kind == "event_emitted"),
    )


def descendants(disk: Disk, run_id: str) -> list[str]:
    """Return the ids of all runs below a run."""
    found: list[str] = []
    for actor in disk.journal.actors.values():
        for put in actor.table("runs").values():
            if put.value.parent is not None and put.value.parent.actor_id == run_id:
                found += [actor.id, *descendants(disk, actor.id)]
    return found


def _branches(executions: dict[str, NodeExecution], execution: NodeExecution) -> str:
    """Return the names of the branches that the execution is in, outermost first."""
    by_token = {each.token_id: each for each in executions.values()}
    branch, names = executions[execution.id].branch, ""
    while branch is not None:
        names = f"/{branch.name}{names}"
        parent = by_token.get(branch.parent_id)
        branch = None if parent is None else parent.branch
    return names


def _check_wait(started: NodeExecution, ended: NodeExecution) -> None:
    """Check that a wait that ended by its time did not end before it."""
    if ended.target == "wait" and isinstance(ended.output, dict) and not ended.output.get("received"):
        waited_ms = ended.completed_ms - started.started_ms
        duration_ms = _durations().get(ended.node_id, 0)
        assert waited_ms >= duration_ms, f"{ended.node_id} waited {waited_ms} of {duration_ms} ms"


def _durations() -> dict[str, int]:
    """Return the duration of each waiting node. No two workflows of the corpus share the name of one."""
    nodes = [node for workflow in definitions().workflows.values() for node in workflow.spec.nodes]
    return {node.id: node.wait.duration_ms for node in nodes if node.wait is not None and node.id != "meet"}


# --- turns --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TurnRecord:
    """The record of a turn, without values that differ between executions."""

    names: Counter[str]
    """Names of its events."""
    contents: tuple[str, ...]
    """Contents of its messages."""


def turn_record(events: Sequence[Event], turn_id: str, marker: str) -> TurnRecord:
    """Return the record of a turn. ``marker`` is the part of its texts that differs between turns."""
    own = [event for event in events if event.emit.turn_id == turn_id]
    contents = [event.emit.value.content for event in own if event.emit.kind == "message_appended"]
    return TurnRecord(
        names=Counter(event.emit.name for event in own),
        contents=tuple(_plain(content, marker) for content in contents),
    )


def only_tools(record: TurnRecord) -> TurnRecord:
    """Return the part of a record that does not depend on the moment at which a result arrives."""
    names = {name: count for name, count in record.names.items() if name.startswith("tool.")}
    return TurnRecord(names=Counter(names), contents=())


def _plain(text: str, marker: str) -> str:
    return _IDS.sub("ID", text).replace(marker, "MARKER")


def differs(found: object, expected: object) -> bool:
    """Return True if a result differs from the expected one and no fault outside the server explains it.

    A crash in the middle of an effect that must not be repeated ends it with OUTCOME_UNKNOWN. What follows
    then differs.
    """
    if found == expected:
        return False
    if isinstance(found, TurnRecord) and isinstance(expected, TurnRecord):
        return found.names["tool.failed"] <= expected.names["tool.failed"]
    if isinstance(found, tuple):
        return True
    assert isinstance(found, list)
    return not any(each.reason in EXCUSES for each in found)
