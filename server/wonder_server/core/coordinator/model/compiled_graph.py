"""A pinned workflow prepared for execution.

The target, the timeout and the transitions of a node depend only on the pinned workflow. They are computed
once, when a run first reaches the node, and not for every token.
"""

from __future__ import annotations

from dataclasses import dataclass

from wonder_server.core.coordinator.model.values import OperationKind, TokenStatus
from wonder_server.core.definitions.graph import Graph, graph_of
from wonder_server.core.definitions.specs import Node, PinnedTask, PinnedWorkflow, Transition
from wonder_server.core.task.action_effects import is_repeatable, is_side_effect_free

CACHE_SIZE = 256
"""Compiled graphs kept in memory. Each keeps its workflow alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledNode:
    """A node with everything that its executions need.

    ``kind`` is the kind of operation, ``waiting`` the status of a token that waits for it. ``target`` is the
    target of an execution; ``task`` is the pinned task if the target is one. ``repeatable``: the target can
    safely be executed again. ``side_effect_free``: it can also be executed for nothing. ``timeout_ms`` limits
    an attempt, a gate or a wait; 0 is unlimited. ``transitions`` are in the order in which they are tried,
    each with its index. ``single_successor`` is the next node of every token; empty if there is a choice.
    ``join_node_id`` is the fan-in of the branches that start here; empty if they do not meet.
    """

    node: Node
    kind: OperationKind
    waiting: TokenStatus
    target: str
    task: PinnedTask | None
    repeatable: bool
    side_effect_free: bool
    timeout_ms: int
    transitions: tuple[tuple[int, Transition], ...]
    single_successor: str
    join_node_id: str

    def deadline(self, now: int) -> int:
        """Return the time at which a node that begins now times out, all attempts included; 0 for never."""
        after = self.node.timeout_ms
        return now + after if after else 0

    def until(self, now: int) -> int:
        """Return the time at which an attempt, a gate or a wait that begins now times out; 0 for never."""
        after = self.timeout_ms
        return now + after if after else 0


class CompiledGraph(dict[str, CompiledNode]):
    """The compiled nodes of a workflow by node id, each compiled on first access. Raises KeyError for an
    unknown id. ``ref`` is the workflow's reference in runs."""

    def __init__(self, workflow: PinnedWorkflow) -> None:
        super().__init__()
        self.workflow = workflow
        self.graph: Graph = graph_of(workflow.spec)
        self.ref = str(workflow.pin)

    def __missing__(self, node_id: str) -> CompiledNode:
        graph, node = self.graph, self.graph.nodes[node_id]
        kind, target = _target(self.workflow, node)
        task = self.workflow.tasks[node.task_id] if node.task_id else None
        transitions = graph.transitions.get(node_id, ())
        compiled = self[node_id] = CompiledNode(
            node=node,
            kind=kind,
            waiting=_WAITING_STATUS[kind],
            target=target,
            task=task,
            repeatable=task is None or is_repeatable(task),
            side_effect_free=task is not None and is_side_effect_free(task),
            timeout_ms=_timeout_ms(node, kind),
            transitions=transitions,
            single_successor=_single_successor(node, transitions),
            join_node_id=graph.joins.get(node_id, ""),
        )
        return compiled


def compile_graph(workflow: PinnedWorkflow) -> CompiledGraph:
    """Return the compiled graph of a workflow. Graphs are cached by the workflow's identity."""
    # By identity: comparing two workflows for equality is expensive, and each step of a run looks here.
    known = _known.get(id(workflow))
    if known is None or known.workflow is not workflow:
        while len(_known) >= CACHE_SIZE:
            del _known[next(iter(_known))]
        known = _known[id(workflow)] = CompiledGraph(workflow)
    return known


_known: dict[int, CompiledGraph] = {}

_WAITING_STATUS = {
    OperationKind.TASK: TokenStatus.WAITING_FOR_TASK,
    OperationKind.SUBWORKFLOW: TokenStatus.WAITING_FOR_SUBWORKFLOW,
    OperationKind.AGENT: TokenStatus.WAITING_FOR_AGENT,
    OperationKind.GATE: TokenStatus.WAITING_FOR_HUMAN,
    OperationKind.WAIT: TokenStatus.WAITING_FOR_SIGNAL,
}


def _target(workflow: PinnedWorkflow, node: Node) -> tuple[OperationKind, str]:
    if node.task_id:
        return OperationKind.TASK, str(workflow.tasks[node.task_id].pin)
    if node.workflow_id:
        return OperationKind.SUBWORKFLOW, str(workflow.workflows[node.workflow_id].pin)
    if node.agent_id:
        return OperationKind.AGENT, workflow.agents.get(node.agent_id, node.agent_id)
    return (OperationKind.WAIT, "wait") if node.wait is not None else (OperationKind.GATE, "gate")


def _timeout_ms(node: Node, kind: OperationKind) -> int:
    if kind is OperationKind.GATE:
        return node.human_gate.expire_after_ms if node.human_gate is not None else 0
    if kind is OperationKind.WAIT:
        return node.wait.duration_ms if node.wait is not None else 0
    return node.retry.timeout_ms if node.retry is not None else 0


def _single_successor(node: Node, transitions: tuple[tuple[int, Transition], ...]) -> str:
    """Return the target of the first transition if every token takes it: the node does not fan out, and the
    transition has no condition."""
    if not transitions or node.fan_out:
        return ""
    first = transitions[0][1]
    decided = first.condition or first.loop_limit or first.for_each is not None
    return "" if decided else first.to_node_id
