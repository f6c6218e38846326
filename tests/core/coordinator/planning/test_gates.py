"""Human gates: accepted and rejected answers, expiry, and their effects."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.core.coordinator.coordinator_kit import RUN_ID, Driven, gate, graph, node, transition
from wonder_server.core.coordinator.model import inputs
from wonder_server.core.coordinator.model.values import RunStatus
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.specs import GateExpiry, HumanGate
from wonder_server.core.errors import Reason
from wonder_server.core.json_types import JsonDict

SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


def asked(**fields: Any) -> Driven:
    """Return a run that waits at a gate; ``y`` follows an approval, ``n`` a rejection."""
    fields.setdefault("prompt", "Pay?")
    flow = graph(
        gate("g", input_mapping={"amount": "input.amount"}, **fields),
        node("y"),
        node("n"),
        transitions=[transition("g>y", 'state.g.decision == "approved"'), transition("g>n", priority=1)],
    )
    driven = Driven()
    driven.start(flow, {"amount": 7, "secret": 1})
    return driven


def refused(driven: Driven, **fields: Any) -> tuple[Reason, str]:
    gate = driven.gate
    fields = {"gate_id": gate.id, "approve": True, "shown_hash": gate.shown_hash, **fields}
    fault = RUN.rejection(RUN.plan(driven.state, inputs.ResolveGate(**fields), driven.now))
    assert fault is not None
    return fault.reason, fault.field


def test_a_gate_shows_the_nodes_input_and_binds_the_answer_to_it() -> None:
    driven = asked(answer_schema=SCHEMA, user_ids=("ann",))
    gate = driven.gate
    assert (gate.prompt, gate.shown, gate.node_id) == ("Pay?", {"amount": 7}, "g")
    text = json.dumps(["Pay?", {"amount": 7}], separators=(",", ":"))
    assert gate.shown_hash == hashlib.sha256(text.encode()).hexdigest()
    assert (gate.answer_schema, gate.user_ids) == (SCHEMA, ("ann",))
    assert driven.commands == []
    assert driven.tokens == {"t": "waiting_for_human"}
    assert driven.status is RunStatus.WAITING


@pytest.mark.parametrize(
    ("approve", "answer", "result", "goes_to"),
    [
        (True, None, {"decision": "approved", "input": {"amount": 7}}, "y"),
        (False, None, {"decision": "rejected", "input": {"amount": 7}}, "n"),
        (True, {"amount": 5}, {"decision": "approved", "input": {"amount": 5}}, "y"),
        (False, {"amount": 5}, {"decision": "rejected", "input": {"amount": 5}}, "n"),
    ],
)
def test_an_answer_is_the_nodes_result(
    approve: bool, answer: JsonDict | None, result: JsonDict, goes_to: str
) -> None:
    driven = asked(answer_schema=SCHEMA)
    gate = driven.gate
    driven.reload()
    driven.answer(approve=approve, answer=answer, comment="Fine.", user_id="ben")
    assert driven.state.state["g"] == {**result, "comment": "Fine.", "user_id": "ben"}
    assert driven.at == [goes_to]
    row = driven.row("gates", gate.id)
    assert row.status.value == result["decision"]
    assert (row.answer, row.comment, row.user_id, row.resolved_ms) == (answer, "Fine.", "ben", driven.now)
    driven.replayed()


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"shown_hash": "other"}, Reason.GATE_RESOLVED, "shown_hash"),
        ({"shown_hash": ""}, Reason.GATE_RESOLVED, "shown_hash"),
        ({"user_id": "eve"}, Reason.PERMISSION_DENIED, "user_id"),
        ({"user_id": ""}, Reason.PERMISSION_DENIED, "user_id"),
        ({"user_id": "ann", "answer": {}}, Reason.INPUT_INVALID, "answer"),
        ({"user_id": "ann", "answer": {"amount": "x"}}, Reason.INPUT_INVALID, "answer"),
        ({"gate_id": "gate_0"}, Reason.GATE_RESOLVED, "gate_id"),
    ],
)
def test_an_invalid_answer_is_refused(fields: JsonDict, reason: Reason, field: str) -> None:
    driven = asked(answer_schema=SCHEMA, user_ids=("ann", "ben"))
    assert refused(driven, **fields) == (reason, field)
    driven.answer(user_id="ben", answer={"amount": 1})
    assert driven.at == ["y"]


def test_an_approval_without_an_answer_needs_an_input_that_matches_the_schema() -> None:
    wanting = {**SCHEMA, "required": ["amount", "account"]}
    driven = asked(answer_schema=wanting)
    assert refused(driven) == (Reason.INPUT_INVALID, "answer")
    assert refused(driven, answer={"amount": 1}) == (Reason.INPUT_INVALID, "answer")
    driven.answer(answer={"amount": 1, "account": "x"})
    assert driven.at == ["y"]
    rejecting = asked(answer_schema=wanting)
    rejecting.answer(approve=False)
    assert rejecting.at == ["n"]


def test_a_gate_without_a_schema_takes_only_a_decision() -> None:
    assert refused(asked(), answer={"amount": 1}) == (Reason.INPUT_INVALID, "answer")


def test_an_answer_counts_once() -> None:
    driven = asked()
    gate = driven.gate
    driven.answer()
    again = inputs.ResolveGate(gate_id=gate.id, approve=False, shown_hash=gate.shown_hash)
    fault = RUN.rejection(RUN.plan(driven.state, again, driven.now))
    assert fault is not None
    assert fault.reason is Reason.GATE_RESOLVED


@pytest.mark.parametrize(
    ("policy", "status", "goes_to"),
    [
        (GateExpiry.APPROVE, "approved", ["y"]),
        (GateExpiry.REJECT, "rejected", ["n"]),
        (GateExpiry.FAIL, "expired", []),
    ],
)
def test_a_gate_expires_without_an_answer(policy: GateExpiry, status: str, goes_to: list[str]) -> None:
    driven = asked(expire_after_ms=60_000, on_expire=policy)
    gate = driven.gate
    assert gate.expires_ms == driven.now + 60_000
    assert driven.step(inputs.NodeTimerFired(operation_id=gate.operation_id)) == []
    driven.restart()
    driven.wait_for_timer()
    assert driven.at == goes_to
    row = driven.row("gates", gate.id)
    assert (row.status.value, row.user_id, row.resolved_ms) == (status, "", driven.now)
    if goes_to:
        result = {"decision": status, "input": {"amount": 7}, "comment": "", "user_id": ""}
        assert driven.state.state["g"] == result
    else:
        assert (driven.fault.reason, driven.fault.metadata) == (Reason.TIMEOUT, {"node": "g"})
        assert driven.fault.message == "Gate `g` expired without an answer."
    driven.replayed()


def test_a_gate_that_needs_an_answer_is_not_approved_when_it_expires() -> None:
    """Without an answer the run would continue with what the gate shows, which its schema excludes."""
    wanting = {**SCHEMA, "required": ["amount", "account"]}
    driven = asked(answer_schema=wanting, expire_after_ms=60_000, on_expire=GateExpiry.APPROVE)
    gate = driven.gate
    driven.wait_for_timer()
    assert driven.row("gates", gate.id).status.value == "expired"
    assert driven.fault.reason is Reason.TIMEOUT
    assert (
        "on_expire cannot approve it: what the gate shows does not match its schema" in driven.fault.message
    )
    driven.replayed()


@pytest.mark.parametrize("policy", [GateExpiry.APPROVE, GateExpiry.REJECT])
def test_a_gate_that_shows_what_its_schema_wants_expires_as_its_policy_says(policy: GateExpiry) -> None:
    driven = asked(answer_schema=SCHEMA, expire_after_ms=60_000, on_expire=policy)
    driven.wait_for_timer()
    assert driven.at == (["y"] if policy is GateExpiry.APPROVE else ["n"])


def test_an_answer_after_the_expiry_time_counts_if_it_is_planned_first() -> None:
    driven = asked(expire_after_ms=60_000)
    operation = driven.operation()
    driven.now += 90_000
    driven.answer()
    assert driven.at == ["y"]
    assert driven.step(inputs.NodeTimerFired(operation_id=operation.id)) == []


def test_the_timeout_of_a_gates_node_fails_it() -> None:
    driven = Driven()
    policy = HumanGate(expire_after_ms=90_000, on_expire=GateExpiry.APPROVE)
    driven.start(graph(node("g", human_gate=policy, timeout_ms=5_000)))
    gate = driven.gate
    driven.wait_for_timer()
    assert driven.fault.reason is Reason.TIMEOUT
    assert driven.row("gates", gate.id).status.value == "expired"


def test_each_iteration_of_a_loop_opens_a_new_gate() -> None:
    driven = Driven()
    driven.start(
        graph(gate("g"), transitions=[transition("g>g", 'state.g.decision == "rejected"', loop_limit=5)])
    )
    gates = []
    for approve in (False, False, True):
        gates.append(driven.gate.id)
        driven.answer(approve=approve)
    assert len(set(gates)) == 3
    assert driven.status is RunStatus.COMPLETED
    assert {put.status for put in driven.journal.actors[RUN_ID].table("gates").values()} == {
        "rejected",
        "approved",
    }


def test_several_gates_are_open_at_once() -> None:
    flow = graph(
        node("a", fan_out=True), gate("g"), gate("h"), transitions=[transition("a>g"), transition("a>h")]
    )
    driven = Driven()
    driven.start(flow, {"amount": 1})
    driven.succeed("a")
    first, second = driven.state.gates.values()
    for each in (second, first):
        driven.step(inputs.ResolveGate(gate_id=each.id, approve=True, shown_hash=each.shown_hash))
    assert driven.status is RunStatus.COMPLETED
