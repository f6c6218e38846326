"""What a run's planner decides, as frozen values.

Each is ``final``, so that the type checker learns from ``type(decision) is MoveToken`` as much as from
``case MoveToken()``. Of a struct's class the latter costs five times as much when the answer is no, and what
is asked about every decision is asked thousands of times a second.
"""

from __future__ import annotations

from typing import final

from wonder_server.core.actor.commands import Parent
from wonder_server.core.coordinator.values import (
    ContextValue,
    EmittedEvent,
    Fork,
    Gate,
    NodeExecution,
    Operation,
    Pinned,
    Run,
    Signal,
    Token,
)
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value


@final
class StartRun(Value, frozen=True, kw_only=True):
    run: Run
    pinned: Pinned


@final
class SetRunStatus(Value, frozen=True, kw_only=True):
    """The run waits now, or works again."""

    run: Run


@final
class MoveToken(Value, frozen=True, kw_only=True):
    """The token was made, stands elsewhere or otherwise, or has ended."""

    token: Token


@final
class CountBranches(Value, frozen=True, kw_only=True):
    """A forked token counts its branches anew; nobody outside has to know."""

    token: Token


@final
class OpenFork(Value, frozen=True, kw_only=True):
    """The token's branches begin."""

    fork: Fork


@final
class CloseFork(Value, frozen=True, kw_only=True):
    """They have met, or all of them are over."""

    token_id: str


@final
class JoinBranches(Value, frozen=True, kw_only=True):
    """Branches that stood at their fan-in have met there, and end; the node that begins next says so."""

    tokens: tuple[Token, ...]


@final
class DispatchNode(Value, frozen=True, kw_only=True):
    """The token stands at a node and waits for its target, which is handed out."""

    execution: NodeExecution
    operation: Operation
    token: Token | None = None
    """None in journals that say `MoveToken` before it."""


@final
class RecordExecution(Value, frozen=True, kw_only=True):
    """A node has ended; its operation leaves the outbox."""

    execution: NodeExecution


@final
class KeepExecution(Value, frozen=True, kw_only=True):
    """A fork takes over a node execution that had ended."""

    execution: NodeExecution


@final
class SetContext(Value, frozen=True, kw_only=True):
    value: ContextValue


@final
class RetryNode(Value, frozen=True, kw_only=True):
    """The node's attempt failed; the next one comes when its backoff is over."""

    execution: NodeExecution
    operation: Operation


@final
class RedispatchNode(Value, frozen=True, kw_only=True):
    """Hand an operation out again: after its backoff, or after a restart of the server."""

    operation: Operation


@final
class StopNode(Value, frozen=True, kw_only=True):
    """Nobody waits for this operation any more."""

    operation: Operation


@final
class SetTimer(Value, frozen=True, kw_only=True):
    """Wake me when it is time: for the whole run, or for a fan-in."""

    operation: Operation


@final
class ClearTimer(Value, frozen=True, kw_only=True):
    operation_id: str


@final
class OpenGate(Value, frozen=True, kw_only=True):
    gate: Gate


@final
class CloseGate(Value, frozen=True, kw_only=True):
    """Somebody resolved it, it expired, or the run ended before."""

    gate: Gate


@final
class RecordSignal(Value, frozen=True, kw_only=True):
    """A signal arrived."""

    signal: Signal


@final
class KeepSignal(Value, frozen=True, kw_only=True):
    """A newer signal of its name came before any node took this one: it stays in line."""

    signal: Signal


@final
class TakeSignal(Value, frozen=True, kw_only=True):
    """A node that waits for it goes on. ``newest``: it is the last of its name, and can still be read."""

    signal: Signal
    newest: bool = True


@final
class RecordEvent(Value, frozen=True, kw_only=True):
    """An ``event`` action said something."""

    emitted: EmittedEvent
    operation: Operation


@final
class EndRun(Value, frozen=True, kw_only=True):
    """The run completed, failed or was cancelled; its parent, if it has one, is told."""

    run: Run


@final
class AnswerAgain(Value, frozen=True, kw_only=True):
    """The run had ended already when it was started again; its answer may have been lost."""

    run: Run
    parent: Parent


@final
class RefuseRun(Value, frozen=True, kw_only=True):
    """The input is not acceptable now. Nothing changes; the caller is told."""

    fault: Fault


Decision = (
    StartRun
    | SetRunStatus
    | MoveToken
    | CountBranches
    | OpenFork
    | CloseFork
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
    | EndRun
    | AnswerAgain
    | RefuseRun
)
