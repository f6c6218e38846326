"""CoordinatorService through a real server, a real loop and real stores. The tests end the tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from tests.actors.run_kit import RunStage, pinned
from tests.conformance.ports.journal_subjects import commit, conversation, put_conversation
from tests.rpc.coordinator.coordinator_kit import (
    ABSENT,
    CONVERSATION,
    SOON,
    TURN,
    TwoProjects,
    ask,
    gated,
    get,
    listed,
    start,
    watched,
)
from tests.rpc.rpc_kit import rejected, token_principal
from tests.views import ForAll
from wonder.v1 import coordinator_service_pb2 as pb
from wonder.v1 import run_pb2
from wonder.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from wonder_server.actors.archive.archiver import NullArchive
from wonder_server.core.actor.changes import Put
from wonder_server.core.conversation.model.values import Caller, Turn
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.records import Query
from wonder_server.rpc.coordinator import codec
from wonder_server.rpc.coordinator.servicer import CoordinatorServicer, RunParts
from wonder_server.rpc.shared.principal import current_principal


async def a_conversation(stage: RunStage, project: str = "proj_default") -> None:
    """Create a conversation with one turn."""
    conversation_id = conversation(1, project=project)
    turn = Turn(
        id=TURN, conversation_id=conversation_id.id, ordinal=1, caller=Caller(), agent_id="a", agent_name="a",
        persona="p", input="hi",
    )  # fmt: skip
    made = commit(conversation_id.id, put_conversation(conversation_id), Put("turns", TURN, turn, ordinal=1))
    await stage.put(made)


# --- StartRun ---------------------------------------------------------------------------------------


async def test_a_run_is_started_and_completes(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    call = asyncio.create_task(
        start(stub, input={"n": 3}, metadata={"k": [1]}, wait_ms=str(SOON), timeout_ms="1000")
    )
    await stage.finish("a", {"x": 1})
    run = await call
    assert run.status == run_pb2.RUN_STATUS_COMPLETED
    assert (run.workflow, run.workflow_id, run.workflow_revision) == ("team/one@1", "def_one", 1)
    assert MessageToDict(run.input) == {"n": 3} and MessageToDict(run.metadata) == {"k": [1]}
    assert run.context.project_id == "proj_default"
    assert run.node_execution_count == 1 and run.etag == str(run.last_sequence)
    assert run.deadline.ToMilliseconds() == stage.clock.now + 1000
    assert run.HasField("complete_time") and not run.HasField("parent")


async def test_validate_only_starts_no_run(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    await start(stub, validate_only=True)
    assert await listed(stub) == []
    call = start(stub, validate_only=True, input={"n": "x"})
    assert await rejected(call) == ("INPUT_INVALID", ["input"])


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"workflow_id": ""}, "FIELD_INVALID", "workflow_id"),
        ({"workflow_id": "x" * 600}, "FIELD_INVALID", "workflow_id"),
        ({"workflow_id": "team/none"}, "DEFINITION_NOT_FOUND", "workflow_id"),
        ({"workflow_id": "team/chain@7"}, "DEFINITION_NOT_FOUND", "workflow_id"),
        ({"input": {"n": "x"}}, "INPUT_INVALID", "input"),
        ({"metadata": {"k": "x" * 70_000}}, "PAYLOAD_TOO_LARGE", "metadata"),
        ({"wait_ms": "-1"}, "FIELD_INVALID", "wait_ms"),
        ({"wait_ms": "300001"}, "FIELD_INVALID", "wait_ms"),
        ({"timeout_ms": "-1"}, "FIELD_INVALID", "timeout_ms"),
        ({"timeout_ms": str(2**62)}, "FIELD_INVALID", "timeout_ms"),
        ({"request_id": "x" * 200}, "FIELD_INVALID", "request_id"),
        ({"context": {"project_id": "none"}}, "PROJECT_NOT_FOUND", "context.project_id"),
        ({"context": {"agent_id": "none"}}, "AGENT_NOT_FOUND", "context.agent_id"),
        ({"context": {"branch": "a..b"}}, "FIELD_INVALID", "context.branch"),
        ({"context": {"conversation_id": "x"}}, "CONVERSATION_NOT_FOUND", "context.conversation_id"),
        ({"context": {"conversation_id": CONVERSATION}}, "CONVERSATION_NOT_FOUND", "context.conversation_id"),
        ({"context": {"conversation_id": ABSENT}}, "CONVERSATION_NOT_FOUND", "context.conversation_id"),
        ({"context": {"turn_id": TURN}}, "TURN_NOT_FOUND", "context.turn_id"),
        ({"context": {"turn_id": "x", "conversation_id": "y"}}, "TURN_NOT_FOUND", "context.turn_id"),
        ({"context": {"run_id": ABSENT}}, "RUN_NOT_FOUND", "context.run_id"),
        ({"context": {"run_id": CONVERSATION}}, "RUN_NOT_FOUND", "context.run_id"),
    ],
)
async def test_an_invalid_start_is_refused(
    stub: CoordinatorServiceStub, fields: JsonDict, reason: str, field: str
) -> None:
    request = ask(pb.StartRunRequest, **{"workflow_id": "team/one", **fields})
    assert await rejected(stub.StartRun(request)) == (reason, [field])
    assert await listed(stub) == []


async def test_the_context_is_completed_from_its_ids(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    await a_conversation(stage, project="proj_other")
    conversation_id = conversation(1).id
    run = await start(stub, context={"turn_id": TURN, "agent_id": "ada"})
    assert (run.context.conversation_id, run.context.turn_id) == (conversation_id, TURN)
    assert (run.context.project_id, run.context.agent_id) == ("proj_other", "agt_ada")
    around = await start(stub, context={"run_id": run.id})
    assert around.context.project_id == "proj_other"
    foreign = {"project_id": "default", "conversation_id": conversation_id}
    assert await rejected(start(stub, context=foreign)) == (
        "CONVERSATION_NOT_FOUND",
        ["context.conversation_id"],
    )
    foreign = {"project_id": "default", "run_id": run.id}
    assert await rejected(start(stub, context=foreign)) == ("RUN_NOT_FOUND", ["context.run_id"])


# --- GetRun -----------------------------------------------------------------------------------------


async def test_get_run_returns_the_current_state(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    started = await start(stub, "team/fan")
    await stage.finish("a", {"x": 1})
    await stage.finish("b")
    run = await get(stub, started.id)
    assert run.status == run_pb2.RUN_STATUS_RUNNING
    assert MessageToDict(run.state)["a"] == {"x": 1}
    assert [(each.ordinal, each.node_id, each.token_id) for each in run.node_executions] == [
        (1, "a", "t"),
        (2, "b", "t.1.0"),
        (3, "c", "t.1.1"),
    ]
    tokens = {token.id: token for token in run.tokens}
    assert tokens["t"].status == run_pb2.TOKEN_STATUS_FORKED
    assert tokens["t.1.0"].status == run_pb2.TOKEN_STATUS_WAITING_FOR_SIBLINGS
    c = tokens["t.1.1"]
    assert (c.node_id, c.parent_token_id, c.fan_out_node_id, c.branch) == ("c", "t", "a", "c")
    assert (c.branch_index, c.branch_count) == (1, 2)
    assert run.node_execution_count == 3 and not run.pending_gates
    assert run.etag == str(run.last_sequence) and run.last_sequence > started.last_sequence


async def test_get_run_returns_the_newest_executions_of_a_long_run(
    stage: RunStage, stub: CoordinatorServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = iter(range(1, 1000))
    stage.instant_output = lambda command: {"n": next(counted), "text": "x" * 1000}
    ended = await start(stub, "team/loop", input={"n": 600}, wait_ms=str(SOON))
    assert ended.status == run_pb2.RUN_STATUS_COMPLETED
    run = await get(stub, ended.id)
    assert [each.ordinal for each in run.node_executions] == list(range(101, 601))
    assert run.node_execution_count == 600
    monkeypatch.setattr(codec, "MAX_ITEM_BYTES", 100_000)
    run = await get(stub, ended.id)
    shown = [each.ordinal for each in run.node_executions]
    assert 50 < len(shown) < 100 and shown == list(range(601 - len(shown), 601))
    assert run.ByteSize() <= 100_000


@pytest.mark.parametrize(
    "run_id", ["", "x", "def_one", CONVERSATION, ABSENT, "run_" + "é" * 26, "x" * 100_000]
)
async def test_an_unknown_run_is_not_found(stub: CoordinatorServiceStub, run_id: str) -> None:
    for call in (
        stub.GetRun(pb.GetRunRequest(run_id=run_id)),
        stub.CancelRun(pb.CancelRunRequest(run_id=run_id)),
        stub.SignalRun(pb.SignalRunRequest(run_id=run_id, signal=run_pb2.Signal(name="go"))),
        stub.ReplayRun(pb.ReplayRunRequest(run_id=run_id)),
        stub.ForkRun(pb.ForkRunRequest(run_id=run_id, after_sequence=1)),
        stub.WatchRun(pb.WatchRunRequest(run_id=run_id)).read(),
    ):
        assert await rejected(call) == ("RUN_NOT_FOUND", ["run_id"])
    if run_id:
        call = stub.ListGates(pb.ListGatesRequest(run_id=run_id))
        assert await rejected(call) == ("RUN_NOT_FOUND", ["run_id"])


# --- ListRuns ---------------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first_and_filtered(
    stage: RunStage, stub: CoordinatorServiceStub
) -> None:
    await a_conversation(stage)
    conversation_id = conversation(1).id
    began = stage.clock.now

    async def later(workflow: str, **fields: object) -> str:
        stage.clock.now += 1000
        return (await start(stub, workflow, **fields)).id

    one = await later("team/one")
    two = await later("team/chain@1", context={"project_id": "other"})
    three = await later("team/chain", context={"conversation_id": conversation_id})
    four = await later("team/outer")
    stage.clock.now += 1000
    for run_id in (one, four):
        await stage.finish("a", run_id=run_id)
    ((child, _),) = [each for each in stage.tasks if each[1].node_id == "n"]
    await stage.finish("n")

    assert await listed(stub) == [four, three, two, one]
    assert await listed(stub, include_children=True) == [child, four, three, two, one]
    assert await listed(stub, parent_run_id=four) == [child]
    assert await listed(stub, workflow_id="team/chain") == [three, two]
    assert await listed(stub, workflow_id="def_chain") == [three, two]
    assert await listed(stub, workflow_id="team/chain@1") == [two]
    assert await listed(stub, project_id="other") == [two]
    assert await listed(stub, project_id="default") == [four, three, one]
    assert await listed(stub, conversation_id=conversation_id) == [three]
    assert await listed(stub, statuses=["RUN_STATUS_COMPLETED"]) == [four, one]
    assert await listed(stub, statuses=["RUN_STATUS_RUNNING", "RUN_STATUS_WAITING"]) == [three, two]
    assert await listed(stub, statuses=["RUN_STATUS_RUNNING"], project_id="other") == [two]
    assert await listed(stub, statuses=["RUN_STATUS_RUNNING"], workflow_id="team/one") == []
    assert await listed(stub, parent_run_id=ABSENT) == await listed(stub, conversation_id="x") == []

    def at(ms: int) -> Any:
        stamp = Timestamp()
        stamp.FromMilliseconds(ms)
        return stamp.ToJsonString()

    assert await listed(stub, start_time=at(began + 2000)) == [four, three, two]
    assert await listed(stub, end_time=at(began + 3000)) == [two, one]
    assert await listed(stub, start_time=at(began + 2000), end_time=at(began + 3000)) == [two]
    assert await listed(stub, end_time="1969-01-01T00:00:00Z") == []


async def test_a_listed_run_equals_the_run_of_get_run(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    await start(stub, "team/chain@1", metadata={"a": 1})
    await stage.finish("a")
    (run,) = (await stub.ListRuns(pb.ListRunsRequest())).runs
    whole = await get(stub, run.id)
    assert run.node_execution_count == 2 and whole.node_executions
    for field in ("state", "tokens", "node_executions", "pending_gates"):
        whole.ClearField(field)
    assert run == whole


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"workflow_id": "team/none"}, "DEFINITION_NOT_FOUND", "workflow_id"),
        ({"workflow_id": "x" * 600}, "FIELD_INVALID", "workflow_id"),
        ({"project_id": "none"}, "PROJECT_NOT_FOUND", "project_id"),
        ({"page_size": -1}, "FIELD_INVALID", "page_size"),
        ({"page_token": "x"}, "PAGE_TOKEN_INVALID", "page_token"),
        ({"page_token": "é"}, "PAGE_TOKEN_INVALID", "page_token"),
        ({"statuses": ["RUN_STATUS_UNSPECIFIED"]}, "FIELD_INVALID", "statuses[0]"),
        ({"conversation_id": "x" * 600}, "FIELD_INVALID", "conversation_id"),
        ({"parent_run_id": "x" * 600}, "FIELD_INVALID", "parent_run_id"),
    ],
)
async def test_an_invalid_list_is_refused(
    stub: CoordinatorServiceStub, fields: JsonDict, reason: str, field: str
) -> None:
    assert await rejected(stub.ListRuns(ask(pb.ListRunsRequest, **fields))) == (reason, [field])


async def test_a_page_token_is_valid_for_one_list(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    for _ in range(3):
        await start(stub)
    page = await stub.ListRuns(pb.ListRunsRequest(page_size=2))
    other = pb.ListRunsRequest(page_size=2, page_token=page.next_page_token, include_children=True)
    assert await rejected(stub.ListRuns(other)) == ("PAGE_TOKEN_INVALID", ["page_token"])


# --- CancelRun, SignalRun ---------------------------------------------------------------------------


async def test_a_run_is_cancelled_with_a_reason(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    run = await start(stub)
    stale = pb.CancelRunRequest(run_id=run.id, etag="0")
    assert await rejected(stub.CancelRun(stale)) == ("ETAG_MISMATCH", ["etag"])
    long = pb.CancelRunRequest(run_id=run.id, reason="x" * 20_000)
    assert await rejected(stub.CancelRun(long)) == ("FIELD_INVALID", ["reason"])
    wanted = pb.CancelRunRequest(run_id=run.id, etag=run.etag, reason="Enough.", request_id="once")
    cancelled = (await stub.CancelRun(wanted)).run
    assert cancelled.status == run_pb2.RUN_STATUS_CANCELLED and cancelled.error.message == "Enough."
    assert (await stub.CancelRun(wanted)).run == cancelled
    assert (await rejected(stub.CancelRun(pb.CancelRunRequest(run_id=run.id))))[0] == "RUN_NOT_ACTIVE"


async def test_a_signal_is_recorded(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    run = await start(stub, "team/wait")
    await stage.finish("a")
    given = {"name": "go", "payload": {"deep": [1, None]}, "user_id": "ann"}
    answer = await stub.SignalRun(ask(pb.SignalRunRequest, run_id=run.id, signal=given))
    await stage.finish("b")
    event = next(e for e in await watched(stub, run.id) if e.sequence == answer.sequence)
    assert event.name == "signal.received"
    shown = MessageToDict(event.signal_received, preserving_proto_field_name=True)
    assert shown == {**given, "principal": {"kind": "PRINCIPAL_KIND_ANONYMOUS"}}


@pytest.mark.parametrize("name", ["", "a b", "a-b", "é", "x" * 65, "go\n"])
async def test_a_signal_needs_a_plain_name(stub: CoordinatorServiceStub, name: str) -> None:
    request = pb.SignalRunRequest(run_id=ABSENT, signal=run_pb2.Signal(name=name))
    assert await rejected(stub.SignalRun(request)) == ("FIELD_INVALID", ["signal.name"])


async def test_the_payload_of_a_signal_is_limited(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    run = await start(stub)
    request = ask(pb.SignalRunRequest, run_id=run.id, signal={"name": "go", "payload": "x" * (1 << 20)})
    assert await rejected(stub.SignalRun(request)) == ("PAYLOAD_TOO_LARGE", ["signal.payload"])


# --- gates ------------------------------------------------------------------------------------------


async def gates(stub: CoordinatorServiceStub, **fields: object) -> list[str]:
    found: list[str] = []
    token = ""
    while True:
        page = await stub.ListGates(ask(pb.ListGatesRequest, page_size=1, page_token=token, **fields))
        found += [gate.id for gate in page.gates]
        token = page.next_page_token
        if not token:
            return found


async def test_gates_are_listed_and_resolved(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    stage.workflows.known.append(
        pinned("open", "a>ask", nodes={"ask": {"human_gate": {"answer_schema": {"type": "object"}}}})
    )
    one = await gated(stage, stub)
    two = await gated(stage, stub, context={"project_id": "other"})
    stage.clock.now += 1000
    run = await start(stub, "team/open")
    await stage.finish("a")
    (three,) = (await get(stub, run.id)).pending_gates
    assert (one.prompt, one.node_id, one.project_id) == ("Ship it?", "ask", "proj_default")
    assert list(one.user_ids) == ["ann", "bob"] and not one.HasField("resolution")
    assert (await get(stub, one.run_id)).status == run_pb2.RUN_STATUS_WAITING
    assert await gates(stub) == [one.id, two.id, three.id]
    assert await gates(stub, project_id="other") == [two.id]
    assert await gates(stub, run_id=one.run_id) == [one.id]
    assert await gates(stub, run_id=one.run_id, project_id="other") == []
    assert await gates(stub, user_id="ann") == [one.id, two.id, three.id]
    assert await gates(stub, user_id="eve") == [three.id]

    request = pb.ResolveGateRequest(
        gate_id=one.id, decision=pb.GATE_DECISION_REJECT, shown_hash=one.shown_hash, comment="No.",
        user_id="bob", request_id="once",
    )  # fmt: skip
    resolved = (await stub.ResolveGate(request)).gate
    assert resolved.status == run_pb2.GATE_STATUS_REJECTED
    assert (resolved.resolution.user_id, resolved.resolution.comment) == ("bob", "No.")
    assert resolved.resolution.HasField("resolve_time")
    assert (await stub.ResolveGate(request)).gate == resolved
    assert await gates(stub) == [two.id, three.id]
    assert await gates(stub, statuses=["GATE_STATUS_REJECTED"]) == [one.id]
    answered = ask(
        pb.ResolveGateRequest, gate_id=three.id, decision="GATE_DECISION_APPROVE",
        shown_hash=three.shown_hash, answer={"edited": True},
    )  # fmt: skip
    resolved = (await stub.ResolveGate(answered)).gate
    assert MessageToDict(resolved.resolution.answer) == {"edited": True}
    assert resolved.status == run_pb2.GATE_STATUS_APPROVED
    await stub.CancelRun(pb.CancelRunRequest(run_id=two.run_id))
    assert await gates(stub, statuses=["GATE_STATUS_CANCELLED"]) == [two.id]


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"gate_id": ""}, "FIELD_INVALID", "gate_id"),
        ({"gate_id": "gate_01HF7YAT0000000000000000A1"}, "GATE_NOT_FOUND", "gate_id"),
        ({"gate_id": "gate_01HF7YAT0000000000000000AZ"}, "GATE_NOT_FOUND", "gate_id"),
        ({"gate_id": ABSENT}, "GATE_NOT_FOUND", "gate_id"),
        ({"decision": "GATE_DECISION_UNSPECIFIED"}, "FIELD_INVALID", "decision"),
        ({"shown_hash": ""}, "FIELD_INVALID", "shown_hash"),
        ({"shown_hash": "0" * 64}, "GATE_RESOLVED", "shown_hash"),
        ({"user_id": "eve"}, "PERMISSION_DENIED", "user_id"),
        ({"user_id": ""}, "PERMISSION_DENIED", "user_id"),
        ({"answer": {"x": 1}}, "INPUT_INVALID", "answer"),
        ({"answer": {"x": "y" * (1 << 20)}}, "PAYLOAD_TOO_LARGE", "answer"),
        ({"comment": "x" * 20_000}, "FIELD_INVALID", "comment"),
    ],
)
async def test_an_invalid_gate_decision_is_refused(
    stage: RunStage, stub: CoordinatorServiceStub, fields: JsonDict, reason: str, field: str
) -> None:
    gate = await gated(stage, stub)
    good = {"gate_id": gate.id, "decision": "GATE_DECISION_APPROVE", "shown_hash": gate.shown_hash}
    call = stub.ResolveGate(ask(pb.ResolveGateRequest, **{**good, "user_id": "ann", **fields}))
    found, places = await rejected(call)
    assert found == reason and places[0].startswith(field)
    assert await gates(stub) == [gate.id]


async def test_a_decision_without_a_user_is_made_by_the_caller(stage: RunStage) -> None:
    run_id = (await stage.start("team/gate")).run.id
    await stage.finish("a")
    servicer = CoordinatorServicer(ForAll(RunParts(stage.runs, TwoProjects(), NullArchive())))
    (gate,) = (await servicer.list_gates(pb.ListGatesRequest(run_id=run_id), None)).gates
    token = current_principal.set(token_principal("bob"))
    try:
        signal = pb.SignalRunRequest(run_id=run_id, signal=run_pb2.Signal(name="hint"))
        await servicer.signal_run(signal, None)
        decision = pb.ResolveGateRequest(
            gate_id=gate.id, decision=pb.GATE_DECISION_APPROVE, shown_hash=gate.shown_hash
        )
        resolved = (await servicer.resolve_gate(decision, None)).gate
    finally:
        current_principal.reset(token)
    assert resolved.resolution.user_id == "bob"
    (received,) = await stage.shards.find(Query(table="signals", actor=run_id))
    assert received.user_id == "bob"


# --- ReplayRun, ForkRun -----------------------------------------------------------------------------


async def test_a_run_is_replayed_and_forked(stage: RunStage, stub: CoordinatorServiceStub) -> None:
    run = await start(stub, "team/chain@1", input={"n": 1})
    await stage.finish("a", {"x": 1})
    replayed = await stub.ReplayRun(pb.ReplayRunRequest(run_id=run.id))
    assert replayed.identical and replayed.step_count == 2
    request = ask(
        pb.ForkRunRequest, run_id=run.id, before_node_execution=2, state={"y": 2}, request_id="once"
    )
    forked = (await stub.ForkRun(request)).run
    assert forked.forked_from_run_id == run.id and MessageToDict(forked.input) == {"n": 1}
    assert MessageToDict((await get(stub, forked.id)).state) == {"y": 2}
    assert (await stub.ForkRun(request)).run.id == forked.id


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({}, "FIELD_INVALID", "after_sequence"),
        ({"after_sequence": "0"}, "CURSOR_OUT_OF_RANGE", "after_sequence"),
        ({"after_sequence": "-1"}, "FIELD_INVALID", "after_sequence"),
        ({"after_sequence": str(2**62)}, "CURSOR_OUT_OF_RANGE", "after_sequence"),
        ({"before_node_execution": 0}, "FIELD_INVALID", "before_node_execution"),
        ({"before_node_execution": -1}, "FIELD_INVALID", "before_node_execution"),
        ({"before_node_execution": 2}, "CURSOR_OUT_OF_RANGE", "before_node_execution"),
        ({"before_node_execution": 1, "workflow_revision": -1}, "FIELD_INVALID", "workflow_revision"),
        ({"before_node_execution": 1, "workflow_revision": 5}, "DEFINITION_NOT_FOUND", "workflow_revision"),
        ({"before_node_execution": 1, "input": {"n": "x"}}, "INPUT_INVALID", "input"),
    ],
)
async def test_an_invalid_fork_is_refused(
    stub: CoordinatorServiceStub, fields: JsonDict, reason: str, field: str
) -> None:
    run = await start(stub)
    request = ask(pb.ForkRunRequest, run_id=run.id, **fields)
    assert await rejected(stub.ForkRun(request)) == (reason, [field])
    assert await listed(stub) == [run.id]
