"""Validation of a workflow's graph: unlimited cycles, unreachable nodes, branches that cannot meet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from wonder_server.core.definitions.branches import (
    MAX_MOVES,
    MAX_OPEN,
    Exploration,
    Stack,
    State,
    explore,
    joins,
    opens,
    while_running,
)
from wonder_server.core.definitions.fault_list import FaultList
from wonder_server.core.definitions.graph import find_cycle, initial_node, transitions_of, walk
from wonder_server.core.definitions.specs import FanIn, FanInMode, Node, Transition, Workflow
from wonder_server.core.suggestions import did_you_mean

MAX_CYCLES = 20
"""Limit of reported cycles. Each search ignores the cycles found before."""


def check_graph(workflow: Workflow, faults: FaultList) -> Exploration | None:
    """Refuse transitions to unknown nodes, an unknown initial node, cycles without a limit, unreachable nodes
    and fan-ins that cannot be satisfied.

    Return the reachable states; None if the graph has faults that prevent the search.
    """
    ids = [node.id for node in workflow.nodes]
    known = set(ids)
    broken = len(known) < len(ids)
    for index, transition in enumerate(workflow.transitions):
        for field, end in (("from_node_id", transition.from_node_id), ("to_node_id", transition.to_node_id)):
            if end not in known:
                broken = True
                faults.refuse(f"transitions[{index}].{field}", _no_node(end, known))
    _check_cycles(workflow, known, faults)
    start = initial_node(workflow)
    if start not in known:
        faults.refuse("initial_node_id", _no_node(start, known))
        return None
    if broken:  # A corrected transition may reach the nodes that are unreachable now.
        return None
    _check_reach(workflow, start, faults)
    return _Joining(workflow, faults).check()


def _no_node(name: str, ids: Collection[str]) -> str:
    return f"There is no node '{name}' in this workflow{did_you_mean(name, ids)}."


def _check_cycles(workflow: Workflow, ids: Collection[str], faults: FaultList) -> None:
    edges: dict[str, dict[str, int]] = {node: {} for node in ids}
    for index, transition in enumerate(workflow.transitions):
        if transition.loop_limit == 0 and {transition.from_node_id, transition.to_node_id} <= edges.keys():
            edges[transition.from_node_id][transition.to_node_id] = index
    for _ in range(MAX_CYCLES):
        cycle = find_cycle({node: list(targets) for node, targets in edges.items()})
        if not cycle:
            return
        index = edges[cycle[-2]].pop(cycle[-1])
        faults.refuse(
            f"transitions[{index}]",
            f"The nodes form a cycle without a limit: {' -> '.join(cycle)}. "
            "Set loop_limit on one of its transitions.",
        )


def _check_reach(workflow: Workflow, start: str, faults: FaultList) -> None:
    transitions = {
        node: [transition.to_node_id for _, transition in leaving]
        for node, leaving in transitions_of(workflow).items()
    }
    reached = set(walk(start, transitions))
    for index, node in enumerate(workflow.nodes):
        if node.id not in reached:
            faults.refuse(f"nodes[{index}].id", f"Node '{node.id}' cannot be reached from '{start}'.")


@dataclass(frozen=True, slots=True)
class _Branch:
    """A transition that opens branches. ``arrives`` is True if they can reach their fan-in."""

    index: int
    transition: Transition
    arrives: bool

    @property
    def count(self) -> int:
        """Maximum number of branches that can arrive."""
        each = self.transition.for_each
        return 0 if not self.arrives else each.max_items if each else 1

    def __str__(self) -> str:
        return f"transitions[{self.index}] to '{self.transition.to_node_id}'"


class _Joining:
    """Check that the branches of every fan-out can meet as the fan-ins require."""

    def __init__(self, workflow: Workflow, faults: FaultList) -> None:
        self._nodes = {node.id: node for node in workflow.nodes}
        self._places = {node.id: f"nodes[{index}]" for index, node in enumerate(workflow.nodes)}
        self._transitions = transitions_of(workflow)
        self._refuse = faults.refuse
        self._found = explore(self._nodes, self._transitions, initial_node(workflow))
        self._stacks: dict[str, list[Stack]] = {node: [] for node in self._nodes}
        self._before: dict[State, list[State]] = {}
        for state, moves in self._found.moves.items():
            self._stacks[state[0]].append(state[1])
            for _, target in moves:
                self._before.setdefault(target, []).append(state)

    def check(self) -> Exploration | None:
        """Refuse fan-outs and fan-ins that cannot work; return the reachable states, or None."""
        found = self._found
        for index, fan_out in sorted(found.within.items()):
            self._refuse(
                f"transitions[{index}]",
                f"This leads from inside the fan-out of '{fan_out}' back to '{fan_out}': fan-outs would "
                "nest without end. Join the branches before, with fan_in.",
            )
        for index in sorted(found.too_deep):
            self._refuse(f"transitions[{index}]", f"More than {MAX_OPEN} fan-outs are nested here.")
        if not found.complete:
            self._refuse(
                "transitions",
                f"Fan-outs can be open in too many combinations: following them takes more than {MAX_MOVES} "
                "steps. Join branches sooner.",
            )
        if found.within or found.too_deep or not found.complete:
            return None  # Transitions that were not followed may lead to any node.
        for node in self._nodes.values():
            if node.fan_in is not None:
                self._check_nearest(node, node.fan_in)
        for fan_out, meets in joins(self._nodes, found).items():
            if len(meets) > 1:
                self._refuse(
                    f"{self._places[meets[1]]}.fan_in",
                    f"The branches of '{fan_out}' meet at '{meets[0]}' and at '{meets[1]}': "
                    "all branches of a fan-out must meet at one node.",
                )
            else:
                self._check_meeting(self._nodes[fan_out], self._nodes[meets[0]])
        return found

    def _check_nearest(self, node: Node, fan_in: FanIn) -> None:
        place = f"{self._places[node.id]}.fan_in"
        stacks = self._stacks[node.id]
        nearest = sorted({stack[-1] for stack in stacks if stack})
        if stacks and not nearest:
            self._refuse(place, f"No fan-out leads to '{node.id}', so fan_in has nothing to join.")
        if (meant := fan_in.fan_out_node_id) and meant not in self._nodes:
            self._refuse(f"{place}.fan_out_node_id", _no_node(meant, self._nodes))
        elif meant and (others := [each for each in nearest if each != meant]):
            self._refuse(
                f"{place}.fan_out_node_id",
                f"The nearest fan-out that is open at '{node.id}' is not always that of '{meant}': "
                f"on one path it is that of '{others[0]}'.",
            )

    def _check_meeting(self, fan_out: Node, meet: Node) -> None:
        """Refuse a fan-in that waits for branches that cannot arrive."""
        fan_in = meet.fan_in
        assert fan_in is not None
        place = f"{self._places[meet.id]}.fan_in"
        for together in self._opened_together(fan_out, meet):
            lost = [branch for branch in together if not branch.arrives]
            come = sum(branch.count for branch in together)
            if fan_in.mode is FanInMode.M_OF_N and fan_in.count > come:
                self._refuse(
                    f"{place}.count",
                    f"{fan_in.count} branches of '{fan_out.id}' can never arrive at '{meet.id}': at most "
                    f"{come} can, by {', '.join(map(str, together))}.",
                )
            elif lost and (fan_in.mode is FanInMode.ALL or not come):
                self._refuse(
                    place,
                    f"'{meet.id}' waits for the branches of '{fan_out.id}', but that by {lost[0]} can never "
                    "arrive there.",
                )

    def _opened_together(self, fan_out: Node, meet: Node) -> Iterator[list[_Branch]]:
        """Yield the transitions of a fan-out that are taken together: all of them, or each alone."""
        # The paths of a branch do not depend on the fan-outs around its own, so any stack serves.
        inside = (*while_running(fan_out, self._stacks[fan_out.id][0]), fan_out.id)
        arriving = self._leading_to((meet.id, inside))
        opened = [
            _Branch(index, transition, (transition.to_node_id, inside) in arriving)
            for index, transition in self._transitions[fan_out.id]
            if opens(fan_out, transition)
        ]
        if fan_out.fan_out:
            yield opened
        else:
            yield from ([branch] for branch in opened)

    def _leading_to(self, goal: State) -> set[State]:
        """Return the states inside one branch from which ``goal`` can be reached.

        States outside of the branch also lead there, all through its fan-out. They would only take time.
        """
        depth = len(goal[1])
        seen, waiting = {goal}, [goal]
        while waiting:
            fresh = [
                state
                for state in self._before.get(waiting.pop(), ())
                if state not in seen and state[1][:depth] == goal[1]
            ]
            seen.update(fresh)
            waiting.extend(fresh)
        return seen
