"""What a workflow run is made of: the rows of its record, as frozen values (document 5)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from wonder_server.core.actor.commands import Parent, Scope
from wonder_server.core.definitions.specs import PinnedWorkflow
from wonder_server.core.errors import Fault
from wonder_server.core.frozen import Value, field


class RunStatus(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TokenStatus(StrEnum):
    """See the table in ``plan.py``."""

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
    """What a run can be waiting for. The last two belong to no node execution."""

    TASK = "task"
    SUBWORKFLOW = "subworkflow"
    AGENT = "agent"
    GATE = "gate"
    WAIT = "wait"
    RUN_TIMER = "run_timer"
    JOIN_TIMER = "join_timer"


EXECUTED_KINDS = frozenset({OperationKind.TASK, OperationKind.SUBWORKFLOW, OperationKind.AGENT})
"""What somebody has a result of; a person, a signal or the time ends the others."""


class GateStatus(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Run(Value, frozen=True, kw_only=True):
    """One execution of one revision of a workflow.

    ``parent`` is who waits for it, None for a run that a client started. Times are milliseconds since 1970;
    0 means "not yet", for ``deadline_ms`` "never". ``executions`` is set when it ends.
    """

    id: str
    workflow_ref: str
    workflow_id: str
    scope: Scope
    parent: Parent | None = None
    volatile: bool = False
    status: RunStatus = RunStatus.RUNNING
    input: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    fault: Fault | None = None
    forked_from: str = ""
    executions: int = 0
    deadline_ms: int = 0
    created_ms: int = 0
    updated_ms: int = 0
    completed_ms: int = 0


class Pinned(Value, frozen=True, kw_only=True):
    """The graph that an unfinished run executes."""

    run_id: str
    workflow: PinnedWorkflow


class Token(Value, frozen=True, kw_only=True):
    """A place in the graph that the run has reached; also a branch, for tokens form a tree.

    A fan-out makes children of a token, which then waits as ``forked`` until they have met again or ended.
    ``branch`` names the branch: the node it began at, or the item's index; ``item`` is its item. ``hops``
    counts the nodes it has stood at, so that (branches from the root, hops) is the same however often a run
    is planned again. ``taken`` counts limited transitions, by their index. ``arrival`` orders arrivals at a
    fan-in, from 1. Of a forked token, ``begun`` children were made and ``ended`` of them are over without
    having arrived, ``failed`` of those because they failed.
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
    """A branch that a fan-out makes: its name, the node it begins at, its item if it has one, and which of
    the items that is; without items, which of the branches it is."""

    name: str
    node_id: str
    item: Any = None
    index: int = 0


class Fork(Value, frozen=True, kw_only=True):
    """An open fan-out: all its branches, of which at most ``limit`` run at once (0: all).

    ``join_node_id`` is the fan-in where they meet, empty if they do not.
    """

    token_id: str
    run_id: str
    node_id: str
    branches: tuple[BranchStart, ...]
    join_node_id: str = ""
    limit: int = 0


class Branch(Value, frozen=True, kw_only=True):
    """Which branch a token is: of which token's fan-out, at which node, its name, and its place among all of
    them, from 0."""

    parent_id: str
    fan_out_node_id: str
    name: str
    index: int
    count: int


class NodeExecution(Value, frozen=True, kw_only=True):
    """One execution of one node; its result is recorded once (feature G7). Its id is its operation's.

    ``target`` is the pinned task or workflow, the agent's id, ``gate`` or ``wait``; ``carried_out_by`` the
    run, conversation or gate that does it. ``branch`` is None at the run's first token.
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
    input: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    fault: Fault | None = None
    started_ms: int = 0
    completed_ms: int = 0


class ContextValue(Value, frozen=True, kw_only=True):
    """One top-level entry of the run's context. ``section`` is ``state``, ``output`` or ``branch``; the last
    belongs to the branch of ``token_id``."""

    run_id: str
    section: str
    key: str
    value: Any
    token_id: str = ""


class Operation(Value, frozen=True, kw_only=True):
    """Something that the run waits for, with the time when it wants to be woken: the run's outbox.

    ``key`` is the idempotency key that reaches every effect. ``child_id`` is the run or the conversation
    that carries it out. ``deadline_ms`` is the node's, all attempts included; ``until_ms`` is the end of this
    attempt, of the backoff before the next (``backing_off``), of a wait, of a gate, of a timer; 0 for none.
    ``dispatches`` counts how often this attempt was handed out. ``emitted`` are the keys of events that its
    task has said.
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
        """What the result of this attempt names as what carried it out, where that is the same for each: an
        agent that is looped in answers all of them in one room."""
        return f"{self.child_id}#{self.attempt}"

    @property
    def wake_ms(self) -> int:
        """When it wants to be woken; 0 for never."""
        if self.deadline_ms and self.until_ms:
            return min(self.deadline_ms, self.until_ms)
        return self.deadline_ms or self.until_ms


class Gate(Value, frozen=True, kw_only=True):
    """A place where the run waits for a person. ``shown_hash`` binds the answer to what was shown."""

    id: str
    run_id: str
    operation_id: str
    node_id: str
    project_id: str
    workflow_ref: str
    prompt: str
    shown: dict[str, Any]
    shown_hash: str
    answer_schema: dict[str, Any] = field(default_factory=dict)
    user_ids: tuple[str, ...] = ()
    status: GateStatus = GateStatus.PENDING
    user_id: str = ""
    answer: dict[str, Any] | None = None
    comment: str = ""
    created_ms: int = 0
    expires_ms: int = 0
    resolved_ms: int = 0


class Signal(Value, frozen=True, kw_only=True):
    """The newest signal of its name, the ``number``-th. ``taken``: a node that waited for it went on."""

    run_id: str
    name: str
    payload: Any = None
    user_id: str = ""
    number: int = 1
    consumed: bool = field(default=False, name="taken")
    received_ms: int = 0


class EmittedEvent(Value, frozen=True, kw_only=True):
    """What an ``event`` action said."""

    name: str
    payload: dict[str, Any]
    node_id: str
