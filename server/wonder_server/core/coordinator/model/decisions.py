"""Decisions of a run's planner, as frozen values.

Each class is ``final``, so that the type checker narrows by ``type(decision) is MoveToken`` as by ``case
MoveToken()``. For these classes a ``case`` that does not match costs five times as much, and the planner
makes thousands of decisions a second.
"""

from __future__ import annotations

from typing import final

from wonder_server.core.actor.commands import Parent
from wonder_server.core.actor.gates import Gate
from wonder_server.core.budget import Account
from wonder_server.core.coordinator.model.progress import ExecutionEnd, RunProgress
from wonder_server.core.coordinator.model.values import (
    ContextValue,
    EmittedEvent,
    FanOut,
    NodeExecution,
    Operation,
    Pinned,
    Run,
    Signal,
    Token,
)
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field


@final
class StartRun(Value, frozen=True, kw_only=True):
    run: Run
    pinned: Pinned


@final
class SetRunStatus(Value, frozen=True, kw_only=True):
    """The run changes between ``running`` and ``waiting``."""

    run: RunProgress


@final
class MoveToken(Value, frozen=True, kw_only=True):
    """The token is created, changes its node or status, or ends."""

    token: Token


@final
class CountBranches(Value, frozen=True, kw_only=True):
    """A forked token updates its branch counters. There is no event."""

    token: Token


@final
class OpenFanOut(Value, frozen=True, kw_only=True):
    """The token's branches begin."""

    fan_out: FanOut = field(name="fork")


@final
class CloseFanOut(Value, frozen=True, kw_only=True):
    """The token's branches have been joined, or all of them have ended."""

    token_id: str


@final
class JoinBranches(Value, frozen=True, kw_only=True):
    """Branches that waited at their fan-in are joined and end. The node that begins next has the event."""

    tokens: tuple[Token, ...]


@final
class DispatchNode(Value, frozen=True, kw_only=True):
    """A node execution begins: the token waits for its operation."""

    execution: NodeExecution
    operation: Operation
    token: Token | None = None
    """None in old journals, which have a `MoveToken` before this decision."""


@final
class RecordExecution(Value, frozen=True, kw_only=True):
    """A node execution has ended; its operation leaves the outbox."""

    execution: ExecutionEnd


@final
class KeepExecution(Value, frozen=True, kw_only=True):
    """A fork copies a node execution that had ended."""

    execution: NodeExecution


@final
class SetContext(Value, frozen=True, kw_only=True):
    value: ContextValue


@final
class RetryNode(Value, frozen=True, kw_only=True):
    """An attempt failed. The next one starts after its backoff."""

    execution: NodeExecution
    operation: Operation


@final
class RedispatchNode(Value, frozen=True, kw_only=True):
    """Dispatch a pending operation again, after its backoff or after a restart of the server."""

    operation: Operation


@final
class StopNode(Value, frozen=True, kw_only=True):
    """The operation is cancelled."""

    operation: Operation


@final
class SetTimer(Value, frozen=True, kw_only=True):
    """Start a timer of the run or of a fan-in."""

    operation: Operation


@final
class ClearTimer(Value, frozen=True, kw_only=True):
    operation_id: str


@final
class OpenGate(Value, frozen=True, kw_only=True):
    gate: Gate


@final
class CloseGate(Value, frozen=True, kw_only=True):
    """A person resolved the gate, it expired, or its node or run ended."""

    gate: Gate


@final
class RecordSignal(Value, frozen=True, kw_only=True):
    """A signal arrived."""

    signal: Signal


@final
class KeepSignal(Value, frozen=True, kw_only=True):
    """A newer signal of the same name arrived before a node consumed this one, which stays queued."""

    signal: Signal


@final
class TakeSignal(Value, frozen=True, kw_only=True):
    """A node consumes the signal. ``newest``: it is the newest of its name and stays readable."""

    signal: Signal
    newest: bool = True


@final
class RecordEvent(Value, frozen=True, kw_only=True):
    """An ``event`` action emitted an event."""

    emitted: EmittedEvent
    operation: Operation


@final
class ChargeRun(Value, frozen=True, kw_only=True):
    """Add usage to the accounts of the run, its project and its agent. There is no event."""

    charge_id: str
    accounts: tuple[str, ...]
    amount: Account


@final
class EndRun(Value, frozen=True, kw_only=True):
    """The run completed, failed or was cancelled. Its parent, if it has one, receives the result."""

    run: RunProgress


@final
class AnswerAgain(Value, frozen=True, kw_only=True):
    """A run that had ended was started again; its result may have been lost."""

    run: Run
    parent: Parent


@final
class RefuseRun(Value, frozen=True, kw_only=True):
    """The input is rejected. Nothing changes; the caller receives the fault."""

    fault: Fault


Decision = (
    StartRun
    | SetRunStatus
    | MoveToken
    | CountBranches
    | OpenFanOut
    | CloseFanOut
    | JoinBranches
    | DispatchNode
    | RecordExecution
    | KeepExecution
    | SetContext
    | RetryNode
    | RedispatchNode
    | StopNode
    | SetTimer
    | ClearTimer
    | OpenGate
    | CloseGate
    | RecordSignal
    | KeepSignal
    | TakeSignal
    | RecordEvent
    | ChargeRun
    | EndRun
    | AnswerAgain
    | RefuseRun
)
