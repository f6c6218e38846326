"""Which fan-outs may be open where: the theory behind fan-in.

A token carries a stack of the fan-outs that it came through and that have not been joined. A transition
*opens* a branch if its node has ``fan_out`` set or it has ``for_each``: the token behind it has its node on
top of the stack. (Where only some transitions of a node have ``for_each``, the others just lead on.) A node
with ``fan_in`` closes the top of the stack, so it and what follows run in what was open around that fan-out.
With an empty stack it has nothing to close and is a node like any other.

`explore` follows every transition from the start with every stack that can come about. Stacks hold a node at
most once, since a fan-out within itself is refused, and so the search ends; what it finds is exact for the
shape of the graph, conditions left aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wonder_server.core.definitions.specs import Node, Transition

Stack = tuple[str, ...]
"""The nodes whose fan-outs are open, the nearest last."""

State = tuple[str, Stack]
"""A token that comes to a node, with its stack before the node closes anything."""

Transitions = Mapping[str, Sequence[tuple[int, Transition]]]
"""By node, the transitions that leave it in the order in which they are tried, each with its index."""

MAX_OPEN = 16
"""How many fan-outs may be open around a token."""

MAX_MOVES = 50_000
"""Transitions followed before the search gives up: only a graph made for it has so many stacks."""


@dataclass(slots=True)
class Exploration:
    """What tokens can do.

    ``moves``: from each state, the transitions that can be taken (by index) and the state behind each.
    ``within``: transitions that lead back to a node whose fan-out is still open. ``too_deep``: those that
    open one fan-out too many. Neither is followed. ``complete`` is false if the search gave up.
    """

    moves: dict[State, list[tuple[int, State]]] = field(default_factory=dict)
    within: dict[int, str] = field(default_factory=dict)
    too_deep: set[int] = field(default_factory=set)
    complete: bool = True


def opens(node: Node, transition: Transition) -> bool:
    """Whether tokens that take this transition of ``node`` are branches."""
    return node.fan_out or transition.for_each is not None


def while_running(node: Node, stack: Stack) -> Stack:
    """What is open while ``node`` runs, for a token that came with ``stack``."""
    return stack[:-1] if node.fan_in is not None else stack


def explore(nodes: Mapping[str, Node], transitions: Transitions, start: str) -> Exploration:
    """Every state that can be reached from ``start``. All ends of transitions must exist."""
    found = Exploration()
    waiting: list[State] = [(start, ())]
    followed = 0
    while waiting:
        state = waiting.pop()
        if state in found.moves:
            continue
        here = nodes[state[0]]
        running = while_running(here, state[1])
        moves = found.moves[state] = []
        for index, transition in transitions[here.id]:
            followed += 1
            stack = (*running, here.id) if opens(here, transition) else running
            there = nodes[transition.to_node_id]
            if there.id in while_running(there, stack):
                found.within.setdefault(index, there.id)
            elif len(stack) > MAX_OPEN:
                found.too_deep.add(index)
            else:
                moves.append((index, (there.id, stack)))
                waiting.append((there.id, stack))
        if followed > MAX_MOVES:
            found.complete = False
            break
    return found


def joins(nodes: Mapping[str, Node], found: Exploration) -> dict[str, tuple[str, ...]]:
    """By node that fans out, the nodes where its branches are joined; one, in what may be saved."""
    met: dict[str, dict[str, None]] = {}
    for node_id, stack in found.moves:
        if stack and nodes[node_id].fan_in is not None:
            met.setdefault(stack[-1], {})[node_id] = None
    return {node_id: tuple(sorted(meets)) for node_id, meets in met.items()}
