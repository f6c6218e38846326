"""What one input leads to, while it is being planned.

The working set is only read. What is decided goes to `Draft.decided`, and reads through the draft see it at
once: a token that moved, a value that was written, a branch that ended. Going on somewhere is put on an
agenda rather than called, so that a thousand branches that meet at once need no deep recursion, and their
order is that of the branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from wonder_server.core import expressions
from wonder_server.core.coordinator.compiled_graph import CompiledGraph, compile_graph
from wonder_server.core.coordinator.decisions import (
    ClearTimer,
    CloseFork,
    CloseGate,
    CountBranches,
    Decision,
    DispatchNode,
    EndRun,
    JoinBranches,
    KeepExecution,
    KeepSignal,
    MoveToken,
    OpenFork,
    OpenGate,
    RecordExecution,
    RecordSignal,
    RedispatchNode,
    RetryNode,
    SetContext,
    SetRunStatus,
    SetTimer,
    StopNode,
    TakeSignal,
)
from wonder_server.core.coordinator.state import BUSY, RunState
from wonder_server.core.coordinator.values import (
    ENDED_TOKEN_STATUSES,
    ContextValue,
    ExecutionStatus,
    Fork,
    Gate,
    GateStatus,
    NodeExecution,
    Operation,
    OperationKind,
    Pinned,
    Run,
    RunStatus,
    Signal,
    Token,
    TokenStatus,
)
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter

ROOT = "t"
"""Id of a run's first token. A branch's is its parent's, the hop at which that fanned out, its index."""

Decisions = tuple[Decision, ...]

Step = tuple[Literal["arrive", "begin", "resolve"], Token, str]
"""Something that is still to be planned about a token, and the node that it is about, if it is about one.

``come``: it comes to a node, which may be where its branches meet. ``begin``: the node begins. ``settle``:
something happened to a branch of its fan-out.
"""

_RUNNING, _WAITING = RunStatus.RUNNING, RunStatus.WAITING
_COMPLETED, _WAITING_FOR_SIBLINGS = TokenStatus.COMPLETED, TokenStatus.WAITING_FOR_SIBLINGS
"""By name, since a word of an enum is slow to ask for."""


