"""The working set of one run: what its planner sees, and how decisions change it.

Only what has not ended is here; the rest is in the store. So a step costs the same whether it is a run's
first or its ten thousandth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wonder_server.core.actor.planner import Rows
from wonder_server.core.coordinator.values import (
    ENDED_TOKEN_STATUSES,
    ContextValue,
    Fork,
    Gate,
    NodeExecution,
    Operation,
    Pinned,
    Run,
    Signal,
    Token,
    TokenStatus,
)

BUSY = frozenset({TokenStatus.WAITING_FOR_TASK, TokenStatus.WAITING_FOR_SUBWORKFLOW})
"""What tokens do while a run is ``running``; what else they wait for may take long."""


@dataclass(slots=True)
class RunState:
    """``run`` is None until it starts.

    ``children`` are the live tokens of each forked one, ``arrived`` those of them that stand at the fan-in,
    in the order in which they came. ``operation_of`` finds the operation that a token waits for. ``branches``
    are the values that branches have written. ``signals`` are the newest of each name, ``missed`` older ones
    that no node has taken. ``ordinal`` is the number of the newest node execution, ``busy`` how many tokens
    keep the run from waiting.
    """

    run: Run | None = None
    pinned: Pinned | None = None
    state: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    branches: dict[str, dict[str, Any]] = field(default_factory=dict)
    signals: dict[str, Signal] = field(default_factory=dict)
    queued_signals: dict[str, tuple[Signal, ...]] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    children: dict[str, dict[str, None]] = field(default_factory=dict)
    arrived: dict[str, list[str]] = field(default_factory=dict)
    forks: dict[str, Fork] = field(default_factory=dict)
    executions: dict[str, NodeExecution] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    operation_of: dict[str, str] = field(default_factory=dict)
    gates: dict[str, Gate] = field(default_factory=dict)
    ordinal: int = 0
    busy_tokens: int = 0

    def restore(self, rows: Rows) -> None:
        """Become what the rows of a working set say."""
        self.run = next(iter(rows["runs"]), None)
        self.pinned = next(iter(rows["works"]), None)
        for token in rows["tokens"]:
            self.put_token(token)
        for siblings in self.arrived.values():
            siblings.sort(key=lambda each: self.tokens[each].arrival)
        for entry in rows["context"]:
            self.put_context(entry)
        for execution in rows["executions"]:  # all that run, and the newest
            self.put_execution(execution)
        for operation in rows["operations"]:
            self.put_operation(operation)
        self.forks = {fork.token_id: fork for fork in rows["forks"]}
        self.gates = {gate.id: gate for gate in rows["gates"]}
        for signal in sorted(rows["signals"], key=lambda each: each.number):
            known = self.signals.get(signal.name)
            if known is not None:
                self.queue_signal(known)
            self.put_signal(signal)

    def put_token(self, token: Token) -> None:
        token_id, parent_id, status = token.id, token.parent_id, token.status
        before = self.tokens.get(token_id)
        if before is not None and before.status in BUSY:
            self.busy_tokens -= 1
        if status in ENDED_TOKEN_STATUSES:
            self.tokens.pop(token_id, None)
            self.branches.pop(token_id, None)
            if parent_id in self.children:
                self.children[parent_id].pop(token_id, None)
            if before is not None and before.arrival and parent_id in self.arrived:
                self.arrived[parent_id].remove(token_id)
            return
        self.tokens[token_id] = token
        if status in BUSY:
            self.busy_tokens += 1
        if before is None and parent_id:
            self.children.setdefault(parent_id, {})[token_id] = None
        if token.arrival and (before is None or not before.arrival):
            self.arrived.setdefault(parent_id, []).append(token_id)

    def put_execution(self, execution: NodeExecution) -> None:
        if execution.ordinal > self.ordinal:
            self.ordinal = execution.ordinal
        if not execution.completed_ms:
            self.executions[execution.id] = execution

    def put_operation(self, operation: Operation) -> None:
        self.operations[operation.id] = operation
        if operation.node_id:
            self.operation_of[operation.token_id] = operation.id

    def remove_operation(self, operation_id: str) -> None:
        operation = self.operations.pop(operation_id, None)
        if operation is not None and self.operation_of.get(operation.token_id) == operation_id:
            del self.operation_of[operation.token_id]

    def put_signal(self, signal: Signal) -> None:
        self.signals = _with(self.signals, signal.name, signal)

    def queue_signal(self, signal: Signal) -> None:
        self.queued_signals[signal.name] = (*self.queued_signals.get(signal.name, ()), signal)

    def dequeue_signal(self, signal: Signal) -> None:
        remaining = tuple(each for each in self.queued_signals[signal.name] if each.number != signal.number)
        if remaining:
            self.queued_signals[signal.name] = remaining
        else:
            del self.queued_signals[signal.name]

    def put_context(self, entry: ContextValue) -> None:
        match entry.section:
            case "state":
                self.state = _with(self.state, entry.key, entry.value)
            case "output":
                self.output = _with(self.output, entry.key, entry.value)
            case _:
                known = self.branches.get(entry.token_id)
                self.branches[entry.token_id] = _with(known or {}, entry.key, entry.value)


def _with(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Values with one more, as another object: the one there is may be part of a node's input or output, or
    of itself (``state.all: state``). Expressions can go over its keys, so their order must not depend on
    which came first: a restart would forget that."""
    if not values:
        return {key: value}
    grown = {**values, key: value}
    if key in values or key > next(reversed(values)):
        return grown  # It stands where it belongs.
    return dict(sorted(grown.items()))
