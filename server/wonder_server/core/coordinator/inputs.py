"""Everything that can happen to a run: the inputs of its planner, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wonder_server.core.commands import Parent, Scope
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Begin. A second start of the same run only repeats its answer, if it has ended."""

    run_id: str
    workflow: PinnedWorkflow
    input: dict[str, Any]
    scope: Scope
    parent: Parent | None = None
    volatile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSucceeded:
    operation_id: str
    output: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed:
    operation_id: str
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWoken:
    """A node's deadline has come."""

    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRestarted:
    """The server has started again and found this operation in the run's outbox."""

    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRun:
    reason: str = ""


Input = Start | NodeSucceeded | NodeFailed | NodeWoken | NodeRestarted | CancelRun
