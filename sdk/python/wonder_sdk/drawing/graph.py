"""The graph of a workflow: its nodes, and its transitions in the order of evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import betterproto2

from wonder_sdk._proto.wonder import v1

_SHORT = 48
_KINDS = {
    "task_id": "task",
    "workflow_id": "workflow",
    "agent_id": "agent",
    "human_gate": "gate",
    "wait": "wait",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the graph.

    ``kind`` is task, workflow, agent, gate, wait, or missing for an undefined target of a transition.
    ``notes`` are further properties, in a few words each.
    """

    id: str
    kind: str
    target: str = ""
    notes: tuple[str, ...] = ()
    fan_in: str = ""
    """The fan-in's condition, in words; empty for a node without a fan-in."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A transition.

    ``label`` is its condition; it is empty for an unconditional transition. ``is_parallel`` means that it
    creates a token of its own. ``is_back`` means that it closes a cycle.
    """

    source: str
    target: str
    label: str = ""
    is_parallel: bool = False
    is_back: bool = False


@dataclass
class Graph:
    """A workflow's graph. ``initial`` is its first node's id, ``transitions`` the edges from each node."""

    title: str
    description: str
    initial: str
    nodes: dict[str, Node] = field(default_factory=dict)
    transitions: dict[str, list[Edge]] = field(default_factory=dict)
    may_end: frozenset[str] = frozenset()
    """Nodes with outgoing transitions of which none may apply, so that a token can end there."""

    def edges(self) -> Iterator[Edge]:
        for node_id in self.nodes:
            yield from self.transitions[node_id]

    def forward(self, node_id: str) -> list[str]:
        """Return the direct successors of a node without back edges, each once."""
        return list(dict.fromkeys(edge.target for edge in self.transitions[node_id] if not edge.is_back))

    def order(self) -> list[str]:
        """Return the reachable nodes in topological order; back edges do not count."""
        return _postorder(self)[::-1]


def of(definition: v1.Definition) -> Graph:
    """Return the graph of a workflow. Raises ValueError for another kind of definition or a missing node.

    The graph includes other faults of the definition unchanged: the server validates it.
    """
    spec = definition.workflow
    if spec is None:
        kind = betterproto2.which_one_of(definition, "spec")[0] or "nothing"
        raise ValueError(f"{definition.name} is a {kind.replace('_', ' ')}; only workflows can be drawn")
    if not spec.nodes:
        raise ValueError(f"{definition.name} has no nodes")
    library = f"{definition.library}/" if definition.library else ""
    revision = f"@{definition.revision}" if definition.revision else ""
    graph = Graph(
        title=f"{library}{definition.name}{revision}",
        description=_flat(definition.description),
        initial=spec.initial_node_id or spec.nodes[0].id,
    )
    for node in spec.nodes:
        graph.nodes[node.id] = _node(node)
    named = [graph.initial, *(end for way in spec.transitions for end in (way.from_node_id, way.to_node_id))]
    for node_id in named:
        graph.nodes.setdefault(node_id, Node(node_id, "missing"))
    leaving: dict[str, list[v1.Transition]] = {node_id: [] for node_id in graph.nodes}
    for transition in sorted(spec.transitions, key=lambda way: way.priority):
        leaving[transition.from_node_id].append(transition)
    fans = {node.id for node in spec.nodes if node.fan_out}
    for node_id, transitions in leaving.items():
        graph.transitions[node_id] = [
            _edge(way, transitions, fans_out=node_id in fans) for way in transitions
        ]
    graph.may_end = frozenset(
        node_id
        for node_id, ways in leaving.items()
        if ways and all(way.condition or way.loop_limit for way in ways)
    )
    _mark_back_edges(graph)
    return graph


def immediate_joins(graph: Graph) -> dict[str, str | None]:
    """Return each node's immediate postdominator: the first node that all its paths share, or None."""
    joins: dict[str, str | None] = {}
    depth: dict[str | None, int] = {None: 0}
    for node_id in _postorder(graph):
        targets: list[str | None] = list(graph.forward(node_id))
        meeting = targets[0] if targets else None
        for other in targets[1:]:
            while meeting != other:
                if depth[meeting] >= depth[other] and meeting is not None:
                    meeting = joins[meeting]
                elif other is not None:
                    other = joins[other]
        joins[node_id] = meeting
        depth[node_id] = depth[meeting] + 1
    return joins


def fan_ins(graph: Graph) -> dict[str, str | None]:
    """Return the node at which the drawing continues after each node's transitions, or None for the end.

    For a fan-out this is its fan-in, for other nodes the first node that all paths share.
    """
    joins = immediate_joins(graph)
    return {
        node_id: _fan_in_of(graph, joins, node_id) if _fans(graph, node_id) else joins[node_id]
        for node_id in joins
    }


def _fans(graph: Graph, node_id: str) -> bool:
    return any(edge.is_parallel for edge in graph.transitions[node_id])


