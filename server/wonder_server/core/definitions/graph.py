"""A workflow's graph: where it begins, what it reaches, where it runs in circles (feature A6)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from wonder_server.core.definitions.faults import Faults
from wonder_server.core.definitions.specs import Workflow
from wonder_server.core.likeness import did_you_mean


def initial_node(workflow: Workflow) -> str:
    """The id of the node a run starts with: the named one, or else the first."""
    return workflow.initial_node_id or workflow.nodes[0].id


def check_graph(workflow: Workflow, faults: Faults) -> None:
    """Refuse unknown ends of transitions, a wrong beginning, unreachable nodes and cycles."""
    ids = {node.id for node in workflow.nodes}
    edges: dict[str, list[str]] = {node: [] for node in ids}
    broken = False
    for index, transition in enumerate(workflow.transitions):
        for field, end in (("from_node_id", transition.from_node_id), ("to_node_id", transition.to_node_id)):
            if end not in ids:
                broken = True
                faults.refuse(f"transitions[{index}].{field}", _no_node(end, ids))
        if transition.from_node_id in ids and transition.to_node_id in ids:
            edges[transition.from_node_id].append(transition.to_node_id)
    if cycle := find_cycle(edges):
        faults.refuse("transitions", f"The nodes run in a circle: {' -> '.join(cycle)}.")
        return
    start = initial_node(workflow)
    if start not in ids:
        faults.refuse("initial_node_id", _no_node(start, ids))
        return
    if broken:  # What cannot be reached now may well be once the transition is mended.
        return
    reached = set(walk(start, edges))
    for index, node in enumerate(workflow.nodes):
        if node.id not in reached:
            faults.refuse(f"nodes[{index}].id", f"Nothing leads to node '{node.id}' from '{start}'.")


def _no_node(name: str, ids: Collection[str]) -> str:
    return f"There is no node '{name}' in this workflow{did_you_mean(name, ids)}."


def walk(start: str, edges: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Every node that can be reached from ``start``, itself included, each once."""
    seen, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        yield node
        fresh = [target for target in edges.get(node, ()) if target not in seen]
        seen.update(fresh)
        waiting.extend(fresh)


def find_cycle(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """One circle of the graph, first and last node the same; empty if there is none."""
    done: set[str] = set()
    for root in sorted(edges):
        path: list[str] = []
        branches = [iter((root,))]
        while branches:
            node = next(branches[-1], None)
            if node is None:
                branches.pop()
                if path:
                    done.add(path.pop())
            elif node in path:
                return [*path[path.index(node) :], node]
            elif node not in done:
                path.append(node)
                branches.append(iter(edges.get(node, ())))
    return []
