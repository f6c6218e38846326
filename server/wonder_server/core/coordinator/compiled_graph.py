"""A pinned workflow as its runs go over it.

What a node is, what is executed there and where its ways lead depends on nothing but the pinned workflow. So
it is worked out once, when a run first comes to the node, and not anew for every token that does.
"""

from __future__ import annotations

from dataclasses import dataclass

from wonder_server.core.coordinator.values import OperationKind, TokenStatus
from wonder_server.core.definitions.graph import Graph, graph_of
from wonder_server.core.definitions.specs import Node, PinnedTask, PinnedWorkflow, Transition
from wonder_server.core.task.repeatable import is_repeatable, is_side_effect_free

CACHE_SIZE = 256
"""Courses kept at hand; each keeps its workflow alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledNode:
    """A node where tokens stand.

    ``kind`` is what they wait for here, and ``waiting`` how. ``target`` is that of an execution; ``task`` is
    the task, if it is one. ``repeatable``: it may be carried out again; ``traceless``: nobody could tell that
    it was. ``patience_ms`` is how long an attempt, a gate or a wait may take, 0 for as long as it likes.
    ``ways`` are the node's transitions in the order in which they are tried, each with its index. ``onward``
    is the node that every token goes on to, empty if there is anything to decide about that; ``join_node_id``
    the one where branches that begin here meet, empty if they do not.
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
        """When the node, begun now, has taken too long, all attempts included; 0 for never."""
        after = self.node.timeout_ms
        return now + after if after else 0

    def until(self, now: int) -> int:
        """When an attempt, a gate or a wait that begins now ends by itself; 0 for never."""
        after = self.timeout_ms
        return now + after if after else 0


class CompiledGraph(dict[str, CompiledNode]):
    """The stations of a workflow by the ids of their nodes, each made when it is first asked for; KeyError
    for what is no node. ``ref`` is what runs call the workflow."""

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
    """The course of a workflow. Cheap to ask for again: kept by its identity."""
    # By identity: whether two are equal would be costly to find out, and each step of a run asks.
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
    """Who does not fan out takes the first way that is open; one without conditions always is."""
    if not transitions or node.fan_out:
        return ""
    first = transitions[0][1]
    decided = first.condition or first.loop_limit or first.for_each is not None
    return "" if decided else first.to_node_id
