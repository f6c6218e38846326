"""A workflow as text, for a terminal.

Successors are drawn below their node. Branches are indented until their paths meet::

    [split]            task split_work
    ╞═ each of input.parts, 4 at once
    │  [work]          task do_part · 3 attempts
    ▼
    [gather]           task gather · after all branches
    ├─ if state.score < 8, at most 3 times ↺ [split]
    ├─ if state.good
    │  [publish]       task publish
    └─ else
       [drop]          task drop

======  =========================================================================
``├─``  a transition; the token takes the first whose condition holds
``╞═``  a parallel transition; each one creates a token
``↺``   back to an earlier node
``→``   to a node that is drawn elsewhere
``↓``   to the node below
``■``   the end of the token
======  =========================================================================
"""

from __future__ import annotations

from wonder_sdk.drawing.graph import Edge, Graph, Node, fan_ins

_SHAPES = {
    "task": "[{}]",
    "workflow": "[[{}]]",
    "agent": "({})",
    "gate": "<{}>",
    "wait": "~{}~",
    "missing": "?{}?",
}
# Maximum start of the second column. A longer line starts its second column later.
_MAX_COLUMN = 44


def draw(graph: Graph) -> str:
    """Return the drawing."""
    title = f"{graph.title}  {graph.description}".rstrip()
    return "\n".join([title, "", *_Drawing(graph).lines()]) + "\n"


class _Drawing:
    """A drawing in progress. Its lines are pairs of columns, which `lines` aligns at the end."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._joins = fan_ins(graph)
        self._length = _lengths(graph)
        self._below = _descendants(graph)
        self._drawn: set[str] = set()
        self._lines: list[tuple[str, str]] = []

    def lines(self) -> list[str]:
        self._walk(self._graph.initial, "", "", None, frozenset())
        lost = [node for node in self._graph.nodes.values() if node.id not in self._drawn]
        if lost:
            self._lines += [("", ""), ("never reached:", "")]
            self._lines += [(f"  {_name(node)}", _caption(node)) for node in lost]
        width = max(
            (len(left) for left, right in self._lines if right and len(left) <= _MAX_COLUMN), default=0
        )
        return [f"{left:<{width}}  {right}".rstrip() for left, right in self._lines]

    def _walk(self, node_id: str, first: str, prefix: str, join: str | None, stops: frozenset[str]) -> None:
        """Draw a node and its successors up to ``join``. The caller draws ``join`` and ``stops``.

        ``first`` is the prefix of the first line, ``prefix`` that of all others.
        """
        here: str | None = node_id
        while here is not None and here != join:
            if here in self._drawn or here in stops:
                self._lines.append((f"{first}→ {_name(self._graph.nodes[here])}", ""))
                return
            self._drawn.add(here)
            ways = self._graph.transitions[here]
            node = self._graph.nodes[here]
            end = "" if ways else " · ■"
            self._lines.append((first + _name(node), _caption(node) + end))
            first = prefix
            here = self._follow(here, ways, prefix, join, stops)

    def _follow(
        self, here: str, edges: list[Edge], prefix: str, join: str | None, stops: frozenset[str]
    ) -> str | None:
        """Draw a node's transitions. Return the next node of this level, or None."""
        if not edges:
            return None
        may_end = here in self._graph.may_end
        only = edges[0]
        if len(edges) == 1 and not only.is_back and not only.is_parallel:
            label = f" {only.label}{', else ■' if may_end else ''}" if only.label else ""
            if only.target != join:
                self._lines.append((f"{prefix}│{label}", ""))
            elif label:
                self._lines.append((f"{prefix}│{label} → {self._called(only.target)}", ""))
            return only.target
        meeting = self._joins[here]
        if meeting is None or meeting == join:
            onward = self._spine(edges, join, stops)
            inner, barred = join, stops | ({onward} if onward else set())
        else:
            onward, inner, barred = meeting, meeting, stops | ({join} if join else set())
        self._branches(edges, prefix, inner, barred, onward, may_end=may_end)
        if onward is not None:
            self._lines.append((f"{prefix}▼", ""))
        return onward

    def _branches(
        self,
        edges: list[Edge],
        prefix: str,
        join: str | None,
        stops: frozenset[str],
        onward: str | None,
        *,
        may_end: bool,
    ) -> None:
        ends_here = may_end and not any(edge.is_parallel for edge in edges)
        for position, edge in enumerate(edges):
            is_last = onward is None and not ends_here and position == len(edges) - 1
            line, below = (
                ("╘═" if is_last else "╞═") if edge.is_parallel else ("└─" if is_last else "├─"),
                ("   " if is_last else "│  "),
            )
            label = f" {edge.label}" if edge.label else ""
            if edge.is_back:
                self._lines.append((f"{prefix}{line}{label} ↺ {self._called(edge.target)}", ""))
            elif edge.target == onward:
                self._lines.append((f"{prefix}{line}{label} ↓", ""))
            elif edge.target in stops or edge.target in self._drawn or edge.target == join:
                self._lines.append((f"{prefix}{line}{label} → {self._called(edge.target)}", ""))
            elif label:
                self._lines.append((f"{prefix}{line}{label}", ""))
                self._walk(edge.target, prefix + below, prefix + below, join, stops)
            else:
                self._walk(edge.target, f"{prefix}{line} ", prefix + below, join, stops)
        if ends_here:
            self._lines.append((f"{prefix}{'├─' if onward else '└─'} else ■", ""))

    def _spine(self, edges: list[Edge], join: str | None, stops: frozenset[str]) -> str | None:
        """Return the target to draw at this level if the paths of ``edges`` never meet, or None.

        A target that another path reaches later has priority, then the start of the longest path.
        """
        if any(edge.is_parallel for edge in edges):
            return None
        ahead = [
            target
            for target in dict.fromkeys(edge.target for edge in edges if not edge.is_back)
            if target not in self._drawn | stops and target != join
        ]
        if len(ahead) < 2:
            return ahead[0] if ahead else None
        longest = max(self._length[each] for each in ahead)
        # Exclude a short path with many predecessors, such as a failure handler.
        shared = [
            each
            for each in ahead
            if 2 * self._length[each] >= longest and any(each in self._below[other] for other in ahead)
        ]
        found = shared or [each for each in ahead if self._length[each] == longest > 1]
        return found[-1] if shared or len(found) == 1 else None

    def _called(self, node_id: str) -> str:
        return _name(self._graph.nodes[node_id])


def _lengths(graph: Graph) -> dict[str, int]:
    """Return the number of nodes on the longest path from each node, including the node."""
    length: dict[str, int] = {}
    for node_id in reversed(graph.order()):
        length[node_id] = 1 + max((length[each] for each in graph.forward(node_id)), default=0)
    return length


def _descendants(graph: Graph) -> dict[str, set[str]]:
    """Return all direct and indirect successors of each node."""
    below: dict[str, set[str]] = {}
    for node_id in reversed(graph.order()):
        following = graph.forward(node_id)
        below[node_id] = set(following).union(*(below[each] for each in following))
    return below


def _name(node: Node) -> str:
    return _SHAPES[node.kind].format(node.id)


def _caption(node: Node) -> str:
    target = " ".join(part for part in (node.kind, node.target) if part)
    if node.kind == "missing":
        target = "there is no such node"
    return " · ".join(part for part in (target, node.fan_in, *node.notes) if part)
