"""Values of a workflow run: the rows of its record."""

from __future__ import annotations

from enum import StrEnum

from wonder_server.core.actor.commands import Parent, Scope
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field
from wonder_server.core.json_types import JsonDict, JsonValue


class RunStatus(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TokenStatus(StrEnum):
    """Status of a token. The table in ``plan.py`` explains each."""

    PENDING = "pending"
    WAITING_FOR_TASK = "waiting_for_task"
    WAITING_FOR_SUBWORKFLOW = "waiting_for_subworkflow"
    WAITING_FOR_AGENT = "waiting_for_agent"
    WAITING_FOR_HUMAN = "waiting_for_human"
    WAITING_FOR_SIGNAL = "waiting_for_signal"
    WAITING_FOR_SIBLINGS = "waiting_for_siblings"
    FORKED = "forked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED_TOKEN_STATUSES = frozenset({TokenStatus.COMPLETED, TokenStatus.FAILED, TokenStatus.CANCELLED})


class ExecutionStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class OperationKind(StrEnum):
    """Kinds of operations that a run waits for. The last two belong to no node execution."""

    TASK = "task"
    SUBWORKFLOW = "subworkflow"
    AGENT = "agent"
    GATE = "gate"
    WAIT = "wait"
    RUN_TIMER = "run_timer"
    JOIN_TIMER = "join_timer"


EXECUTED_KINDS = frozenset({OperationKind.TASK, OperationKind.SUBWORKFLOW, OperationKind.AGENT})
"""Kinds whose result is delivered as an input. A person, a signal or a timer ends the others."""


class Run(Value, frozen=True, kw_only=True):
    """One execution of one revision of a workflow.

    ``parent`` is the actor that waits for the run; None if a client started it. Times are in milliseconds
    since 1970 UTC. 0 means "not yet", for ``deadline_ms`` "never". ``executions`` is set at the end.
    ``cancelled_by`` is the principal that cancelled the run, as in `Scope`; "" if the run was not cancelled,
    or by an earlier version.
    """

    id: str
    workflow_ref: str
    workflow_id: str
    scope: Scope
    parent: Parent | None = None
    volatile: bool = False
    status: RunStatus = RunStatus.RUNNING
    input: JsonDict = field(default_factory=dict)
    output: JsonDict = field(default_factory=dict)
    metadata: JsonDict = field(default_factory=dict)
    fault: Fault | None = None
    forked_from: str = ""
    executions: int = 0
    deadline_ms: int = 0
    created_ms: int = 0
    updated_ms: int = 0
    completed_ms: int = 0
    cancelled_by: str = ""


class Pinned(Value, frozen=True, kw_only=True):
    """The pinned workflow of an unfinished run."""

    run_id: str
    workflow: PinnedWorkflow


class Token(Value, frozen=True, kw_only=True):
    """A position in the graph, and a branch of a fan-out: tokens form a tree.

    A fan-out creates children of a token. The token waits as ``forked`` until they are joined or have ended.
    ``branch`` is the branch's name: its first node, or the item's index. ``hops`` counts the nodes that the
    token has reached, so that (branches from the root, hops) is the same each time the run is planned.
    ``transition_counts`` counts limited transitions by their index. ``arrival`` numbers the arrivals at a
    fan-in, from 1. Of a forked token, ``started`` children were created, ``ended`` of them have ended without
    arriving, and ``failed`` of those failed.
    """

    id: str
    run_id: str
    node_id: str
    status: TokenStatus = TokenStatus.PENDING
    parent_id: str = ""
    fan_out_node_id: str = ""
    branch: str = ""
    branch_index: int = 0
    branch_count: int = 0
    hops: int = 0
    transition_counts: dict[str, int] = field(default_factory=dict, name="taken")
    arrival: int = 0
    waits_for_id: str = ""
    started: int = field(default=0, name="begun")
    ended: int = 0
    failed: int = 0
    created_ms: int = 0
    updated_ms: int = 0


class BranchStart(Value, frozen=True, kw_only=True):
    """A branch of a fan-out: its name, its first node, its item if it has one, and the item's index; without
    items, the index of the branch."""

    name: str
    node_id: str
    item: JsonValue = None
    index: int = 0


class FanOut(Value, frozen=True, kw_only=True):
    """An open fan-out with all its branches. At most ``limit`` run at once; 0 is all.

    ``join_node_id`` is the fan-in where they meet; empty if they do not.
    """

    token_id: str
    run_id: str
    node_id: str
    branches: tuple[BranchStart, ...]
    join_node_id: str = ""
    limit: int = 0


class Branch(Value, frozen=True, kw_only=True):
    """The place of a token among the branches of a fan-out: the parent token, the fan-out's node, the
    branch's name, its index from 0, and the number of branches."""

    parent_id: str
    fan_out_node_id: str
    name: str
    index: int
    count: int


class NodeExecution(Value, frozen=True, kw_only=True):
    """One execution of one node; its result is recorded once (feature G7). Its id is the id of its operation.

    ``target`` is the pinned task or workflow, the agent's id, ``gate`` or ``wait``. ``carried_out_by`` is the
    run, conversation or gate that executes the node. ``branch`` is None for the run's first token.
    """

    id: str
    run_id: str
    ordinal: int
    node_id: str
    token_id: str = ""
    branch: Branch | None = None
    status: ExecutionStatus = ExecutionStatus.RUNNING
    target: str = ""
    carried_out_by: str = ""
    attempts: int = 1
    input: JsonDict = field(default_factory=dict)
    output: JsonValue = None
    fault: Fault | None = None
    started_ms: int = 0
    completed_ms: int = 0


class ContextValue(Value, frozen=True, kw_only=True):
    """One top-level entry of the run's context. ``section`` is ``state``, ``output`` or ``branch``; the last
    belongs to the branch of ``token_id``."""

    run_id: str
    section: str
    key: str
    value: JsonValue
    token_id: str = ""


class Operation(Value, frozen=True, kw_only=True):
    """An entry of the run's outbox: a pending result or a timer.

    ``key`` is the idempotency key that reaches every effect. ``child_id`` is the run or the conversation that
    executes the operation. ``deadline_ms`` limits all attempts together. ``until_ms`` is the end of this
    attempt, of the backoff (``backing_off``), of a wait, a gate or a timer; 0 for none. ``dispatches`` counts
    the dispatches of this attempt. ``emitted`` are the keys of events that the task has emitted.
    """

    id: str
    run_id: str
    kind: OperationKind = OperationKind.TASK
    token_id: str = ""
    node_id: str = ""
    key: str = ""
    child_id: str = ""
    attempt: int = 1
    dispatches: int = 1
    backing_off: bool = False
    repeatable: bool = True
    deadline_ms: int = 0
    until_ms: int = 0
    emitted: tuple[str, ...] = ()
    created_ms: int = 0

    @property
    def attempt_id(self) -> str:
        """The id that a result of this attempt names, for children that execute every attempt: an agent that
        is looped in answers each attempt in the same conversation."""
        return f"{self.child_id}#{self.attempt}"

    @property
    def wake_ms(self) -> int:
        """Time at which the operation's timer fires; 0 for never."""
        if self.deadline_ms and self.until_ms:
            return min(self.deadline_ms, self.until_ms)
        return self.deadline_ms or self.until_ms


class Signal(Value, frozen=True, kw_only=True):
    """A signal, the ``number``-th of its name.

    ``consumed``: a node that waited for it continued. ``principal`` is its authenticated sender.
    """

    run_id: str
    name: str
    payload: JsonValue = None
    user_id: str = ""
    number: int = 1
    consumed: bool = field(default=False, name="taken")
    received_ms: int = 0
    principal: str = ""


class EmittedEvent(Value, frozen=True, kw_only=True):
    """An event of an ``event`` action."""

    name: str
    payload: JsonDict
    node_id: str
