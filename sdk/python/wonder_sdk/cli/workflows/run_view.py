"""What a run looks like from outside: its events, folded into rows. Pure, without a terminal.

One row for each node execution, in the order of the graph: what a branch does stands below the node that
fanned out, branch by branch, not in the order in which it happened.
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
"""What a node may wait for that takes long; every other only works."""


@dataclass
class Row:
    """A node execution. ``depth`` is how many fan-outs it stands in, ``label`` which branch that is."""

    execution: v1.NodeExecution
    depth: int
    label: str
    waits: str = ""
    current_step: str = ""
    fault: v1.Fault | None = None
    """Why the attempt before this one failed."""

    @property
    def is_open(self) -> bool:
        return self.execution.status is v1.NodeExecutionStatus.RUNNING

    @property
    def name(self) -> str:
        return f"{self.execution.node_id}{self.label}"


@dataclass
class _Branch:
    """A token, with what stands in it: its rows, and its branches by the row after which they began."""

    token: v1.Token
    rows: list[Row] = field(default_factory=list)
    branches: dict[int, list[_Branch]] = field(default_factory=dict)


@dataclass
class RunView:
    """A run as its events have told so far. ``cursor`` is the sequence of the last one."""

    run: v1.Run = field(default_factory=v1.Run)
    cursor: int = 0
    gates: dict[str, v1.Gate] = field(default_factory=dict)
    """Those that wait for an answer, by id."""
    nodes: dict[str, v1.Node] = field(default_factory=dict)
    """Those of its workflow, by id, as far as they are known."""

    def __post_init__(self) -> None:
        self._branches: dict[str, _Branch] = {}
        self._rows: dict[str, Row] = {}
        self._roots: list[_Branch] = []
        self._arrivals: dict[tuple[str, str], tuple[int, int]] = {}
        self._early_progress: dict[str, v1.NodeProgress] = {}

    @classmethod
    def from_run(cls, run: v1.Run, nodes: dict[str, v1.Node] | None = None) -> RunView:
        """What GetRun tells, as a picture: the newest of its tokens and executions."""
        view = cls(run, run.last_sequence, {gate.id: gate for gate in run.pending_gates}, nodes or {})
        tokens = {token.id: token for token in run.tokens}

        def reach(token_id: str) -> None:
            if token_id in tokens and token_id not in view._branches:
                reach(tokens[token_id].parent_token_id)
                view._token(tokens[token_id])

        # In the order in which they began, so that branches stand below what they branched off from.
        for execution in run.node_executions:
            reach(execution.token_id)
            view._execution(execution)
        for token_id in tokens:
            reach(token_id)
        return view

    def reopen(self) -> None:
        """Be the picture of a run that goes on: what ended it is still to be told."""
        self.run.status, self.run.output, self.run.error = v1.RunStatus.RUNNING, None, None
        self.gates.clear()

    @property
    def has_ended(self) -> bool:
        return self.run.status in ENDED

    @property
    def executions(self) -> int:
        """How many nodes were executed so far, each execution counted."""
        return len(self._rows)

    def apply(self, item: RunItem) -> None:
        """Draw one more event in."""
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
        """All rows, in the order of the graph."""
        for root in self._roots:
            yield from _rows_of(root)

    def row_of(self, execution: v1.NodeExecution) -> Row:
        """The row of an execution that was taken."""
        return self._rows[execution.id]

    def path(self, token_id: str) -> list[str]:
        """The branches that a token stands in, from the outermost inward, by name."""
        names: list[str] = []
        branch = self._branches.get(token_id)
        while branch is not None and branch.token.branch_count:
            names.append(branch.token.branch or str(branch.token.branch_index))
            branch = self._branches.get(branch.token.parent_token_id)
        return names[::-1]

    def arrived_count(self, token: v1.Token) -> int:
        """How many of a token's siblings, it included, wait where it waits for the others."""
        return self._arrivals[token.parent_token_id, token.node_id][0]

    def fan_ins(self) -> list[tuple[str, int, int]]:
        """Where branches wait for each other now: node, how many are there, of how many."""
        return [(node_id, here, all_) for (_, node_id), (here, all_) in self._arrivals.items() if here]

    def wait_text(self, token: v1.Token) -> str:
        """What a token waits for that takes long, and until when; empty for nothing."""
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
            place = token.parent_token_id, token.node_id
            self._arrivals[place] = self._arrivals.get(place, (0, 0))[0] + step, token.branch_count

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
            # If its branches stood where they wait for each other, they have met.
            self._arrivals = {
                place: count for place, count in self._arrivals.items() if place[0] != execution.token_id
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
        if row is None:  # tasks may be faster than the record, which says that their node has begun
            self._early_progress[progress.node_execution_id] = progress
        elif row.is_open:
            _set_current_step(row, progress)


def _token_of(execution: v1.NodeExecution) -> v1.Token:
    """What is known of a token when its first node begins."""
    token = v1.Token(id=execution.token_id, node_id=execution.node_id)
    if execution.branch is not None:
        branch = execution.branch
        token.parent_token_id, token.fan_out_node_id = branch.parent_token_id, branch.fan_out_node_id
        token.branch, token.branch_index, token.branch_count = branch.name, branch.index, branch.count
    return token


def label(path: list[str], node_id: str) -> str:
    """``[lint]`` or ``[3/lint]``: the branch, unless the node's own name says it."""
    names = path[:-1] if path and path[-1] == node_id else path
    return f"[{'/'.join(names)}]" if names else ""


def seconds(begin: datetime | None, end: datetime | None) -> float:
    """From one time to another; 0 where one is not known or the clock went back."""
    return max(0.0, (end - begin).total_seconds()) if begin and end else 0.0


def duration(value: float) -> str:
    """Seconds, for people: ``29 ms``, ``1.2 s``, ``3 min 20 s``, ``2 h 05 min``."""
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
