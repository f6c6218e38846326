"""What a run's planner decides, as frozen values."""

from __future__ import annotations

from wonder_server.core.commands import Parent
from wonder_server.core.coordinator.values import (
    ContextValue,
    Emitted,
    Execution,
    Fork,
    Gate,
    Operation,
    Pinned,
    Run,
    Signal,
    Token,
)
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value


class StartRun(Value):
    run: Run
    pinned: Pinned


class SetRun(Value):
    """The run waits now, or works again."""

    run: Run


class MoveToken(Value):
    """The token was made, stands elsewhere or otherwise, or has ended."""

    token: Token


class OpenFork(Value):
    """The token's branches begin."""

    fork: Fork


class CloseFork(Value):
    """They have met, or all of them are over."""

    token_id: str


class DispatchNode(Value):
    """Hand the node's target out."""

    execution: Execution
    operation: Operation


class RecordExecution(Value):
    """A node has ended; its operation leaves the outbox."""

    execution: Execution


class KeepExecution(Value):
    """A fork takes over a node execution that had ended."""

    execution: Execution


class SetContext(Value):
    value: ContextValue


class RetryNode(Value):
    """The node's attempt failed; the next one comes when its backoff is over."""

    execution: Execution
    operation: Operation


class RedispatchNode(Value):
    """Hand an operation out again: after its backoff, or after a restart of the server."""

    operation: Operation


class StopNode(Value):
    """Nobody waits for this operation any more."""

    operation: Operation


class SetTimer(Value):
    """Wake me; or, of an operation that there is, note what its task has said."""

    operation: Operation


class ClearTimer(Value):
    operation_id: str


class OpenGate(Value):
    gate: Gate


class CloseGate(Value):
    """Somebody resolved it, it expired, or the run ended before."""

    gate: Gate


class RecordSignal(Value):
    """A signal arrived."""

    signal: Signal


class TakeSignal(Value):
    """A node that waits for it goes on."""

    signal: Signal


class RecordEvent(Value):
    """An ``event`` action said something."""

    emitted: Emitted
    operation: Operation


class EndRun(Value):
    """The run completed, failed or was cancelled; its parent, if it has one, is told."""

    run: Run


class AnswerAgain(Value):
    """The run had ended already when it was started again; its answer may have been lost."""

    run: Run
    parent: Parent


class RefuseRun(Value):
    """The input is not acceptable now. Nothing changes; the caller is told."""

    fault: Fault


Decision = (
    StartRun
    | SetRun
    | MoveToken
    | OpenFork
    | CloseFork
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
    | TakeSignal
    | RecordEvent
    | EndRun
    | AnswerAgain
    | RefuseRun
)
