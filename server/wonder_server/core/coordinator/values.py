"""What a workflow run is made of: the rows of its record, as frozen values (document 5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from wonder_server.core.commands import Parent, Scope
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault


class RunStatus(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TokenStatus(StrEnum):
    WAITING_FOR_TASK = "waiting_for_task"
    WAITING_FOR_SUBWORKFLOW = "waiting_for_subworkflow"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of one revision of a workflow.

    ``parent`` is who waits for it, None for a run that a client started. ``executions`` counts its node
    executions. Times are milliseconds since 1970; 0 means "not yet".
    """

    id: str
    workflow_ref: str
    workflow_id: str
    scope: Scope
    parent: Parent | None = None
    volatile: bool = False
    status: RunStatus = RunStatus.RUNNING
    input: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    fault: Fault | None = None
    executions: int = 0
    version: int = 1
    created_ms: int = 0
    completed_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The graph that an unfinished run executes."""

    run_id: str
    workflow: PinnedWorkflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Where the run stands. A sequence has one; graphs with fan-out will have more."""

    id: str
    run_id: str
    node_id: str
    status: TokenStatus
    created_ms: int = 0
    updated_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution of one node; its result is recorded once (feature G7)."""

    id: str
    run_id: str
    ordinal: int
    node_id: str
    status: str = "running"
    output: Any = None
    fault: Fault | None = None
    started_ms: int = 0
    completed_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextValue:
    """One top-level entry of the run's context: ``section`` is ``state`` or ``output``."""

    run_id: str
    section: str
    key: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOperation:
    """A node's task or sub-workflow, dispatched: the run's outbox.

    ``wake_ms`` is its deadline, 0 for none (a task has its own).
    """

    id: str
    token_id: str
    execution_id: str
    node_id: str
    run_id: str
    ordinal: int
    input: dict[str, Any]
    child_run_id: str = ""
    dispatches: int = 1
    timeout_ms: int = 0
    wake_ms: int = 0
    repeatable: bool = True
    created_ms: int = 0
