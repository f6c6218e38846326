"""State of a run: its unfinished parts.

Ended tokens, executions and gates are only in the store. A step therefore costs the same at a run's first
node and at its ten thousandth.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wonder_server.core.actor.gates import Gate
from wonder_server.core.actor.planner import Rows
from wonder_server.core.coordinator.model.values import (
    ENDED_TOKEN_STATUSES,
    ContextValue,
    FanOut,
    NodeExecution,
    Operation,
    Pinned,
    Run,
    Signal,
    Token,
    TokenStatus,
)
from wonder_server.core.json_types import JsonDict, JsonValue

BUSY = frozenset({TokenStatus.WAITING_FOR_TASK, TokenStatus.WAITING_FOR_SUBWORKFLOW})
"""Token statuses that keep a run in status ``running``. Waiting for anything else may take long."""


@dataclass(slots=True)
class RunState:
    """State of a run. ``run`` is None until the run starts.

    ``children`` are the live branches of each forked token; ``arrived`` are those that wait at the fan-in, in
    order of arrival. ``operation_of`` maps a token to the operation that it waits for. ``branches`` are the
    context values of branches. ``signals`` are the newest of each name, ``queued_signals`` older ones that no
    node has consumed. ``ordinal`` is the number of the newest node execution. ``busy_tokens`` is the number
    of tokens that keep the run in status ``running``.
    """

    run: Run | None = None
    pinned: Pinned | None = None
    state: JsonDict = field(default_factory=dict)
    output: JsonDict = field(default_factory=dict)
    branches: dict[str, JsonDict] = field(default_factory=dict)
    signals: dict[str, Signal] = field(default_factory=dict)
    queued_signals: dict[str, tuple[Signal, ...]] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    children: dict[str, dict[str, None]] = field(default_factory=dict)
    arrived: dict[str, list[str]] = field(default_factory=dict)
    fan_outs: dict[str, FanOut] = field(default_factory=dict)
    executions: dict[str, NodeExecution] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    operation_of: dict[str, str] = field(default_factory=dict)
    gates: dict[str, Gate] = field(default_factory=dict)
    ordinal: int = 0
    busy_tokens: int = 0
    ended_execution: NodeExecution | None = field(default=None, compare=False, repr=False)
    """The node execution that the last decision ended, for its row."""

    def restore(self, rows: Rows) -> None:
        """Fill an empty state from the rows of a run."""
        self.run = next(iter(rows["runs"]), None)
        self.pinned = next(iter(rows["works"]), None)
        for token in rows["tokens"]:
            self.put_token(token)
        for siblings in self.arrived.values():
            siblings.sort(key=lambda each: self.tokens[each].arrival)
        for entry in rows["context"]:
            self.put_context(entry)
        for execution in rows["executions"]:  # The running ones and the newest.
            self.put_execution(execution)
        for operation in rows["operations"]:
            self.put_operation(operation)
        self.fan_outs = {fan_out.token_id: fan_out for fan_out in rows["forks"]}
        self.gates = {gate.id: gate for gate in rows["gates"]}
        for signal in sorted(rows["signals"], key=lambda each: each.number):
            known = self.signals.get(signal.name)
            if known is not None:
                self.queue_signal(known)
            self.put_signal(signal)

    def put_token(self, token: Token) -> None:
        """Replace a token, or remove it if it has ended."""
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
        """Replace a node execution, if it has not ended."""
        if execution.ordinal > self.ordinal:
            self.ordinal = execution.ordinal
        if not execution.completed_ms:
            self.executions[execution.id] = execution

    def put_operation(self, operation: Operation) -> None:
        """Replace an operation."""
        self.operations[operation.id] = operation
        if operation.node_id:
            self.operation_of[operation.token_id] = operation.id

    def remove_operation(self, operation_id: str) -> None:
        """Remove an operation."""
        operation = self.operations.pop(operation_id, None)
        if operation is not None and self.operation_of.get(operation.token_id) == operation_id:
            del self.operation_of[operation.token_id]

    def put_signal(self, signal: Signal) -> None:
        """Replace the newest signal of a name."""
        self.signals = _with(self.signals, signal.name, signal)

    def queue_signal(self, signal: Signal) -> None:
        """Append a signal to the queue of its name."""
        self.queued_signals[signal.name] = (*self.queued_signals.get(signal.name, ()), signal)

    def dequeue_signal(self, signal: Signal) -> None:
        """Remove a signal from the queue of its name."""
        remaining = tuple(each for each in self.queued_signals[signal.name] if each.number != signal.number)
        if remaining:
            self.queued_signals[signal.name] = remaining
        else:
            del self.queued_signals[signal.name]

    def put_context(self, entry: ContextValue) -> None:
        """Write an entry of the context."""
        match entry.section:
            case "state":
                self.state = _with(self.state, entry.key, entry.value)
            case "output":
                self.output = _with(self.output, entry.key, entry.value)
            case _:
                known = self.branches.get(entry.token_id)
                self.branches[entry.token_id] = _with(known or {}, entry.key, entry.value)


def _with(values: JsonDict, key: str, value: JsonValue) -> JsonDict:
    """Return a copy of the values with one more entry, in the order of the keys.

    A copy, because the values may be part of a node's input or output, or of themselves (``state.all:
    state``). Sorted, because expressions can iterate over the keys and a restart does not restore the order
    of insertion.
    """
    if not values:
        return {key: value}
    grown = {**values, key: value}
    if key in values or key > next(reversed(values)):
        return grown  # The new key is the last one, or keeps its place.
    return dict(sorted(grown.items()))