def _fan_in_of(graph: Graph, joins: dict[str, str | None], node_id: str) -> str | None:
    """Return the fan-in of a fan-out: the first on the common path that belongs to no nested fan-out."""
    here, depth = joins[node_id], 0
    while here is not None:
        if graph.nodes[here].fan_in:
            if not depth:
                return here
            depth -= 1
        depth += _fans(graph, here)
        here = joins[here]
    return None


def short(text: str) -> str:
    """Return a text on one line, truncated to 48 characters."""
    flat = _flat(text)
    return flat if len(flat) <= _SHORT else flat[: _SHORT - 1].rstrip() + "…"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _node(node: v1.Node) -> Node:
    name, target = betterproto2.which_one_of(node, "target")
    notes: list[str] = []
    says = target if isinstance(target, str) else ""
    match target:
        case v1.HumanGate():
            says = f"“{short(target.prompt)}”" if target.prompt else ""
            if target.expire_after_ms:
                policy = _word(target.on_expire, "fail")
                notes.append(f"expires after {_time(target.expire_after_ms)}: {policy}")
        case v1.Wait():
            ends = [f"signal {target.signal}"] if target.signal else []
            ends += [_time(target.duration_ms)] if target.duration_ms else []
            says = " or ".join(ends)
        case _:
            pass
    if node.invocation_mode is v1.InvocationMode.LOOP_IN:
        notes.append("looped in")
    if node.retry is not None and (node.retry.max_attempts or 1) > 1:
        notes.append(f"{node.retry.max_attempts} attempts")
    if node.timeout_ms:
        notes.append(f"within {_time(node.timeout_ms)}")
    notes += [
        f"{each.target} ← {short(each.source)} ({_word(each.strategy, 'collect')})"
        for each in (node.fan_in.merges if node.fan_in else ())
    ]
    return Node(node.id, _KINDS.get(name, "missing"), says, tuple(notes), _fan_in(node.fan_in))


def _fan_in(fan_in: v1.FanIn | None) -> str:
    if fan_in is None:
        return ""
    says = {
        v1.FanInMode.ANY: "after the first branch",
        v1.FanInMode.M_OF_N: f"after {fan_in.count} branch{'' if fan_in.count == 1 else 'es'}",
    }.get(fan_in.mode, "after all branches")
    if fan_in.timeout_ms:
        proceeds = fan_in.on_timeout is v1.FanInTimeoutPolicy.PROCEED
        says += f", or {_time(fan_in.timeout_ms)}: {'proceed' if proceeds else 'fail'}"
    return says


def _edge(transition: v1.Transition, siblings: list[v1.Transition], *, fans_out: bool) -> Edge:
    parts = []
    if transition.for_each is not None:
        parts.append(f"each of {short(transition.for_each.items)}")
        if transition.for_each.max_concurrency:
            parts.append(f"{transition.for_each.max_concurrency} at once")
    if transition.condition:
        parts.append(f"if {short(transition.condition)}")
    elif len(siblings) > 1 and not fans_out and transition is not siblings[0] and not parts:
        parts.append("else")
    if transition.loop_limit:
        parts.append("once" if transition.loop_limit == 1 else f"at most {transition.loop_limit} times")
    parallel = fans_out or transition.for_each is not None
    return Edge(transition.from_node_id, transition.to_node_id, ", ".join(parts), is_parallel=parallel)


def _mark_back_edges(graph: Graph) -> None:
    """Mark the edges that close a cycle, in a depth-first traversal in the order of the edges.

    An edge closes a cycle if its target is on the current path.
    """
    open_nodes: set[str] = {graph.initial}
    seen: set[str] = {graph.initial}
    stack = [(graph.initial, 0)]
    while stack:
        node_id, position = stack.pop()
        ways = graph.transitions[node_id]
        if position == len(ways):
            open_nodes.discard(node_id)
            continue
        stack.append((node_id, position + 1))
        edge = ways[position]
        if edge.target in open_nodes:
            ways[position] = Edge(edge.source, edge.target, edge.label, edge.is_parallel, is_back=True)
        elif edge.target not in seen:
            seen.add(edge.target)
            open_nodes.add(edge.target)
            stack.append((edge.target, 0))


def _postorder(graph: Graph) -> list[str]:
    """Return the reachable nodes, each after its successors."""
    done: list[str] = []
    seen = {graph.initial}
    stack = [(graph.initial, iter(graph.forward(graph.initial)))]
    while stack:
        node_id, following = stack[-1]
        target = next((each for each in following if each not in seen), None)
        if target is None:
            done.append(node_id)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(graph.forward(target))))
    return done


def _time(ms: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:g} {unit}" if ms * 100 % size == 0 else f"{ms / size:.2f} {unit}"
    return f"{ms} ms"


def _word(value: betterproto2.Enum, default: str) -> str:
    return (value.name or default).lower().replace("_", " ") if value else default
