"""A workflow's graph: its initial node, reachable nodes, cycles and fan-ins (feature A6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wonder_server.core.definitions import branches
from wonder_server.core.definitions.specs import Node, Transition, Workflow

CACHE_SIZE = 256
"""Graphs kept in memory. Each keeps its workflow alive."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow in the form that runs use.

    ``nodes``: by id. ``transitions``: the outgoing transitions of each node in the order in which they are
    tried (by priority, then as written), each with its index in the spec. ``joins``: for each node that fans
    out, the node with ``fan_in`` where its branches meet; absent if they do not meet. ``signals``: names that
    nodes wait for.
    """

    nodes: Mapping[str, Node]
    transitions: Mapping[str, tuple[tuple[int, Transition], ...]]
    joins: Mapping[str, str]
    signals: frozenset[str]


def graph_of(workflow: Workflow) -> Graph:
    """Return the graph of a workflow. Graphs are cached by the workflow's identity.

    Never raises. Transitions to unknown nodes, which a saved workflow does not have, are left out.
    """
    # By identity: comparing two workflows for equality is expensive, and each step of a run looks twice.
    known = _known.get(id(workflow))
    if known is None or known[0] is not workflow:
        while len(_known) >= CACHE_SIZE:
            del _known[next(iter(_known))]
        known = _known[id(workflow)] = workflow, _graph(workflow)
    return known[1]


_known: dict[int, tuple[Workflow, Graph]] = {}


def _graph(workflow: Workflow) -> Graph:
    nodes = {node.id: node for node in workflow.nodes}
    transitions = transitions_of(workflow)
    joins: dict[str, tuple[str, ...]] = {}
    if nodes and (start := initial_node(workflow)) in nodes:
        joins = branches.joins(nodes, branches.explore(nodes, transitions, start))
    signals = frozenset(node.wait.signal for node in workflow.nodes if node.wait and node.wait.signal)
    return Graph(nodes, transitions, {node: meets[0] for node, meets in joins.items()}, signals)


def transitions_of(workflow: Workflow) -> dict[str, tuple[tuple[int, Transition], ...]]:
    """Return the outgoing transitions of each node; see `Graph.transitions`."""
    transitions: dict[str, list[tuple[int, Transition]]] = {node.id: [] for node in workflow.nodes}
    for index, transition in enumerate(workflow.transitions):
        if transition.from_node_id in transitions and transition.to_node_id in transitions:
            transitions[transition.from_node_id].append((index, transition))
    return {
        node: tuple(sorted(leaving, key=lambda entry: entry[1].priority))
        for node, leaving in transitions.items()
    }


def initial_node(workflow: Workflow) -> str:
    """Return the id of the first node of a run: the named one, or the first of the list."""
    return workflow.initial_node_id or workflow.nodes[0].id


def walk(start: str, edges: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield every node that can be reached from ``start``, including ``start``, once."""
    seen, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        yield node
        fresh = [target for target in edges.get(node, ()) if target not in seen]
        seen.update(fresh)
        waiting.extend(fresh)


def find_cycle(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Return one cycle of the graph; its first and last node are the same. Empty if there is none."""
    done: set[str] = set()
    for root in sorted(edges):
        path: dict[str, None] = {}  # An ordered set.
        forks = [iter((root,))]
        while forks:
            node = next(forks[-1], None)
            if node is None:
                forks.pop()
                if path:
                    done.add(path.popitem()[0])
            elif node in path:
                before = list(path)
                return [*before[before.index(node) :], node]
            elif node not in done:
                path[node] = None
                forks.append(iter(edges.get(node, ())))
    return []
