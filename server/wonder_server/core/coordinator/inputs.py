"""Everything that can happen to a run: the inputs of its planner, as frozen values."""

from __future__ import annotations

from typing import Any, final

from wonder_server.core.actor.commands import Parent, Scope
from wonder_server.core.coordinator.values import ContextValue, Fork, NodeExecution, Signal, Token
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field


@final
class Start(Value, frozen=True, kw_only=True):
    """Begin. A second start of the same run only repeats its answer, if it has ended.

    ``timeout_ms`` is how long it may take, beside what its workflow says; 0 for no more than that.
    """

    run_id: str
    workflow: PinnedWorkflow
    input: dict[str, Any]
    scope: Scope
    parent: Parent | None = None
    volatile: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    timeout_ms: int = 0


class ForkSource(Value, frozen=True, kw_only=True):
    """Another run's record up to a chosen point: what a fork takes over.

    ``executions`` are those that had ended, and those that had not, which run again.
    """

    run_id: str
    tokens: tuple[Token, ...]
    forks: tuple[Fork, ...]
    executions: tuple[NodeExecution, ...]
    context: tuple[ContextValue, ...]
    signals: tuple[Signal, ...] = ()


class StartFork(Value, frozen=True, kw_only=True):
    """Begin where another run stood (feature G9)."""

    run_id: str
    workflow: PinnedWorkflow
    input: dict[str, Any]
    scope: Scope
    source: ForkSource = field(name="past")
    metadata: dict[str, Any] = field(default_factory=dict)


class NodeSucceeded(Value, frozen=True, kw_only=True):
    """``run_id`` is the child that says so, if one does."""

    operation_id: str
    output: Any
    run_id: str = ""


class NodeFailed(Value, frozen=True, kw_only=True):
    """``run_id`` is the child that says so, if one does."""

    operation_id: str
    fault: Fault
    run_id: str = ""


class NodeTimerFired(Value, frozen=True, kw_only=True):
    """An operation's time has come."""

    operation_id: str


class NodeRestarted(Value, frozen=True, kw_only=True):
    """The server has started again and found this operation in the run's outbox."""

    operation_id: str


class EventEmitted(Value, frozen=True, kw_only=True):
    """An ``event`` action of the operation's task said something. ``key`` tells it from its others."""

    operation_id: str
    key: str
    name: str
    payload: dict[str, Any]


class ReceiveSignal(Value, frozen=True, kw_only=True):
    name: str
    payload: Any = None
    user_id: str = ""


class ResolveGate(Value, frozen=True, kw_only=True):
    """Somebody answers at a gate, having seen ``shown_hash``."""

    gate_id: str
    approve: bool
    shown_hash: str
    answer: dict[str, Any] | None = None
    comment: str = ""
    user_id: str = ""


class CancelRun(Value, frozen=True, kw_only=True):
    reason: str = ""


Input = (
    Start
    | StartFork
    | NodeSucceeded
    | NodeFailed
    | NodeTimerFired
    | NodeRestarted
    | EventEmitted
    | ReceiveSignal
    | ResolveGate
    | CancelRun
)
