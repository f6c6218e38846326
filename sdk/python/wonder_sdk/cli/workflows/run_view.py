"""The view of a run: its events as rows. Pure, without a terminal.

Each node execution has one row, in the order of the graph: the rows of a branch follow the node that fanned
out, branch by branch, not in the order of execution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from wonder_sdk import v1
from wonder_sdk.cli.workflows import run_graph
from wonder_sdk.conversation.subscriptions import RunItem
from wonder_sdk.methods.runs import ENDED

Status = v1.TokenStatus

WAIT_TEXTS = {
    Status.WAITING_FOR_SUBWORKFLOW: "a run works on it",
    Status.WAITING_FOR_AGENT: "an agent works on it",
    Status.WAITING_FOR_HUMAN: "waits for a person",
    Status.WAITING_FOR_SIGNAL: "waits for a signal or a time",
}
"""Texts for the states in which a node waits for a long time."""


@dataclass
class Row:
    """A node execution. ``depth`` is the number of fan-outs around it, ``label`` the name of its branch."""

    execution: v1.NodeExecution
    depth: int
    label: str
    waits: str = ""
    current_step: str = ""
    fault: v1.Fault | None = None
    """The failure of the previous attempt."""

    @property
    def is_open(self) -> bool:
        return self.execution.status is v1.NodeExecutionStatus.RUNNING

    @property
    def name(self) -> str:
        return f"{self.execution.node_id}{self.label}"


@dataclass
class _Branch:
    """A token with its rows, and its child branches by the number of rows before them."""

    token: v1.Token
    rows: list[Row] = field(default_factory=list)
    branches: dict[int, list[_Branch]] = field(default_factory=dict)


@dataclass
class RunView:
    """A run as of its latest event. ``cursor`` is the sequence of that event."""

    run: v1.Run = field(default_factory=v1.Run)
    cursor: int = 0
    gates: dict[str, v1.Gate] = field(default_factory=dict)
    """Pending gates by id."""
    nodes: dict[str, v1.Node] = field(default_factory=dict)
    """Nodes of the workflow by id, if known."""

    def __post_init__(self) -> None:
        self._branches: dict[str, _Branch] = {}
        self._rows: dict[str, Row] = {}
        self._roots: list[_Branch] = []
        self._arrivals: dict[tuple[str, str], tuple[int, int]] = {}
        self._early_progress: dict[str, v1.NodeProgress] = {}

    @classmethod
    def from_run(cls, run: v1.Run, nodes: dict[str, v1.Node] | None = None) -> RunView:
        """Return the view of a GetRun response: its newest tokens and executions."""
        view = cls(run, run.last_sequence, {gate.id: gate for gate in run.pending_gates}, nodes or {})
        tokens = {token.id: token for token in run.tokens}

        def reach(token_id: str) -> None:
            if token_id in tokens and token_id not in view._branches:
                reach(tokens[token_id].parent_token_id)
                view._token(tokens[token_id])

        # In the order of their start, so that branches follow the row from which they branched.
        for execution in run.node_executions:
            reach(execution.token_id)
            view._execution(execution)
        for token_id in tokens:
            reach(token_id)
        return view

    def reopen(self) -> None:
        """Reset the outcome: the events that ended the run are still to come."""
        self.run.status, self.run.output, self.run.error = v1.RunStatus.RUNNING, None, None
        self.gates.clear()

    @property
    def has_ended(self) -> bool:
        return self.run.status in ENDED

    @property
    def executions(self) -> int:
        """Number of node executions so far."""
        return len(self._rows)

    def apply(self, item: RunItem) -> None:
        """Apply an event or a progress message."""
        if isinstance(item, v1.NodeProgress):
            self._progress(item)
            return
        self.cursor = item.sequence
        match item:
            case (
                v1.RunEvent(workflow_started=v1.Run() as run)
                | v1.RunEvent(workflow_completed=v1.Run() as run)
                | v1.RunEvent(workflow_failed=v1.Run() as run)
                | v1.RunEvent(workflow_cancelled=v1.Run() as run)
            ):
                self.run = run
            case v1.RunEvent(token_moved=v1.Token() as token):
                self._token(token)
            case (
                v1.RunEvent(node_started=v1.NodeExecution() as execution)
                | v1.RunEvent(node_completed=v1.NodeExecution() as execution)
                | v1.RunEvent(node_failed=v1.NodeExecution() as execution)
                | v1.RunEvent(node_cancelled=v1.NodeExecution() as execution)
            ):
                self._execution(execution)
            case v1.RunEvent(gate_opened=v1.Gate() as gate):
                self.gates[gate.id] = gate
            case v1.RunEvent(gate_resolved=v1.Gate() as gate):
                self.gates.pop(gate.id, None)
            case _:
                pass

    def rows(self) -> Iterator[Row]:
        """Yield all rows in the order of the graph."""
        for root in self._roots:
            yield from _rows_of(root)

    def row_of(self, execution: v1.NodeExecution) -> Row:
        """Return the row of an execution that was applied."""
        return self._rows[execution.id]

    def path(self, token_id: str) -> list[str]:
        """Return the names of the branches around a token, outermost first."""
        names: list[str] = []
        branch = self._branches.get(token_id)
        while branch is not None and branch.token.branch_count:
            names.append(branch.token.branch or str(branch.token.branch_index))
            branch = self._branches.get(branch.token.parent_token_id)
        return names[::-1]

    def arrived_count(self, token: v1.Token) -> int:
        """Return the number of siblings, including the token, that wait at the token's fan-in."""
        return self._arrivals[token.parent_token_id, token.node_id][0]

    def fan_ins(self) -> list[tuple[str, int, int]]:
        """Return the fan-ins at which branches wait: node, arrived branches, all branches."""
        return [
            (node_id, arrived, total) for (_, node_id), (arrived, total) in self._arrivals.items() if arrived
        ]

    def wait_text(self, token: v1.Token) -> str:
        """Return the reason and the end of a token's wait, or ""."""
        waits = WAIT_TEXTS.get(token.status, "")
        if token.status is Status.WAITING_FOR_SIGNAL:
            return run_graph.wait_text(self.nodes.get(token.node_id), token.update_time) or waits
        return waits

    def _token(self, token: v1.Token) -> None:
        branch = self._branches.get(token.id)
        if branch is None:
            self._branch(token)
        else:
            self._count(branch.token, -1)
            branch.token = token
            if branch.rows and branch.rows[-1].is_open:
                branch.rows[-1].waits = self.wait_text(token)
        self._count(token, +1)

    def _count(self, token: v1.Token, step: int) -> None:
        if token.status is Status.WAITING_FOR_SIBLINGS:
            fan_in = token.parent_token_id, token.node_id
            self._arrivals[fan_in] = self._arrivals.get(fan_in, (0, 0))[0] + step, token.branch_count

    def _branch(self, token: v1.Token) -> _Branch:
        branch = self._branches[token.id] = _Branch(token)
        parent = self._branches.get(token.parent_token_id) if token.parent_token_id else None
        if parent is None:
            self._roots.append(branch)
        else:
            siblings = parent.branches.setdefault(len(parent.rows), [])
            siblings.append(branch)
        return branch

    def _execution(self, execution: v1.NodeExecution) -> None:
        row = self._rows.get(execution.id)
        if row is None:
            branch = self._branches.get(execution.token_id) or self._branch(_token_of(execution))
            # The token continues, so the fan-in of its branches is complete.
            self._arrivals = {
                fan_in: count for fan_in, count in self._arrivals.items() if fan_in[0] != execution.token_id
            }
            path = self.path(execution.token_id)
            row = self._rows[execution.id] = Row(execution, len(path), label(path, execution.node_id))
            branch.rows.append(row)
            row.waits = self.wait_text(branch.token)
            if execution.id in self._early_progress:
                _set_current_step(row, self._early_progress.pop(execution.id))
        elif execution.error is not None:
            row.fault = execution.error
        row.execution = execution
        if not row.is_open:
            row.waits = row.current_step = ""

    def _progress(self, progress: v1.NodeProgress) -> None:
        row = self._rows.get(progress.node_execution_id)
        if row is None:  # A task's progress can precede the event that starts its node.
            self._early_progress[progress.node_execution_id] = progress
        elif row.is_open:
            _set_current_step(row, progress)


