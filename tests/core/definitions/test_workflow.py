"""Faults of workflows that are saved, with their paths and reasons (feature A6)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.core.coordinator.flows import EACH, FAN_IN, FAN_OUT, LOOP, flow
from tests.core.definitions.test_check import SHELF, faults
from wonder_server.core.definitions.check import check_spec
from wonder_server.core.definitions.parse import parse_spec
from wonder_server.core.definitions.specs import Kind
from wonder_server.core.json_types import JsonDict

GATE = {"prompt": "Well?"}
DAY = 24 * 3600 * 1000
YEAR = 365 * DAY

BOTH = "a>b a>c b>j c>j"
"""The smallest fan-out with two branches that meet."""


def meeting(mode: str = "all", **fields: Any) -> JsonDict:
    return {"fan_in": {"mode": mode, **fields}}


def merge(source: str, target: str, strategy: str = "collect") -> JsonDict:
    return meeting(merges=[{"source": source, "target": target, "strategy": strategy}])


def workflow_faults(document: JsonDict) -> dict[str, str]:
    found = check_spec(parse_spec(Kind.WORKFLOW, document), "lib", SHELF)
    places = {fault.field: fault.message for fault in found}
    assert len(places) == len(found), "one fault a place"
    return places


SOUND = {
    "a diamond": flow(BOTH, {"a": FAN_OUT, "j": FAN_IN}),
    "everything about a fan-in": flow(
        BOTH,
        {
            "a": FAN_OUT,
            "b": {"output_mapping": {"branch.x": "result.n + index", "state.seen": "item"}},
            "j": meeting(
                "m_of_n",
                count=2,
                timeout_ms=YEAR,
                on_timeout="proceed",
                fan_out_node_id="a",
                merges=[
                    {"source": "{'i': index, 'v': branch.x}", "target": "state.all", "strategy": "append"},
                    {"source": "item", "target": "output.deep.last", "strategy": "last_wins"},
                ],
            ),
        },
    ),
    "a list": flow(
        "a>b b>j",
        {"b": {"input_mapping": {"x": "item"}}, "j": meeting("m_of_n", count=10_000)},
        {"a>b": {"for_each": {"items": "input.list", "max_items": 10_000, "max_concurrency": 10_000}}},
    ),
    "lists in lists": flow(
        "a>b b>c c>d d>e",
        {"d": merge("branch.c", "branch.all"), "e": merge("branch.all", "state.all")},
        {"a>b": EACH, "b>c": {"for_each": {"items": "item.parts"}}},
    ),
    "branches that end without meeting": flow("a>b a>c", {"a": FAN_OUT}),
    "a branch that need not come": flow("a>b a>c b>j", {"a": FAN_OUT, "j": meeting("any")}),
    "a branch that may end on its way": flow("a>b a>c b>x b>j c>j", {"a": FAN_OUT, "j": FAN_IN}),
    "a loop": flow("a>b b>a b>c", None, {"b>a": {"loop_limit": 1_000_000}}),
    "a loop of one": flow("a>a", None, {"a>a": LOOP}),
    "a loop with one limit": flow("a>b b>c c>a", None, {"c>a": LOOP}),
    "a loop around a fan-out": flow("a>b b>j j>a", {"j": FAN_IN}, {"a>b": EACH, "j>a": LOOP}),
    "a loop in a branch": flow("a>b b>b b>j", {"a": FAN_OUT, "j": FAN_IN}, {"b>b": LOOP}),
    "a way around the fan-out": flow("a>b a>j b>j", {"j": FAN_IN}, {"a>b": EACH}),
    "a gate": flow(
        "a>b",
        {
            "a": {
                "human_gate": {
                    "prompt": "Well?",
                    "answer_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
                    "user_ids": ["ada"],
                    "expire_after_ms": YEAR,
                    "on_expire": "approve",
                },
                "output_mapping": {"state.decision": "result.decision"},
                "timeout_ms": YEAR,
            }
        },
        {"a>b": {"condition": "state.decision == 'approved' && signals.go.x > 1"}},
    ),
    "waits": flow(
        "a>b b>c",
        {
            "a": {"wait": {"signal": "Paid_1"}},
            "b": {"wait": {"duration_ms": YEAR}},
            "c": {"wait": {"signal": "s", "duration_ms": 1}},
        },
    ),
    "agents": flow(
        "a>b",
        {
            "a": {"agent_id": "expert", "invocation_mode": "loop_in", "retry": {"max_attempts": 3}},
            "b": {"agent_id": "agt_01J9ZQ3V8M6T0A4C1R5W7E2KXB", "timeout_ms": YEAR},
        },
    ),
    "the whole": flow("a", timeout_ms=YEAR, state_schema={"type": "object", "required": ["x"]}),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_a_valid_workflow_can_be_saved(name: str) -> None:
    assert workflow_faults(SOUND[name]) == {}


BAD: list[tuple[JsonDict, str, str]] = [
    # --- cycles
    (flow("a>b b>c c>b"), "transitions[2]", "cycle without a limit: b -> c -> b."),
    (flow("a>a"), "transitions[0]", "cycle without a limit: a -> a."),
    (flow("a>b b>a", None, {"b>a": {"loop_limit": -1}}), "transitions[1].loop_limit", "not -1"),
    (flow("a>b", None, {"a>b": {"loop_limit": 1_000_001}}), "transitions[0].loop_limit", "to 1000000"),
    (flow("a>b b>a b>b", None, {"b>a": LOOP}), "transitions[2]", "b -> b."),
    # --- initial nodes and ends of transitions
    (flow("a>b c>b"), "nodes[2].id", "Node 'c' cannot be reached"),
    (flow("a>b", initial_node_id="c"), "initial_node_id", "no node 'c'"),
    (flow("a", transitions=[{"from_node_id": "a", "to_node_id": "aa"}]), "transitions[0].to_node_id", "'aa'"),
    (flow("a>b", None, {"a>b": {"priority": 2**31}}), "transitions[0].priority", "not 2147483648"),
    # --- fan-ins
    (flow("a>b", {"b": FAN_IN}), "nodes[1].fan_in", "No fan-out leads to 'b'"),
    (flow(BOTH, {"j": FAN_IN}), "nodes[3].fan_in", "No fan-out leads to 'j'"),
    (flow("a>j j>b j>c", {"j": {**FAN_IN, **FAN_OUT}}), "nodes[1].fan_in", "No fan-out leads to 'j'"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting("m_of_n")}), "nodes[3].fan_in.count", "at least 1"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting("m_of_n", count=-1)}), "nodes[3].fan_in.count", "not -1"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting("m_of_n", count=3)}), "nodes[3].fan_in.count", "at most 2 can"),
    (flow("a>b a>c b>j", {"a": FAN_OUT, "j": meeting("m_of_n", count=2)}), "nodes[3].fan_in.count",
     "at most 1 can, by transitions[0] to 'b', transitions[1] to 'c'."),
    (flow("a>b b>j", {"j": meeting("m_of_n", count=1_001)}, {"a>b": EACH}), "nodes[2].fan_in.count",
     "at most 1000 can"),
    (flow("a>b a>c b>j c>j", {"j": meeting("m_of_n", count=3)},
          {"a>b": {"for_each": {"items": "input.b", "max_items": 2}}, "a>c": EACH}),
     "nodes[3].fan_in.count", "at most 2 can, by transitions[0] to 'b'."),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting("all", count=2)}), "nodes[3].fan_in.count", "Only the mode m"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting("any", count=1)}), "nodes[3].fan_in.count", "Only the mode m"),
    (flow("a>b a>c b>j", {"a": FAN_OUT, "j": FAN_IN}), "nodes[3].fan_in",
     "but that by transitions[1] to 'c' can never arrive there."),
    (flow("a>b b>j a>c", {"j": meeting("any")}, {"a>b": EACH, "a>c": EACH}), "nodes[2].fan_in",
     "but that by transitions[2] to 'c' can never arrive there."),
    # The branches of 'b' are joined; the branch of 'a' that contains 'b' is not.
    (flow("a>b a>c b>d d>j c>j", {"a": FAN_OUT, "b": FAN_OUT, "j": FAN_IN}), "nodes[4].fan_in",
     "waits for the branches of 'a', but that by transitions[0] to 'b'"),
    (flow("a>b a>c b>i c>j", {"a": FAN_OUT, "i": FAN_IN, "j": FAN_IN}), "nodes[4].fan_in",
     "The branches of 'a' meet at 'i' and at 'j'"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting(fan_out_node_id="b")}), "nodes[3].fan_in.fan_out_node_id",
     "it is that of 'a'"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting(fan_out_node_id="z")}), "nodes[3].fan_in.fan_out_node_id",
     "no node 'z'"),
    (flow("a>b b>c c>j j>k", {"j": meeting(fan_out_node_id="a"), "k": FAN_IN}, {"a>b": EACH, "b>c": EACH}),
     "nodes[3].fan_in.fan_out_node_id", "it is that of 'b'"),
    (flow("a>b b>a", {"a": FAN_OUT}, {"b>a": LOOP}), "transitions[1]", "from inside the fan-out of 'a' back"),
    (flow("a>b b>c b>j c>a", {"a": FAN_OUT, "j": FAN_IN}, {"c>a": LOOP}), "transitions[3]",
     "from inside the fan-out of 'a' back"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting(timeout_ms=-1)}), "nodes[3].fan_in.timeout_ms", "not -1"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting(timeout_ms=YEAR + 1)}), "nodes[3].fan_in.timeout_ms", "from 0"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting(on_timeout="proceed")}), "nodes[3].fan_in.on_timeout",
     "set timeout_ms"),
    # --- merges
    (flow(BOTH, {"a": FAN_OUT, "j": merge("branch.x", "branch.y")}), "nodes[3].fan_in.merges[0].target",
     "not in a fan-out"),
    (flow(BOTH, {"a": FAN_OUT, "j": merge("branch.x", "input.y")}), "nodes[3].fan_in.merges[0].target",
     "map to state.… or output.…"),
    (flow(BOTH, {"a": FAN_OUT, "j": merge("branch.x", "state")}), "nodes[3].fan_in.merges[0].target",
     "cannot be set"),
    (flow(BOTH, {"a": FAN_OUT, "j": merge("state.x", "state.y")}), "nodes[3].fan_in.merges[0].source",
     "In the expression of node 'j', column 1: unknown variable 'state'"),
    (flow(BOTH, {"a": FAN_OUT, "j": merge("", "state.y")}), "nodes[3].fan_in.merges[0].source",
     "must be an expression"),
    (flow(BOTH, {"a": FAN_OUT, "j": meeting(merges=[{"source": "item", "target": "state.x"}] * 2)}),
     "nodes[3].fan_in.merges[1].target", "earlier merge"),
    # --- for each
    (flow("a>b", None, {"a>b": {"for_each": {"items": " "}}}), "transitions[0].for_each.items",
     "must be an expression"),
    (flow("a>b", None, {"a>b": {"for_each": {"items": "input.[x"}}}), "transitions[0].for_each.items",
     "In the expression of the transition from 'a' to 'b', column 7"),
    (flow("a>b", None, {"a>b": {"for_each": {"items": "item"}}}), "transitions[0].for_each.items",
     "not in a fan-out"),
    (flow("a>b", None, {"a>b": {"for_each": {"items": "input.x", "max_items": 0}}}),
     "transitions[0].for_each.max_items", "from 1 to 10000"),
    (flow("a>b", None, {"a>b": {"for_each": {"items": "input.x", "max_items": 10_001}}}),
     "transitions[0].for_each.max_items", "from 1 to 10000"),
    (flow("a>b", None, {"a>b": {"for_each": {"items": "input.x", "max_concurrency": -1}}}),
     "transitions[0].for_each.max_concurrency", "from 0 to 10000"),
    (flow("a>b", None, {"a>b": {"for_each": {"items": "input.x", "max_concurrency": 10_001}}}),
     "transitions[0].for_each.max_concurrency", "from 0 to 10000"),
    # --- targets
    ({"nodes": [{"id": "a"}]}, "nodes[0]", "A node runs one thing"),
    (flow("a", {"a": {"task_id": "t", "wait": {"signal": "s"}}}), "nodes[0]", "A node runs one thing"),
    (flow("a", {"a": {"agent_id": "x", "human_gate": GATE}}), "nodes[0]", "A node runs one thing"),
    (flow("a", {"a": {"invocation_mode": "loop_in"}}), "nodes[0].invocation_mode", "Only an agent"),
    (flow("a", {"a": {"agent_id": "x", "invocation_mode": "shout"}}), "nodes[0].invocation_mode", "one of"),
    (flow("a", {"a": {"agent_id": "Not a name"}}), "nodes[0].agent_id", "by its id, agt_…, or its name"),
    (flow("a", {"a": {"timeout_ms": DAY + 1}}), "nodes[0].timeout_ms", f"to {DAY}"),
    (flow("a", {"a": {"agent_id": "x", "timeout_ms": YEAR + 1}}), "nodes[0].timeout_ms", f"to {YEAR}"),
    (flow("a", {"a": {"agent_id": "x", "timeout_ms": -1}}), "nodes[0].timeout_ms", "not -1"),
    (flow("a", {"a": {"retry": {"max_attempts": 11}}}), "nodes[0].retry.max_attempts", "from 1 to 10"),
    (flow("a", {"a": {"retry": {"backoff_ms": -1}}}), "nodes[0].retry.backoff_ms", "not -1"),
    (flow("a", {"a": {"retry": {"timeout_ms": 0}}}), "nodes[0].retry.timeout_ms", "not 0"),
    (flow("a", {"a": {"wait": {"signal": "s"}, "retry": {}}}), "nodes[0].retry", "A wait cannot be retried"),
    (flow("a", {"a": {"human_gate": GATE, "retry": {}}}), "nodes[0].retry", "A human_gate cannot be retried"),
    (flow("a", {"a": {"description": "x" * 65_537}}), "nodes[0].description", "longer than"),
    # --- gates and waits
    (flow("a", {"a": {"human_gate": {**GATE, "answer_schema": {"type": "objekt"}}}}),
     "nodes[0].human_gate.answer_schema.type", "must be one of"),
    (flow("a", {"a": {"human_gate": {**GATE, "answer_schema": {"$ref": "https://example.test/s"}}}}),
     "nodes[0].human_gate.answer_schema.$ref", "nothing is fetched"),
    (flow("a", {"a": {"human_gate": {**GATE, "expire_after_ms": -1}}}),
     "nodes[0].human_gate.expire_after_ms",
     "not -1"),
    (flow("a", {"a": {"human_gate": {**GATE, "expire_after_ms": YEAR + 1}}}),
     "nodes[0].human_gate.expire_after_ms",
     f"to {YEAR}"),
    (flow("a", {"a": {"human_gate": {**GATE, "on_expire": "reject"}}}),
     "nodes[0].human_gate.on_expire",
     "set expire_after_ms"),
    (flow("a", {"a": {"human_gate": {**GATE, "user_ids": ["ada", " "]}}}),
     "nodes[0].human_gate.user_ids[1]",
     "1 to 256"),
    (flow("a", {"a": {"human_gate": {**GATE, "user_ids": ["ada"] * 101}}}),
     "nodes[0].human_gate.user_ids",
     "at most 100"),
    (flow("a", {"a": {"human_gate": {"prompt": " "}}}), "nodes[0].human_gate.prompt",
     "question to the person"),
    (flow("a", {"a": {"human_gate": {"prompt": "x" * 65_537}}}), "nodes[0].human_gate.prompt", "longer than"),
    (flow("a", {"a": {"wait": {}}}), "nodes[0].wait", "signal, duration_ms, or both"),
    (flow("a", {"a": {"wait": {"duration_ms": YEAR + 1}}}), "nodes[0].wait.duration_ms", f"to {YEAR}"),
    (flow("a", {"a": {"wait": {"signal": "s", "duration_ms": -1}}}), "nodes[0].wait.duration_ms", "not -1"),
    (flow("a", {"a": {"wait": {"signal": "a-b"}}}), "nodes[0].wait.signal", "letters, digits or '_'"),
    (flow("a", {"a": {"wait": {"signal": "s" * 65}}}), "nodes[0].wait.signal", "1 to 64"),
    # --- expressions
    (flow("a>b", None, {"a>b": {"condition": "result.x"}}), "transitions[0].condition", "'result'"),
    (flow("a>b", None, {"a>b": {"condition": "item > 1"}}), "transitions[0].condition",
     "column 1: unknown variable 'item': here it may be input, output, signals, state; "
     "branch, item, index exist only in a branch, and this is not in a fan-out"),
    (flow("a", {"a": {"input_mapping": {"x": "index"}}}), "nodes[0].input_mapping.x", "not in a fan-out"),
    (flow(BOTH, {"a": FAN_OUT, "j": {**FAN_IN, "input_mapping": {"x": "branch.x"}}}),
     "nodes[3].input_mapping.x", "not in a fan-out"),
    (flow(BOTH, {"a": {**FAN_OUT, "output_mapping": {"branch.x": "result"}}, "j": FAN_IN}),
     "nodes[0].output_mapping.branch.x", "not in a fan-out"),
    (flow(BOTH, {"a": FAN_OUT, "b": {"output_mapping": {"branch": "result"}}, "j": FAN_IN}),
     "nodes[1].output_mapping.branch", "map to state.… or output.… or branch.…"),
    (flow("a", {"a": {"output_mapping": {"state.x": "result..y"}}}), "nodes[0].output_mapping.state.x",
     "In the expression of node 'a', column 8"),
    (flow("a", {"a": {"input_mapping": {"x": "1 +\n 2 + )"}}}), "nodes[0].input_mapping.x",
     "In the expression of node 'a', line 2, column 6"),
    (flow("a>b", None, {"a>b": {"condition": "(" * 40 + "true" + ")" * 40}}), "transitions[0].condition",
     "deep"),
    (flow("a>b", None, {"a>b": {"condition": "true" + " && true" * 600}}), "transitions[0].condition",
     "4096"),
    (flow("a", output_mapping={"x": "signals.go"}), "output_mapping.x", "'signals'"),
    # --- the whole
    (flow("a", state_schema={"$ref": "http://example.test/s.json"}), "state_schema.$ref", "nothing is"),
    (flow("a", state_schema={"properties": {"x": {"pattern": "("}}}), "state_schema.properties.x.pattern",
     ""),
    (flow("a", timeout_ms=YEAR + 1), "timeout_ms", f"to {YEAR}"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "place", "reason"), BAD)
def test_an_invalid_workflow_is_refused_with_its_path_and_reason(
    document: JsonDict, place: str, reason: str
) -> None:
    found = workflow_faults(document)
    assert list(found) == [place]
    assert reason in found[place]


def test_all_faults_are_reported_at_once() -> None:
    document = flow(
        "a>b b>c c>b b>d",
        {"a": {"retry": {"max_attempts": 0}}, "d": {"fan_in": {"mode": "any", "count": 1}}},
        {"b>d": {"condition": "oops"}},
    )
    assert set(workflow_faults(document)) == {
        "nodes[0].retry.max_attempts",
        "transitions[2]",
        "transitions[3].condition",
        "nodes[3].fan_in",
        "nodes[3].fan_in.count",
    }


def test_two_cycles_are_both_named() -> None:
    found = workflow_faults(flow("a>b b>a b>c c>d d>c"))
    assert found.keys() == {"transitions[1]", "transitions[4]"}
    assert "a -> b -> a" in found["transitions[1]"] and "c -> d -> c" in found["transitions[4]"]


def test_a_broken_graph_adds_no_faults_about_branch_variables() -> None:
    nodes = {"b": {"input_mapping": {"x": "item", "y": "nope"}}}
    document = flow("a>b", nodes, transitions=[{"from_node_id": "a", "to_node_id": "bb"}])
    assert set(workflow_faults(document)) == {"transitions[0].to_node_id", "nodes[1].input_mapping.y"}


def test_nesting_of_fan_outs_is_limited() -> None:
    def nested(depth: int) -> JsonDict:
        ways = [f"n{number}>n{number + 1}" for number in range(depth)]
        last = {f"n{depth}": {"input_mapping": {"x": "item"}}}
        return flow(" ".join(ways), last, dict.fromkeys(ways, EACH))

    assert workflow_faults(nested(16)) == {}
    assert workflow_faults(nested(17)) == {"transitions[16]": "More than 16 fan-outs are nested here."}


def ladder(steps: int) -> JsonDict:
    """Return a graph whose steps each open a fan-out or skip it, so that every combination can be open."""
    ways, edges = [], {}
    for step in range(steps):
        ways += [f"n{step}>f{step}", f"n{step}>n{step + 1}", f"f{step}>n{step + 1}"]
        edges[f"f{step}>n{step + 1}"] = EACH
    return flow(" ".join(ways), None, edges)


def test_a_graph_with_too_many_paths_is_refused() -> None:
    """Trying all paths would exceed every timeout."""
    assert workflow_faults(ladder(8)) == {}
    found = workflow_faults(ladder(100))
    assert list(found) == ["transitions"] and "too many combinations" in found["transitions"]


def test_a_large_graph_is_checked() -> None:
    """500 nodes, 2,000 transitions, a fan-out at every fourth node."""
    names = [f"n{number}" for number in range(500)]
    ways = [f"{a}>{b}" for a, b in pairwise(names)]
    nodes = {name: FAN_OUT if at % 4 == 0 else FAN_IN if at % 4 == 3 else {} for at, name in enumerate(names)}
    document = flow(" ".join(ways), nodes)
    document["transitions"] += [document["transitions"][at] for at in range(499)] * 3
    assert workflow_faults(document) == {}


def test_a_workflow_can_name_an_agent_that_does_not_exist_yet() -> None:
    assert "expert" not in SHELF.specs
    assert workflow_faults(flow("a", {"a": {"agent_id": "expert"}})) == {}


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_action_can_declare_that_it_is_idempotent(idempotent: bool) -> None:
    assert faults(Kind.ACTION, {"kind": "context", "idempotent": idempotent}) == {}
