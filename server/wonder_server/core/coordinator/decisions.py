"""What a run's planner decides, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from wonder_server.core.commands import Parent
from wonder_server.core.coordinator.values import (
    ContextValue,
    Execution,
    NodeOperation,
    Pinned,
    Run,
    Token,
)
from wonder_server.core.errors import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun:
    run: Run
    pinned: Pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveToken:
    """The token stands at a node now, or has ended there."""

    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchNode:
    """Hand the node's target out."""

    execution: Execution
    operation: NodeOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordExecution:
    """A node has ended; its operation leaves the outbox."""

    execution: Execution
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetContext:
    value: ContextValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RedispatchNode:
    operation: NodeOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """Nobody waits for this node any more."""

    operation: NodeOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """The run completed, failed or was cancelled; its parent, if it has one, is told."""

    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAgain:
    """The run had ended already when it was started again; its answer may have been lost."""

    run: Run
    parent: Parent


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseRun:
    """The input is not acceptable now. Nothing changes; the caller is told."""

    fault: Fault


Decision = (
    StartRun
    | MoveToken
    | DispatchNode
    | RecordExecution
    | SetContext
    | RedispatchNode
    | StopNode
    | EndRun
    | AnswerAgain
    | RefuseRun
)
