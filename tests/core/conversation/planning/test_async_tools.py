"""Tests of asynchronous tools and of agents as tools."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conversation.conversation_kit import (
    ASSEMBLED,
    BUSINESS,
    CONVERSATION_ID,
    NOW,
    TOOLS,
    TRANSIENT,
    Driven,
    agent,
    agent_tool,
    call,
    called,
    flow_tool,
    kinds,
    send,
    text_answer,
)
from tests.replacing import replace
from wonder_server.core.actor.commands import CallAgent, RunWorkflow, Stop
from wonder_server.core.conversation.model import agent_tools, inputs
from wonder_server.core.conversation.model.decisions import (
    AgentCallEnded,
    AsyncOperationCompleted,
    Decision,
    RetryOperation,
)
from wonder_server.core.conversation.model.values import OperationKind, ToolErrorCode, TurnStatus
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.expressions.times import utc_text
from wonder_server.core.model import ToolCall

MODEL = OperationKind.MODEL


def assembled(**fields: Any) -> Driven:
    driven = Driven(extraction=False, **fields)
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    return driven


def commands(driven: Driven, decisions: tuple[Decision, ...]) -> list[Any]:
    return [command for d in decisions for command in CONVERSATION.commands(driven.state, d)]


def last(driven: Driven) -> str:
    """Return the last message of the request."""
    return str(driven.request()["messages"][-1])


# --- asynchronous tools -----------------------------------------------------------------------------


def test_the_model_gets_a_running_result_at_once_and_the_turn_waits_after_its_answer() -> None:
    driven = assembled()
    decisions = driven.answer(text_answer("", call("slow")))
    assert kinds(decisions) == ["RecordMove", "DispatchTask", "TrackAsyncOperation", "DispatchModel"]
    operation = driven.operation("slow")
    assert "running" in last(driven) and operation.id in last(driven)
    assert kinds(driven.answer(text_answer("I am at it."))) == ["RecordMove", "AppendMessage"]
    assert driven.turn.status is TurnStatus.ACTIVE
    decisions = driven.complete("slow", {"n": 1})
    assert kinds(decisions) == ["AsyncOperationCompleted", "DispatchWorkflow", "MarkWaiting"]
    decisions = driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    assert kinds(decisions) == ["ContextAssembled", "DispatchModel"]
    assert driven.request()["messages"][-1]["role"] == "user"
    assert '{"n":1}' in last(driven) and operation.id in last(driven)
    assert kinds(driven.answer(text_answer("One.")))[-2:] == ["CompleteTurn", "ReleaseTurn"]
    assert driven.turn.moves == 3


def test_a_result_that_arrives_during_a_model_call_is_reported_after_it() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("slow"), call("slow_flow")))
    assert kinds(driven.complete("slow", 1)) == ["AsyncOperationCompleted"]
    assert kinds(driven.complete("slow_flow", fault=BUSINESS)) == ["WorkflowEnded", "AsyncOperationCompleted"]
    # Report both together, in the order of arrival.
    assert kinds(driven.answer(text_answer("Started."))) == ["RecordMove", "AppendMessage", "DispatchModel"]
    assert last(driven).index("`slow`") < last(driven).index("EXECUTION_FAILED")
    assert len(driven.pending(MODEL).reports) == 2
    driven.answer(text_answer("Both are back."))
    assert driven.turn.status is TurnStatus.COMPLETED and driven.turn.tool_failures == 1


def test_a_retried_model_call_reports_a_result_once() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("slow")))
    driven.answer(text_answer("Started."))
    driven.complete("slow", 1)
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.fail(MODEL, TRANSIENT)
    driven.wait_for_timer(MODEL)
    driven.answer(text_answer("", call("find")))
    decisions = driven.complete("find", {})
    assert kinds(decisions) == ["ResumeFromTool", "DispatchModel"]
    assert driven.pending(MODEL).reports == ()


def test_an_awaited_result_is_awaited_although_another_one_arrived() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("slow"), call("find")))
    (came,) = driven.complete("slow", 1)
    assert isinstance(came, AsyncOperationCompleted) and not came.move.completed_ms
    assert kinds(driven.complete("find", 2)) == ["ResumeFromTool", "DispatchModel"]
    messages = driven.request()["messages"]
    assert [m["role"] for m in messages[-3:]] == ["tool", "tool", "user"]
    assert "running" in str(messages[-3]) and messages[-2]["content"] == "2"


def test_the_last_move_waits_for_all_pending_results() -> None:
    driven = assembled(max_moves=2)
    assert "DispatchModel" not in kinds(driven.answer(text_answer("", call("slow"), call("slow_flow"))))
    assert kinds(driven.complete("slow", 1)) == ["AsyncOperationCompleted"]
    decisions = driven.complete("slow_flow", 2)
    assembles = ["WorkflowEnded", "AsyncOperationCompleted", "DispatchWorkflow", "MarkWaiting"]
    assert kinds(decisions) == assembles
    decisions = driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    assert kinds(decisions) == ["ContextAssembled", "LimitReached", "DispatchModel"]
    assert "CompleteTurn" in kinds(driven.answer(text_answer("All of it.")))


def test_an_asynchronous_tool_is_retried_like_any_other() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("slow")))
    driven.answer(text_answer("Started."))
    (retry,) = driven.complete("slow", fault=TRANSIENT)
    assert isinstance(retry, RetryOperation)
    driven.wait_for_timer(OperationKind.TASK)
    driven.complete("slow", 1)
    (completed,) = (e.invocations[0] for e in driven.state.moves[driven.turn.id] if e.invocations)
    assert completed.result is not None and completed.result.attempts == 2


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_the_end_of_a_turn_stops_its_asynchronous_tools(end: str) -> None:
    driven = assembled()
    driven.answer(text_answer("", call("slow_flow"), call("slow_peer")))
    flow, peer = driven.operation("slow_flow"), driven.operation("slow_peer")
    if end == "cancel":
        decisions = driven.step(inputs.CancelTurn(turn_id=driven.turn.id))
    else:
        decisions = driven.fail(MODEL, BUSINESS)
    stopped = [command for command in commands(driven, decisions) if isinstance(command, Stop)]
    assert Stop(operation_id=flow.id, child_id=flow.run_id) in stopped
    assert Stop(operation_id=peer.id, child_id=peer.run_id) in stopped
    assert "AgentCallEnded" in kinds(decisions)
    assert not driven.state.operations


def test_another_turn_sees_running_tools() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("slow")))
    driven.answer(text_answer("Started."))
    slow = driven.operation("slow")
    (assembly,) = commands(driven, driven.step(send("second", extraction=False)))
    assert isinstance(assembly, RunWorkflow)
    (active,) = assembly.input["active_turns"]
    expected = {
        "operation_id": slow.id,
        "kind": "task",
        "tool_name": "slow",
        "async": True,
        "arguments": '{"q": "x"}',
        "since": utc_text(slow.created_ms),
        "question": "hello",
        "speaker": {"id": "ann", "kind": "user", "name": "", "label": "user ann"},
        "agent": {"id": "agt_1", "kind": "agent", "name": "helper", "label": "agent helper"},
    }
    assert active["pending"] == [expected]


def test_calls_of_an_answer_that_was_cut_off_do_not_run() -> None:
    driven = assembled()
    decisions = driven.answer(replace(text_answer("I", call("find"), call("slow")), stop_reason="length"))
    assert not [name for name in kinds(decisions) if name.startswith("Dispatch") and name != "DispatchModel"]
    assert driven.turn.tool_failures == 2 and "cut off" in last(driven)


# --- agents as tools --------------------------------------------------------------------------------


def agent_command(driven: Driven, *calls: ToolCall) -> CallAgent:
    """Return the agent call that these tool calls lead to."""
    (only,) = (
        c for c in commands(driven, driven.answer(text_answer("", *calls))) if isinstance(c, CallAgent)
    )
    return only


def test_a_delegate_has_its_own_conversation_and_its_answer_is_the_result() -> None:
    driven = assembled()
    command = agent_command(driven, call("peer"))
    assert (command.agent_id, command.mode, command.input) == ("agt_2", "delegate", {"q": "x"})
    assert command.conversation_id.startswith("conv_") and command.conversation_id != CONVERSATION_ID
    assert command.conversation_id[-1] == CONVERSATION_ID[-1], "both live in one shard"
    assert (command.scope.agent_id, command.scope.call_chain) == ("agt_1", ("agt_1",))
    usage = {"input_tokens": 10, "output_tokens": 5, "model_calls": 2, "cost_micros": 7}
    decisions = driven.complete(
        "peer", {"text": "Red.", "turn_id": "turn_9", "agent_id": "agt_2", "usage": usage}
    )
    assert kinds(decisions) == ["ChargeTurn", "AgentCallEnded", "ResumeFromTool", "DispatchModel"]
    assert driven.turn.input_tokens == 13 and driven.turn.model_calls == 3
    assert '"text":"Red."' in last(driven).replace("\\", "") and "usage" not in last(driven)


def test_a_looped_in_agent_joins_this_conversation_and_is_not_charged_twice() -> None:
    driven = assembled()
    command = agent_command(driven, call("guest"))
    assert (command.mode, command.conversation_id) == ("loop_in", CONVERSATION_ID)
    decisions = driven.complete("guest", {"text": "Hi.", "turn_id": "turn_9", "usage": {"input_tokens": 10}})
    assert "ChargeTurn" not in kinds(decisions) and "joined" in last(driven)


@pytest.mark.parametrize(("tool", "mode"), [("peer", "loop_in"), ("guest", "delegate")])
def test_the_model_chooses_the_mode_of_a_call(tool: str, mode: str) -> None:
    driven = assembled()
    command = agent_command(driven, call(tool, arguments={"q": "x", "invocation_mode": mode}))
    assert (command.mode, command.input) == (mode, {"q": "x"})
    assert (command.conversation_id == CONVERSATION_ID) is (mode == "loop_in")


def test_a_looped_in_agent_is_awaited_even_if_its_tool_is_asynchronous() -> None:
    driven = assembled()
    agent_command(driven, call("slow_peer", arguments={"q": "x", "invocation_mode": "loop_in"}))
    assert not driven.operation("slow_peer").is_async


def test_the_mode_is_offered_unless_the_tool_has_a_field_of_that_name() -> None:
    own = {"type": "object", "properties": {"invocation_mode": {"type": "integer"}}}
    keeps = agent_tool("keeps", input_schema=own)
    assert agent_tools.offered_schema(keeps) == own
    assert agent_tools.split_mode(keeps, {"invocation_mode": 1}) == ("delegate", {"invocation_mode": 1}, "")
    offered = agent_tools.offered_schema(agent_tool("plain", input_schema={}))
    assert set(offered["properties"]) == {"message", "invocation_mode"}
    assert "invocation_mode" not in agent_tools.offered_schema(flow_tool("flow")).get("properties", {})


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault(reason=Reason.MODEL_FAILED, message="No.", metadata={"declined": "true", "turn_id": "turn_9"}),
         ToolErrorCode.AGENT_DECLINED),
        (Fault(reason=Reason.MODEL_FAILED, message="Broken.", metadata={"turn_id": "turn_9"}),
         ToolErrorCode.EXECUTION_FAILED),
        (Fault(reason=Reason.TIMEOUT, message="Its model.", metadata={"turn_id": "turn_9"}),
         ToolErrorCode.EXECUTION_FAILED),
        (Fault(reason=Reason.TIMEOUT, message="Late."), ToolErrorCode.TIMEOUT),
        (Fault(reason=Reason.AGENT_NOT_FOUND, message="Gone."), ToolErrorCode.NOT_FOUND),
        (Fault(reason=Reason.LIMIT_EXCEEDED, message="Deep."), ToolErrorCode.PERMISSION_DENIED),
        (Fault(reason=Reason.INPUT_INVALID, message="Empty."), ToolErrorCode.INVALID_INPUT),
        (Fault(reason=Reason.INTERNAL, message="Ours."), ToolErrorCode.INTERNAL_ERROR),
    ],
)  # fmt: skip
def test_a_failed_agent_call_has_an_error_code(fault: Fault, code: ToolErrorCode) -> None:
    driven = assembled()
    driven.answer(text_answer("", call("guest")))
    decisions = driven.complete("guest", fault=fault)
    (ended,) = (d.call for d in decisions if isinstance(d, AgentCallEnded))
    assert (ended.fault, ended.turn_id) == (fault, fault.metadata.get("turn_id", ""))
    assert code in last(driven)


def test_each_attempt_of_a_delegate_has_its_own_conversation() -> None:
    driven = assembled()
    first = agent_command(driven, call("peer"))
    driven.complete("peer", fault=TRANSIENT)
    (again,) = commands(driven, driven.wait_for_timer(OperationKind.AGENT))
    assert isinstance(again, CallAgent) and again.conversation_id != first.conversation_id
    late = inputs.Succeeded(
        operation_id=first.operation_id, output={"text": "Late."}, run_id=first.conversation_id
    )
    assert driven.step(late) == ()


@pytest.mark.parametrize(
    ("limit", "depth", "inherited", "may"),
    [(5, 0, 9, True), (1, 0, 9, True), (0, 0, 9, False), (5, 2, 3, True), (5, 3, 3, False), (1, 3, 9, True)],
)
def test_the_depth_of_agent_calls_is_limited(limit: int, depth: int, inherited: int, may: bool) -> None:
    driven = Driven(begin=False)
    asking = agent(extraction=False, max_delegation_depth=limit)
    driven.step(replace(called(agent=asking), depth=depth, max_depth=inherited))
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    decisions = driven.answer(text_answer("", call("peer")))
    assert ("DispatchAgent" in kinds(decisions)) is may
    if not may:
        assert "PERMISSION_DENIED" in last(driven)


def test_an_agent_that_waits_for_this_one_is_not_called() -> None:
    driven = Driven(begin=False)
    driven.step(replace(called(agent=agent(extraction=False)), call_chain=("agt_2",)))
    driven.succeed(OperationKind.ASSEMBLY, ASSEMBLED)
    driven.answer(text_answer("", call("peer"), call("mirror")))
    assert driven.turn.tool_failures == 2 and "cycle" in last(driven)


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [((), 0), (("context",), 1), (("shell", "context"), 0), (("memory.*",), 3)],
)
def test_tools_use_only_what_the_persona_allows(allowed: tuple[str, ...], refused: int) -> None:
    driven = assembled(agent=agent(tools=TOOLS, extraction=False, allowed_actions=allowed))
    driven.answer(text_answer("", call("find"), call("once"), call("flow")))
    assert driven.turn.tool_failures == refused


def test_the_times_of_a_result() -> None:
    driven = assembled()
    driven.answer(text_answer("", call("find"), call("nothing")))
    driven.complete("find", {})
    find, nothing = driven.state.moves[driven.turn.id][0].invocations
    assert find.result is not None and nothing.result is not None
    assert find.result.created_ms > NOW and find.result.duration_ms == 1 and find.result.attempts == 1
    assert (nothing.result.attempts, nothing.result.duration_ms) == (0, 0)
