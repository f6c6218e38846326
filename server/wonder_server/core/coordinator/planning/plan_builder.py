"""Builder of the decisions about one input to a run.

The state is only read. Each decision is appended to `PlanBuilder.decided`, and reads through the builder's
parts see it immediately: a moved token, a written value, an ended branch. A continuation is put on the agenda
and not called, so a fan-in of a thousand branches needs no deep recursion, and branches are planned in their
order.
"""

from __future__ import annotations

from typing import Literal

from wonder_server.core.coordinator.model.compiled_graph import CompiledGraph, compile_graph
from wonder_server.core.coordinator.model.decisions import Decision, EndRun, SetRunStatus
from wonder_server.core.coordinator.model.progress import progress_of
from wonder_server.core.coordinator.model.state import RunState
from wonder_server.core.coordinator.model.values import (
    NodeExecution,
    Operation,
    Pinned,
    Run,
    RunStatus,
    Token,
)
from wonder_server.core.coordinator.planning.plan_context import PlannedContext, PlannedSignals
from wonder_server.core.coordinator.planning.plan_operations import PlannedGates, PlannedOperations
from wonder_server.core.coordinator.planning.plan_tokens import PlannedFanOuts, PlannedTokens
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import replace
from wonder_server.core.ids import Minter
from wonder_server.core.json_types import JsonDict

ROOT = "t"
"""Id of a run's first token. A branch's id is its parent's id, the parent's hop and the branch's index."""

Decisions = tuple[Decision, ...]

Step = tuple[Literal["arrive", "begin", "resolve"], Token, str]
"""A continuation on the agenda: its kind, the token, and the id of the node or an empty string.

- ``arrive``: the branch arrives at the node, which may be its fan-in.
- ``begin``: the node begins.
- ``resolve``: a branch of the token's fan-out arrived, ended or failed.
"""

_RUNNING, _WAITING = RunStatus.RUNNING, RunStatus.WAITING
"""Module variables: reading a member of an enum class is slower."""


class PlanBuilder:
    """The decisions about one input to a run that has started.

    ``tokens``, ``fan_outs``, ``operations``, ``gates``, ``signals`` and ``context`` are the parts of the run
    with the changes planned so far. ``agenda`` are the continuations in the order in which they are planned.
    """

    __slots__ = (
        "_minter",
        "_seed",
        "agenda",
        "compiled",
        "context",
        "decided",
        "ended",
        "fan_outs",
        "gates",
        "now",
        "operations",
        "run",
        "signals",
        "tokens",
        "workflow",
    )

    def __init__(self, state: RunState, run: Run, pinned: Pinned, seed: str, now: int) -> None:
        self.run = run
        self.workflow: PinnedWorkflow = pinned.workflow
        self.compiled: CompiledGraph = compile_graph(pinned.workflow)
        self.now = now
        self.decided: list[Decision] = []
        self.agenda: list[Step] = []
        self.ended = False
        """True after the run has ended; the rest of the agenda is dropped."""
        self.tokens = PlannedTokens(state, now, self.decided)
        self.operations = PlannedOperations(state, run.id, now, self.decided)
        self.fan_outs = PlannedFanOuts(state, self.tokens, self.operations, self.decided)
        self.gates = PlannedGates(state, now, self.decided)
        self.signals = PlannedSignals(state, self.compiled.graph.signals, self.decided)
        self.context = PlannedContext(state, run, self.fan_outs, self.signals, self.decided, now)
        self._seed = seed
        self._minter: Minter | None = None

    def new_id(self, prefix: str) -> str:
        """Return the next id. The same input always leads to the same ids."""
        if self._minter is None:
            self._minter = Minter(self._seed, self.now)
        return self._minter.new(prefix)

    def move_to(self, token: Token, node_id: str) -> None:
        """Schedule the token's arrival at a node. A run's first token has no siblings, so its node begins."""
        self.agenda.append(("arrive" if token.parent_id else "begin", token, node_id))

    def dispatch(self, token: Token, execution: NodeExecution, operation: Operation) -> None:
        """Start a node execution; the token waits for its operation."""
        self.tokens.put(token)
        self.operations.dispatch(token, execution, operation)

    def end(self, status: RunStatus, output: JsonDict | None = None, fault: Fault | None = None) -> None:
        """End the run."""
        self.operations.clear_timer(None)
        self.run = replace(
            self.run,
            status=status,
            output=output or {},
            fault=fault,
            executions=self.operations.ordinal,
            updated_ms=self.now,
            completed_ms=self.now,
        )
        self.decided.append(EndRun(run=progress_of(self.run)))
        self.ended = True

    def finish(self) -> Decisions:
        """Update the run's status and return all decisions."""
        if not self.ended:
            status = _RUNNING if self.tokens.any_busy else _WAITING
            if status is not self.run.status:
                self.run = replace(self.run, status=status, updated_ms=self.now)
                self.decided.append(SetRunStatus(run=progress_of(self.run)))
        return tuple(self.decided)
