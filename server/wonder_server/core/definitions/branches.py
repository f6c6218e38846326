"""Open fan-outs along the paths of a workflow: the theory of fan-in.

Each token has a stack of the fan-outs that it passed and that have not been joined. A transition *opens* a
branch if its node has ``fan_out`` or the transition has ``for_each``: the node goes on top of the token's
stack. (If only some transitions of a node have ``for_each``, the others open nothing.) A node with ``fan_in``
removes the top of the stack, so the node and its successors run outside of that fan-out. If the stack is
empty, the node joins nothing and is an ordinary node.

`explore` follows every transition from the start with every possible stack. A stack contains a node at most
once, because a fan-out inside itself is refused, so the search ends. The result is exact for the shape of the
graph; conditions are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wonder_server.core.definitions.specs import Node, Transition

Stack = tuple[str, ...]
"""Nodes whose fan-outs are open, the innermost last."""

State = tuple[str, Stack]
"""A token's next node, and its stack before that node joins anything."""

Transitions = Mapping[str, Sequence[tuple[int, Transition]]]
"""Outgoing transitions by node, in the order in which they are tried, each with its index."""

MAX_OPEN = 16
"""Limit of nested open fan-outs."""

MAX_MOVES = 50_000
"""Limit of transitions followed in one search. Only a graph built to exceed it has so many stacks."""


@dataclass(slots=True)
class Exploration:
    """The reachable states of a graph.

    ``moves``: for each state, the transitions that can be taken (by index), each with the next state.
    ``within``: transitions that lead back to a node whose fan-out is still open. ``too_deep``: transitions
    that exceed `MAX_OPEN`. Transitions of these two are not followed. ``complete`` is False if the search
    exceeded `MAX_MOVES`.
    """

    moves: dict[State, list[tuple[int, State]]] = field(default_factory=dict)
    within: dict[int, str] = field(default_factory=dict)
    too_deep: set[int] = field(default_factory=set)
    complete: bool = True


def opens(node: Node, transition: Transition) -> bool:
    """Return True if a token that takes this transition of ``node`` is a branch."""
    return node.fan_out or transition.for_each is not None


def while_running(node: Node, stack: Stack) -> Stack:
    """Return the fan-outs that are open while ``node`` runs, for a token that arrives with ``stack``."""
    return stack[:-1] if node.fan_in is not None else stack


def explore(nodes: Mapping[str, Node], transitions: Transitions, start: str) -> Exploration:
    """Return every state that can be reached from ``start``. Both ends of each transition must exist."""
    found = Exploration()
    waiting: list[State] = [(start, ())]
    followed = 0
    while waiting:
        state = waiting.pop()
        if state in found.moves:
            continue
        node = nodes[state[0]]
        running = while_running(node, state[1])
        moves = found.moves[state] = []
        for index, transition in transitions[node.id]:
            followed += 1
            stack = (*running, node.id) if opens(node, transition) else running
            target = nodes[transition.to_node_id]
            if target.id in while_running(target, stack):
                found.within.setdefault(index, target.id)
            elif len(stack) > MAX_OPEN:
                found.too_deep.add(index)
            else:
                moves.append((index, (target.id, stack)))
                waiting.append((target.id, stack))
        if followed > MAX_MOVES:
            found.complete = False
            break
    return found


def joins(nodes: Mapping[str, Node], found: Exploration) -> dict[str, tuple[str, ...]]:
    """Return the fan-ins of each node that fans out. A saved workflow has at most one for each."""
    met: dict[str, dict[str, None]] = {}
    for node_id, stack in found.moves:
        if stack and nodes[node_id].fan_in is not None:
            met.setdefault(stack[-1], {})[node_id] = None
    return {node_id: tuple(sorted(meets)) for node_id, meets in met.items()}
