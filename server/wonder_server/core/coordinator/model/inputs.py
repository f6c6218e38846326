"""Inputs of a run's planner, as frozen values."""

from __future__ import annotations

from typing import final

from wonder_server.core.actor.commands import Parent, Scope
from wonder_server.core.actor.gates import ResolveGate
from wonder_server.core.coordinator.model.values import ContextValue, FanOut, NodeExecution, Signal, Token
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import Usage


@final
class Start(Value, frozen=True, kw_only=True):
    """Start a run. A second start of a run only repeats its result, if it has ended.

    ``timeout_ms`` limits the run's duration in addition to the workflow's own timeout; 0 is no additional
    limit.
    """

    run_id: str
    workflow: PinnedWorkflow
    input: JsonDict
    scope: Scope
    parent: Parent | None = None
    volatile: bool = False
    metadata: JsonDict = field(default_factory=dict)
    timeout_ms: int = 0


class ForkSource(Value, frozen=True, kw_only=True):
    """The record of another run up to a chosen point, which a fork copies.

    ``executions`` are the node executions that had ended and those that had not; the latter run again.
    """

    run_id: str
    tokens: tuple[Token, ...]
    fan_outs: tuple[FanOut, ...] = field(name="forks")
    executions: tuple[NodeExecution, ...]
    context: tuple[ContextValue, ...]
    signals: tuple[Signal, ...] = ()


class StartFork(Value, frozen=True, kw_only=True):
    """Start a run from a point in another run's journal (feature G9)."""

    run_id: str
    workflow: PinnedWorkflow
    input: JsonDict
    scope: Scope
    source: ForkSource = field(name="past")
    metadata: JsonDict = field(default_factory=dict)


class NodeSucceeded(Value, frozen=True, kw_only=True):
    """The result of an operation. ``run_id`` is the child run that sends it, or empty."""

    operation_id: str
    output: JsonValue
    run_id: str = ""


class NodeFailed(Value, frozen=True, kw_only=True):
    """The fault of an operation. ``run_id`` is the child run that sends it, or empty."""

    operation_id: str
    fault: Fault
    run_id: str = ""


class NodeTimerFired(Value, frozen=True, kw_only=True):
    """The wake time of an operation has been reached."""

    operation_id: str


class NodeRestarted(Value, frozen=True, kw_only=True):
    """The server restarted and found this operation in the run's outbox."""

    operation_id: str


class EventEmitted(Value, frozen=True, kw_only=True):
    """An ``event`` action of the operation's task emitted an event. ``key`` identifies the event within the
    operation."""

    operation_id: str
    key: str
    name: str
    payload: JsonDict


class RunUsageReported(Value, frozen=True, kw_only=True):
    """Usage of a model call below this root run, outside of turns.

    ``charge_id`` is unique to the input. ``calls`` is the number of calls; 0 if their start was counted
    already. ``settles``: the call was counted at its start as a call without a known price. ``accounts`` are
    the ids of the accounts to charge beside the run's: of the project and the agent.
    """

    charge_id: str
    usage: Usage
    calls: int = 1
    settles: bool = False
    accounts: tuple[str, ...] = ()


class ReceiveSignal(Value, frozen=True, kw_only=True):
    """A signal to the run. ``principal`` is its authenticated sender, as in `Scope`."""

    name: str
    payload: JsonValue = None
    user_id: str = ""
    principal: str = ""


class CancelRun(Value, frozen=True, kw_only=True):
    """Cancel the run. ``principal`` is the authenticated caller that cancels it, as in `Scope`."""

    reason: str = ""
    principal: str = ""


Input = (
    Start
    | StartFork
    | NodeSucceeded
    | NodeFailed
    | NodeTimerFired
    | NodeRestarted
    | EventEmitted
    | RunUsageReported
    | ReceiveSignal
    | ResolveGate
    | CancelRun
)