def _token_of(execution: v1.NodeExecution) -> v1.Token:
    """Return the token of an execution, as far as the execution describes it."""
    token = v1.Token(id=execution.token_id, node_id=execution.node_id)
    if execution.branch is not None:
        branch = execution.branch
        token.parent_token_id, token.fan_out_node_id = branch.parent_token_id, branch.fan_out_node_id
        token.branch, token.branch_index, token.branch_count = branch.name, branch.index, branch.count
    return token


def label(path: list[str], node_id: str) -> str:
    """Return the branch of a node as ``[lint]`` or ``[3/lint]``, without a name that equals the node's."""
    names = path[:-1] if path and path[-1] == node_id else path
    return f"[{'/'.join(names)}]" if names else ""


def seconds(begin: datetime | None, end: datetime | None) -> float:
    """Return the seconds between two times; 0 if one is unknown or the clock went back."""
    return max(0.0, (end - begin).total_seconds()) if begin and end else 0.0


def duration(value: float) -> str:
    """Format seconds: ``29 ms``, ``1.2 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60):02} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60):02} min"


def _set_current_step(row: Row, progress: v1.NodeProgress) -> None:
    if progress.step is not None and progress.step.status is v1.StepStatus.RUNNING:
        row.current_step = progress.step.step_id
    elif progress.progress is not None and progress.progress.message:
        row.current_step = progress.progress.message


def _rows_of(branch: _Branch) -> Iterator[Row]:
    for position in range(len(branch.rows) + 1):
        if position:
            yield branch.rows[position - 1]
        for each in sorted(branch.branches.get(position, ()), key=lambda each: each.token.branch_index):
            yield from _rows_of(each)
