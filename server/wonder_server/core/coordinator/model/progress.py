"""The fields of a run and of a node execution that change, as decisions carry them.

The input of a run and that of a node never change, so only the decisions that start them have it. Decisions
repeated both: a run's input stood in its start, each change of its status and its end. The classes have the
names and defaults of the rows' own fields, so whole rows in the decisions of older journals are read as them.
"""

from __future__ import annotations

from wonder_server.core.coordinator.model.values import ExecutionStatus, NodeExecution, Run, RunStatus
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field, replace
from wonder_server.core.json_types import JsonDict, JsonValue


class RunProgress(Value, frozen=True, kw_only=True):
    """The status and the outcome of a run."""

    id: str
    status: RunStatus = RunStatus.RUNNING
    output: JsonDict = field(default_factory=dict)
    fault: Fault | None = None
    executions: int = 0
    updated_ms: int = 0
    completed_ms: int = 0
    cancelled_by: str = ""


def progress_of(run: Run) -> RunProgress:
    """Return the progress of ``run``."""
    return RunProgress(
        id=run.id,
        status=run.status,
        output=run.output,
        fault=run.fault,
        executions=run.executions,
        updated_ms=run.updated_ms,
        completed_ms=run.completed_ms,
        cancelled_by=run.cancelled_by,
    )


def with_progress(run: Run, progress: RunProgress) -> Run:
    """Return ``run`` with ``progress`` in place of its own."""
    return replace(
        run,
        status=progress.status,
        output=progress.output,
        fault=progress.fault,
        executions=progress.executions,
        updated_ms=progress.updated_ms,
        completed_ms=progress.completed_ms,
        cancelled_by=progress.cancelled_by,
    )


class ExecutionEnd(Value, frozen=True, kw_only=True):
    """The end of a node execution: its status and its result."""

    id: str
    status: ExecutionStatus = ExecutionStatus.RUNNING
    output: JsonValue = None
    fault: Fault | None = None
    completed_ms: int = 0


def ended(execution: NodeExecution, end: ExecutionEnd) -> NodeExecution:
    """Return ``execution`` with its end."""
    return replace(
        execution, status=end.status, output=end.output, fault=end.fault, completed_ms=end.completed_ms
    )