class PlanBuilder:
    """The decisions about one input to a run that has started."""

    def __init__(self, state: RunState, run: Run, pinned: Pinned, seed: str, now: int) -> None:
        self.run = run
        self.workflow: PinnedWorkflow = pinned.workflow
        self.compiled: CompiledGraph = compile_graph(pinned.workflow)
        self.now = now
        self._seed = seed
        self._minter: Minter | None = None
        self.ordinal = state.ordinal
        self.decided: list[Decision] = []
        self.ended = False
        """The run has ended; nothing goes on."""
        self._state = state
        self._tokens: dict[str, Token] = {}
        self._created: dict[str, list[str]] = {}
        self._arrived: dict[str, list[str]] = {}
        self._forks: dict[str, Fork | None] = {}
        self._operations: dict[str, Operation | None] = {}
        self._operation_of: dict[str, str] = {}
        self._executions: dict[str, NodeExecution] = {}
        self._gates: dict[str, Gate | None] = {}
        self._signals = state.signals
        self._queued_signals = state.queued_signals
        self._context = {"state": state.state, "output": state.output}
        self._branches: dict[str, dict[str, Any]] = {}
        self.agenda: list[Step] = []

    def finish(self) -> Decisions:
        """Everything that was decided."""
        if not self.ended:
            status = _RUNNING if self._busy() else _WAITING
            if status is not self.run.status:
                self.run = replace(self.run, status=status, updated_ms=self.now)
                self.decided.append(SetRunStatus(run=self.run))
        return tuple(self.decided)

    def _busy(self) -> bool:
        """Whether a token keeps the run from waiting."""
        before, busy = self._state.tokens, self._state.busy_tokens
        for token_id, token in self._tokens.items():
            busy += token.status in BUSY
            known = before.get(token_id)
            if known is not None:
                busy -= known.status in BUSY
        return busy > 0

    def new_id(self, prefix: str) -> str:
        """The next id that this input leads to."""
        if self._minter is None:
            self._minter = Minter(self._seed, self.now)
        return self._minter.new(prefix)

    # --- tokens -----------------------------------------------------------------------------------

    def token(self, token_id: str) -> Token:
        return self._tokens.get(token_id) or self._state.tokens[token_id]

    def live(self, token_id: str) -> Token | None:
        """The token if it has not ended."""
        token = self._tokens.get(token_id) or self._state.tokens.get(token_id)
        return None if token is None or token.status in ENDED_TOKEN_STATUSES else token

    def move(self, token: Token, status: TokenStatus, **changes: Any) -> Token:
        """The token stands otherwise now."""
        moved = replace(token, status=status, updated_ms=self.now, **changes)
        self._tokens[moved.id] = moved
        self.decided.append(MoveToken(token=moved))
        return moved

    def join(self, tokens: list[Token]) -> None:
        """Branches that stand at their fan-in end there."""
        ended = tuple([replace(token, status=_COMPLETED, updated_ms=self.now) for token in tokens])
        self._tokens.update({token.id: token for token in ended})
        self.decided.append(JoinBranches(tokens=ended))

    def token_created(self, token: Token) -> None:
        """A branch is there; where it stands is decided when its turn comes, in this same step."""
        self._tokens[token.id] = token
        self._created.setdefault(token.parent_id, []).append(token.id)

    @property
    def live_tokens(self) -> int:
        """At how many places the run is."""
        return len(self._state.tokens) + sum(map(len, self._created.values()))

    def count(self, token: Token) -> Token:
        """Note what a forked token has counted."""
        self._tokens[token.id] = token
        self.decided.append(CountBranches(token=token))
        return token

    def children(self, token_id: str) -> list[Token]:
        """The live branches of a token, in their order."""
        known = [*self._state.children.get(token_id, ()), *self._created.get(token_id, ())]
        live = [token for each in known if (token := self.live(each)) is not None]
        return sorted(live, key=lambda each: each.branch_index)

    def arrived(self, token_id: str) -> list[str]:
        """The branches that stand at the fan-in, in the order in which they came."""
        return [*self._arrived_before(token_id), *self._arrived.get(token_id, ())]

    def arrived_count(self, token_id: str) -> int:
        """How many of a token's branches stand at the fan-in."""
        return len(self._arrived_before(token_id)) + len(self._arrived.get(token_id, ()))

    def _arrived_before(self, token_id: str) -> Sequence[str]:
        """Those that have been there already, unless its fan-out is a new one."""
        return () if self._forks.get(token_id) is not None else self._state.arrived.get(token_id, ())

    def arrive(self, token: Token, node_id: str) -> int:
        """The token stands at the fan-in and waits for its siblings; how many of them stand there now."""
        self._arrived.setdefault(token.parent_id, []).append(token.id)
        arrived = self.arrived_count(token.parent_id)
        self.move(token, _WAITING_FOR_SIBLINGS, node_id=node_id, arrival=arrived, waits_for_id="")
        return arrived

    def wait_at_node(self, token: Token) -> None:
        """A token that was taken over stands at the fan-in where it stood."""
        siblings = self._arrived.setdefault(token.parent_id, [])
        siblings.append(token.id)
        siblings.sort(key=lambda each: self.token(each).arrival)
        self.move(token, _WAITING_FOR_SIBLINGS)

    # --- fan-outs ---------------------------------------------------------------------------------

    def fork(self, token_id: str) -> Fork | None:
        """The open fan-out of a token."""
        if token_id in self._forks:
            return self._forks[token_id]
        return self._state.forks.get(token_id)

    def open(self, fork: Fork) -> None:
        self._forks[fork.token_id] = fork
        self._arrived[fork.token_id] = []
        self.decided.append(OpenFork(fork=fork))

    def close(self, token_id: str) -> None:
        """The fan-out is over, and with it its timer."""
        for operation in self.timers(token_id):
            self._operations[operation.id] = None
            self.decided.append(ClearTimer(operation_id=operation.id))
        self._forks[token_id] = None
        self.decided.append(CloseFork(token_id=token_id))

    def timers(self, token_id: str) -> list[Operation]:
        """The timer of a token's fan-out, if it runs; with an empty id, that of the run."""
        timer_id = timer(self.run.id, self.token(token_id) if token_id else None)
        operation = self.operation(timer_id)
        return [] if operation is None else [operation]

    def set_timer(self, kind: OperationKind, token: Token | None, until_ms: int) -> None:
        operation = Operation(
            id=timer(self.run.id, token),
            run_id=self.run.id,
            kind=kind,
            token_id=token.id if token else "",
            until_ms=until_ms,
            created_ms=self.now,
        )
        self._operations[operation.id] = operation
        self.decided.append(SetTimer(operation=operation))

    # --- what nodes wait for ----------------------------------------------------------------------

    def operation(self, operation_id: str) -> Operation | None:
        if operation_id in self._operations:
            return self._operations[operation_id]
        return self._state.operations.get(operation_id)

    def operation_of(self, token: Token) -> Operation | None:
        """What the token's node waits for."""
        known = self._operation_of.get(token.id) or self._state.operation_of.get(token.id, "")
        return self.operation(known)

    def execution(self, operation: Operation) -> NodeExecution:
        return self._executions.get(operation.id) or self._state.executions[operation.id]

    def gate_of(self, operation: Operation) -> Gate | None:
        """The open gate that an operation waits at."""
        gate_id = operation.child_id
        return self._gates[gate_id] if gate_id in self._gates else self._state.gates.get(gate_id)

    def waiting_for(self, signal: str) -> list[Operation]:
        """The operations of nodes that wait for a signal, in an order that no restart changes."""
        found = [
            each
            for each in self._state.operations.values()
            if each.kind is OperationKind.WAIT
            and (wait := self.compiled[each.node_id].node.wait) is not None
            and wait.signal == signal
        ]
        return sorted(found, key=lambda each: (each.created_ms, each.key))

    def dispatch(self, token: Token, execution: NodeExecution, operation: Operation) -> None:
        """The token waits for its node's target, which is handed out."""
        self._tokens[token.id] = token
        self.ordinal = execution.ordinal
        self._executions[operation.id] = execution
        self._operations[operation.id] = operation
        self._operation_of[operation.token_id] = operation.id
        self.decided.append(DispatchNode(execution=execution, operation=operation, token=token))

    def retry(self, execution: NodeExecution, operation: Operation) -> None:
        self._executions[operation.id] = execution
        self._operations[operation.id] = operation
        self.decided.append(RetryNode(execution=execution, operation=operation))

    def redispatch(self, operation: Operation) -> None:
        self._operations[operation.id] = operation
        self.decided.append(RedispatchNode(operation=operation))

    def stop(self, operation: Operation) -> None:
        """Nobody waits for what carries the operation out; its execution is still to be recorded."""
        self.decided.append(StopNode(operation=operation))

    def record(
        self, operation: Operation, status: ExecutionStatus, output: Any = None, fault: Fault | None = None
    ) -> None:
        """The node's execution has ended; its operation leaves the outbox."""
        execution = replace(
            self.execution(operation), status=status, output=output, fault=fault, completed_ms=self.now
        )
        self._operations[operation.id] = None
        self.decided.append(RecordExecution(execution=execution))

    def keep_execution(self, kept: KeepExecution) -> None:
        """Take over an execution of another run."""
        self.ordinal = max(self.ordinal, kept.execution.ordinal)
        self.decided.append(kept)

    def open_gate(self, gate: Gate) -> None:
        self._gates[gate.id] = gate
        self.decided.append(OpenGate(gate=gate))

    def close_gate(self, gate: Gate, status: GateStatus, **resolution: Any) -> Gate:
        closed = replace(gate, status=status, resolved_ms=self.now, **resolution)
        self._gates[gate.id] = None
        self.decided.append(CloseGate(gate=closed))
        return closed

    # --- context ----------------------------------------------------------------------------------

    def scope(self, token: Token | None) -> dict[str, Any]:
        """What expressions see where the token is."""
        scope: dict[str, Any] = {
            "input": self.run.input,
            "state": self._context["state"],
            "output": self._context["output"],
            "signals": {name: signal.payload for name, signal in self._signals.items()}
            if self._signals
            else {},
        }
        if token is not None and token.parent_id:
            scope.update(self.branch_scope(token))
        return scope

    def branch_scope(self, token: Token) -> dict[str, Any]:
        """What expressions see of a branch."""
        fork = self.fork(token.parent_id)
        if fork is None:
            return {"branch": self._values(token.id), "item": None, "index": token.branch_index}
        start = fork.branches[token.branch_index]
        return {"branch": self._values(token.id), "item": start.item, "index": start.index}

    def entry(self, token: Token, target: str, value: Any) -> ContextValue:
        """What ``value`` at ``state.x``, ``output.x`` or ``branch.x``, or deeper, makes of the whole."""
        section, _, rest = target.partition(".")
        key, _, inner = rest.partition(".")
        token_id = token.id if section == "branch" else ""
        if inner:
            known = self._values(token.id) if token_id else self._context[section]
            value = expressions.assign(known, rest, value)[key]
        return ContextValue(run_id=self.run.id, section=section, key=key, value=value, token_id=token_id)

    def set(self, entry: ContextValue) -> None:
        """Put a value into the context."""
        if entry.token_id:
            self._branches[entry.token_id] = {**self._values(entry.token_id), entry.key: entry.value}
        else:
            self._context[entry.section] = {**self._context[entry.section], entry.key: entry.value}
        self.decided.append(SetContext(value=entry))

    @property
    def state_values(self) -> dict[str, Any]:
        return self._context["state"]

    @property
    def output_values(self) -> dict[str, Any]:
        return self._context["output"]

    def _values(self, token_id: str) -> dict[str, Any]:
        return self._branches.get(token_id) or self._state.branches.get(token_id) or {}

    # --- signals ----------------------------------------------------------------------------------

    def latest_signal(self, name: str) -> Signal | None:
        """The oldest signal of a name that no node has taken."""
        if missed := self._queued_signals.get(name):
            return missed[0]
        newest = self._signals.get(name)
        return None if newest is None or newest.consumed else newest

    def receive_signal(self, signal: Signal) -> None:
        """A signal is there; an earlier one that some node may still take stays in line."""
        before = self._signals.get(signal.name)
        if before is not None and not before.consumed and signal.name in self.compiled.graph.signals:
            self._queued_signals = {
                **self._queued_signals,
                signal.name: (*self._queued_signals.get(signal.name, ()), before),
            }
            self.decided.append(KeepSignal(signal=before))
        self._signals = dict(sorted({**self._signals, signal.name: signal}.items()))
        self.decided.append(RecordSignal(signal=signal))

    def take_signal(self, signal: Signal) -> None:
        """A node that waits for the signal goes on."""
        if self._signals[signal.name].number == signal.number:
            taken = replace(signal, consumed=True)
            self._signals = {**self._signals, signal.name: taken}
            self.decided.append(TakeSignal(signal=taken))
            return
        remaining = tuple(each for each in self._queued_signals[signal.name] if each.number != signal.number)
        self._queued_signals = {**self._queued_signals, signal.name: remaining}
        self.decided.append(TakeSignal(signal=signal, newest=False))

    # --- the end ----------------------------------------------------------------------------------

    def end(
        self, status: RunStatus, output: dict[str, Any] | None = None, fault: Fault | None = None
    ) -> None:
        """The run is over."""
        for operation in self.timers(""):
            self.decided.append(ClearTimer(operation_id=operation.id))
        self.run = replace(
            self.run,
            status=status,
            output=output or {},
            fault=fault,
            executions=self.ordinal,
            updated_ms=self.now,
            completed_ms=self.now,
        )
        self.decided.append(EndRun(run=self.run))
        self.ended = True


def timer(run_id: str, token: Token | None) -> str:
    """The id of a timer: of the run, or of the fan-out that a token is in."""
    return f"{run_id}/timer" if token is None else f"{run_id}/{token.id}/{token.hops}/timer"
