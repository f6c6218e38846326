"""Workflows made up by hypothesis, of every shape that may be saved.

A *shape* is a tree of blocks; `build` writes it out as nodes and transitions. Each block has one node where
it begins and one where it goes on, or none if its branches never meet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.core.coordinator.coordinator_kit import each, graph, node, transition
from wonder_server.core.definitions.specs import (
    FanIn,
    FanInMode,
    FanInTimeout,
    GateExpiry,
    HumanGate,
    Merge,
    MergeStrategy,
    Node,
    PinnedWorkflow,
    Retry,
    Transition,
    Wait,
)

Shape = tuple[Any, ...]

TARGETS: tuple[dict[str, Any], ...] = (
    {},
    {"task_id": "once"},
    {"retry": Retry(max_attempts=3, backoff_ms=100, timeout_ms=2_000)},
    {"task_id": "once", "retry": Retry(max_attempts=2, backoff_ms=0, timeout_ms=1_000), "timeout_ms": 3_000},
    {"workflow_id": "w"},
    {"workflow_id": "w", "retry": Retry(max_attempts=2, backoff_ms=100, timeout_ms=60_000)},
    {"agent_id": "a", "timeout_ms": 60_000},
    {"agent_id": "a", "invocation_mode": "loop_in", "retry": Retry(max_attempts=2)},
    {"human_gate": HumanGate(prompt="Sure?", user_ids=("ann", "ben"))},
    {"human_gate": HumanGate(prompt="Sure?", expire_after_ms=2_000, on_expire=GateExpiry.APPROVE)},
    {
        "human_gate": HumanGate(prompt="Sure?", expire_after_ms=2_000, on_expire=GateExpiry.REJECT),
        "timeout_ms": 90_000,
    },
    {"human_gate": HumanGate(prompt="Sure?", expire_after_ms=2_000), "timeout_ms": 1_000},
    {"wait": Wait(signal="go")},
    {"wait": Wait(signal="stop", duration_ms=5_000)},
    {"wait": Wait(duration_ms=1_000)},
    {"timeout_ms": 5_000},
)
EVERYWHERE = (*[""] * 8, "size(state) % 2 == 0", "has(signals.go)", "true", "1 < 2")
IN_BRANCHES = (*EVERYWHERE, "index % 2 == 0", "size(branch) < 2", "item != 2", "index < 2", "", "")
FAULTY = ("state.none.none", "state", "item")
ITEMS = (*["input.items"] * 6, "[1, 2]", "[7]", "[]", "[[1], [2, 3], []]", "input.missing", "5")
MAPPINGS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"state.all": "state"},
    {"output.last": "result", "state.n": "1"},
)
SOURCES = ("index", "branch", "item", "[index, item]")

numbers = st.integers(0, 59)
"""A choice; the targets, mappings and conditions of a block follow from it."""

nodes = st.tuples(st.just("node"), numbers)
joins = st.tuples(st.sampled_from(list(FanInMode)), numbers, st.sampled_from((0, 0, 1_500)), st.booleans())
maybe_joins = st.one_of(joins, joins, joins, st.none())


def _larger(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    return st.one_of(
        st.tuples(st.just("sequence"), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.just("loop"), inner, st.integers(1, 2), numbers),
        st.tuples(st.just("fork"), st.lists(inner, min_size=1, max_size=3), maybe_joins, numbers),
        st.tuples(st.just("each"), inner, maybe_joins, st.integers(0, 2), numbers),
    )


blocks: st.SearchStrategy[Shape] = st.recursive(_larger(nodes), _larger, max_leaves=10)
shapes: st.SearchStrategy[Shape] = st.one_of(
    nodes, st.tuples(st.just("sequence"), st.lists(blocks, min_size=1, max_size=3))
)


@dataclass
class _Builder:
    nodes: dict[str, Node] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)

    def add(self, depth: int, number: int, **fields: Any) -> str:
        """A node that stands in ``depth`` fan-outs."""
        name = f"n{len(self.nodes)}"
        mapping = MAPPINGS[number % len(MAPPINGS)]
        if depth and number % 3 == 0:
            mapping = {"branch.b": "result", **mapping}
        fields = {**TARGETS[number % len(TARGETS)], **fields}
        shown = {"state": "state", "signals": "signals"} if number % 5 == 0 else {}
        self.nodes[name] = node(name, output_mapping=mapping, input_mapping=shown, **fields)
        return name

    def block(self, shape: Shape, depth: int) -> tuple[str, str]:
        """Where the block begins, and where it goes on: empty if nowhere."""
        match shape:
            case ("node", number):
                name = self.add(depth, number)
                return name, name
            case ("sequence", parts):
                first, last = self.block(parts[0], depth)
                for part in parts[1:]:
                    if not last:
                        break
                    there, after = self.block(part, depth)
                    self.transitions.append(transition(f"{last}>{there}", priority=9))
                    last = after
                return first, last
            case ("loop", body, limit, number):
                first, last = self.block(body, depth)
                if last and not self.nodes[last].fan_out:
                    again = transition(f"{last}>{first}", self.condition(depth, number), loop_limit=limit)
                    self.transitions.append(again)
                return first, last
            case ("fork", parts, join, number):
                first = self.add(depth, number, fan_out=True)
                ends = []
                for part in parts:
                    there, last = self.block(part, depth + 1)
                    self.transitions.append(transition(f"{first}>{there}", self.condition(depth, number)))
                    ends.append(last)
                return first, self.join(join, ends, depth, number)
            case ("each", body, join, limit, number):
                first = self.add(depth, number)
                there, last = self.block(body, depth + 1)
                self.transitions.append(
                    each(f"{first}>{there}", ITEMS[number % len(ITEMS)], max_concurrency=limit, max_items=3)
                )
                return first, self.join(join, [last], depth, number)
        raise AssertionError(shape)

    def condition(self, depth: int, number: int) -> str:
        if number == 59:
            return FAULTY[len(self.transitions) % (3 if depth else 2)]
        known = IN_BRANCHES if depth else EVERYWHERE
        return known[(number + len(self.transitions)) % len(known)]

    def join(self, join: Any, ends: list[str], depth: int, number: int) -> str:
        """Where the branches that end at ``ends`` meet."""
        if join is None or not all(ends):
            return ""
        mode, choice, timeout_ms, proceed = join
        merges = tuple(
            Merge(
                source=SOURCES[(choice + index) % len(SOURCES)],
                target=("state.m", "output.m", "branch.m" if depth else "state.k")[index] + str(choice % 3),
                strategy=list(MergeStrategy)[(choice + index) % 5],
            )
            for index in range(choice % 4)
        )
        fan_in = FanIn(
            mode=mode,
            count=1 + choice % len(ends) if mode is FanInMode.M_OF_N else 0,
            timeout_ms=timeout_ms,
            on_timeout=FanInTimeout.PROCEED if proceed and timeout_ms else FanInTimeout.FAIL,
            merges=merges,
        )
        meet = self.add(depth, choice, fan_in=fan_in)
        for end in ends:
            self.transitions.append(
                transition(f"{end}>{meet}", self.condition(depth + 1, number + choice), priority=8)
            )
        return meet


def build(shape: Shape, **spec: Any) -> PinnedWorkflow:
    builder = _Builder()
    builder.block(shape, 0)
    return graph(*builder.nodes.values(), transitions=builder.transitions, **spec)


limits: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    ({}, {}, {}, {"timeout_ms": 30_000}, {"output_schema": {"required": ["m0"]}})
)
"""What a workflow says beside its graph."""
