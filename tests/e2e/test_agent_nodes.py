"""Agents as nodes of workflows: delegated and looped in, stopped with their run, and through kill -9."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToDict
from grpc import aio

from tests.e2e.client import Client, View, struct
from tests.e2e.deaths import Story, at_every, through_deaths
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_kill import slow_agent
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2, run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

ASKING = """
name: {name}
workflow:
  nodes:
    - id: ask
      agent_id: {agent}
      invocation_mode: {mode}
      input_mapping: {{question: input.question}}
      output_mapping: {{state.answer: result}}
    - id: note
      task_id: echo
      input_mapping: {{text: state.answer.text}}
      output_mapping:
        output.text: result.text
        output.turn_id: state.answer.turn_id
        output.conversation_id: state.answer.conversation_id
        output.usage: state.answer.usage
  transitions: [{{from_node_id: ask, to_node_id: note}}]
---
name: echo
task:
  steps:
    - id: echo
      action: {{kind: context}}
      input_mapping: {{text: input.text}}
      output_mapping: {{output.text: input.text}}
"""


async def asking(client: Client, agent: str, mode: str = "delegate") -> str:
    """Create a workflow that asks ``agent`` its question; return its reference."""
    name = f"ask_{agent}_{mode}"
    await client.apply("e2e/asking", ASKING.format(name=name, agent=agent, mode=mode))
    return f"e2e/asking/{name}"


async def started(client: Client, workflow: str, question: str, request_id: str = "", conv: str = "") -> str:
    request = runs.StartRunRequest(
        workflow_id=workflow, input=struct(question=question), request_id=request_id
    )
    if conv:
        request.context.conversation_id = conv
    return str((await client.coordinator.StartRun(request)).run.id)


async def ended(client: Client, run_id: str) -> run_pb2.Run:
    """Wait for the end of the run and return it."""
    async with asyncio.timeout(60):
        async for _ in client.coordinator.WatchRun(runs.WatchRunRequest(run_id=run_id)):
            pass
    run = (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run
    assert run.complete_time.seconds
    return run


async def output(client: Client, run_id: str) -> dict[str, Any]:
    run = await ended(client, run_id)
    assert run.status == run_pb2.RUN_STATUS_COMPLETED, run.error
    return MessageToDict(run.output)


async def conversation_of(client: Client, conversation_id: str) -> conversation.Conversation:
    request = pb.GetConversationRequest(conversation_id=conversation_id)
    return (await client.conversations.GetConversation(request)).conversation


async def test_a_delegated_turn_sees_its_input_alone_and_its_answer_goes_on(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="Use two."))
    answer = await output(client, await started(client, await asking(client, agent), "Two or three?"))
    assert answer["text"] == "Use two."
    assert answer["usage"]["model_calls"] == 1
    (request,) = scripted.requests
    assert [m["content"] for m in request["messages"] if m["role"] == "user"] == ["Two or three?"]  # type: ignore[attr-defined]
    # Its conversation can be read like any other, but is not among those that people have.
    conv = await conversation_of(client, answer["conversation_id"])
    assert [p.agent.name for p in conv.participants] == [agent]
    turn = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=answer["turn_id"]))).turn
    assert turn.caller.workflow.run_id.startswith("run_")
    assert turn.output.string_value == "Use two."
    assert [m.content for m in await client.messages(conv.id)] == ["Two or three?", "Use two."]
    listed = await client.conversations.ListConversations(pb.ListConversationsRequest(agent_id=agent))
    assert not listed.conversations


async def test_a_looped_in_agent_hears_what_was_said_answers_to_all_and_stays(
    client: Client, provider: Provider
) -> None:
    host = await Scripted(client, provider, "openai").agent(Script(text="I take the blue one."))
    conv = await client.open(host)
    await client.turn(conv, "Which one do you take?")
    scripted = Scripted(client, provider, "anthropic")
    guest = await scripted.agent(Script(text="I would take the red one."), Script(text="Still here."))
    workflow = await asking(client, guest, "loop_in")
    async with client.listening(conv) as listener:
        answer = await output(client, await started(client, workflow, "And you?", conv=conv))
        view = await listener.until(lambda v: answer["turn_id"] and v.settled(answer["turn_id"]))
    assert answer["conversation_id"] == conv
    assert "participant.joined" in view.names
    prompt = str(scripted.requests[0]["messages"])
    assert "I take the blue one." in prompt and "And you?" in prompt
    assert [m.content for m in await client.messages(conv)][-2:] == ["And you?", "I would take the red one."]
    guests = [p for p in (await conversation_of(client, conv)).participants if p.agent.name == guest]
    assert [p.origin for p in guests] == [conversation.PARTICIPANT_ORIGIN_LOOPED_IN]
    assert guests[0].added_by.workflow.run_id.startswith("run_")
    turn, _ = await client.turn(conv, f"@{guest} are you there?")
    assert turn.agent_id == guests[0].agent.agent_id


ASK_A_GUEST = """
name: {name}
description: Asks another agent.
tool:
  target_type: workflow
  target_id: {workflow}
  input_schema: {{type: object, properties: {{question: {{type: string}}}}, required: [question]}}
"""


@pytest.mark.parametrize("mode", ["delegate", "loop_in"])
async def test_an_agents_tool_is_a_workflow_that_calls_another_agent(
    client: Client, provider: Provider, mode: str
) -> None:
    guest = await Scripted(client, provider, "anthropic").agent(Script(text="Red."))
    workflow = await asking(client, guest, mode)
    await client.apply("e2e/asking", ASK_A_GUEST.format(name=f"ask_a_guest_{mode}", workflow=workflow))
    scripted = Scripted(client, provider, "openai")
    call = Call(name=f"ask_a_guest_{mode}", arguments='{"question": "Which?"}')
    host = await scripted.agent(
        Script(calls=(call,)), Script(text="They say red."), tools=(f"e2e/asking/ask_a_guest_{mode}",)
    )
    conv = await client.open(host)
    turn, _ = await client.turn(conv, "Which one do they take?")
    assert turn.status == conversation.TURN_STATUS_COMPLETED
    assert "Red." in str(scripted.requests[1]["messages"])
    said = [m.content for m in await client.messages(conv)]
    asked = ["Which?", "Red."] if mode == "loop_in" else []
    assert said == ["Which one do they take?", *asked, "They say red."]
    assert turn.issues.tool_failures == 0


async def test_a_turn_that_fails_is_the_nodes_failure(client: Client, provider: Provider) -> None:
    agent = await Scripted(client, provider, "openai").agent(Script(status=401))
    run = await ended(client, await started(client, await asking(client, agent), "Anyone?"))
    assert run.status == run_pb2.RUN_STATUS_FAILED
    assert run.error.reason == errors_pb2.ERROR_REASON_MODEL_FAILED
    assert run.error.metadata["turn_id"].startswith("turn_")


async def test_an_agent_that_refuses_fails_the_node_with_what_it_said(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "anthropic")
    agent = await scripted.agent(Script(text="I will not.", stop="refusal"))
    run = await ended(client, await started(client, await asking(client, agent), "Do it!"))
    assert run.error.reason == errors_pb2.ERROR_REASON_MODEL_FAILED
    assert "declined: I will not." in run.error.message


async def test_a_run_without_a_conversation_has_nothing_to_loop_an_agent_into(client: Client) -> None:
    workflow = await asking(client, "assistant", "loop_in")
    run = await ended(client, await started(client, workflow, "Anyone?"))
    assert run.status == run_pb2.RUN_STATUS_FAILED
    assert "conversation" in run.error.message


async def test_a_cancelled_run_hangs_up_on_its_agents_model(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    endless = Script(text=" ".join(f"word{n}" for n in range(2000)), delay_ms=20)
    run_id = await started(client, await asking(client, await scripted.agent(endless)), "Speak.")
    async with asyncio.timeout(60):
        await provider.wait_until(lambda: bool(scripted.requests))
        await client.coordinator.CancelRun(runs.CancelRunRequest(run_id=run_id))
        await scripted.until_closed_early()
    run = await ended(client, run_id)
    assert run.status == run_pb2.RUN_STATUS_CANCELLED
    turns = await client.conversations.ListTurns(pb.ListTurnsRequest(page_size=1))
    (turn,) = turns.turns
    assert turn.status == conversation.TURN_STATUS_CANCELLED and not turn.operations


# --- kill -9 ----------------------------------------------------------------------------------------

WORDS = " ".join(f"word{n}" for n in range(1, 6))


async def ask_once(client: Client, _: View) -> None:
    """Start the run and wait for its end; the story can be repeated."""
    answer = await output(
        client, await started(client, "e2e/asking/ask_assistant_delegate", "say 5 words", "ask")
    )
    await client.settled(answer["conversation_id"], answer["turn_id"])
    assert answer["text"] == WORDS
    turns = (await client.conversations.ListTurns(pb.ListTurnsRequest())).turns
    assert [turn.id for turn in turns] == [answer["turn_id"]], "one call is one turn"
    assert [m.content for m in await client.messages(answer["conversation_id"])] == ["say 5 words", WORDS]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare a data folder with agents and workflows, to copy."""
    data = tmp_path_factory.mktemp("prepared") / "data"
    await slow_agent(data)
    async with serving(data) as server, server.client() as client:
        await asking(client, "assistant")
        await asking(client, "assistant", "loop_in")
        await asking(client, "snail")
        await client.agent("host", "wonder/std/assistant")
    return data


async def loop_in_once(client: Client, _: View) -> None:
    """Play the same story with an agent that joins a conversation."""
    conv = await client.open("host", request_id="open")
    run_id = await started(client, "e2e/asking/ask_assistant_loop_in", "say 5 words", "ask", conv)
    answer = await output(client, run_id)
    await client.settled(conv, answer["turn_id"])
    assert [m.content for m in await client.messages(conv)] == ["say 5 words", WORDS]
    assert answer["text"] == WORDS and answer["conversation_id"] == conv
    assert [p.agent.name for p in (await conversation_of(client, conv)).participants] == ["host", "assistant"]


STEPS = ("run started", "agent at work", "agent has answered", "run ended")
"""Steps of the stories, each on disk before the next begins."""
POINTS = {"committed": len(STEPS), "before-answer": 1}
"""Failpoints, with the minimum number of times that the stories pass each."""


@pytest.mark.parametrize("story", [ask_once, loop_in_once])
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_while_an_agent_works_for_a_run_changes_nothing(
    prepared: Path, tmp_path: Path, point: str, story: Story
) -> None:
    assert await at_every(point, telling(story), fresh=prepared, folder=tmp_path) >= POINTS[point]


def telling(story: Story) -> Callable[[Path, str], Awaitable[int]]:
    async def tell(data: Path, doom: str) -> int:
        return await through_deaths(data, story, View(), doom, "")

    return tell


async def exists(client: Client, conversation_id: str) -> bool:
    """A run's call is on disk before the conversation that is made for it."""
    try:
        await conversation_of(client, conversation_id)
    except aio.AioRpcError as problem:
        if problem.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return False
    return True


async def cancel_it(client: Client, _: View) -> None:
    """Start the run, cancel it once its agent speaks, and see the agent stop."""
    run_id = await started(client, "e2e/asking/ask_snail_delegate", "say 1000 words", "ask")
    node = (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run.node_executions[0]
    async with asyncio.timeout(60):
        while not await exists(client, node.carried_out_by):
            pass
    async with client.listening(node.carried_out_by) as listener:
        await listener.until(lambda v: any(v.texts.values()) or "turn.cancelled" in v.names)
        await client.coordinator.CancelRun(runs.CancelRunRequest(run_id=run_id, request_id="stop"))
        await listener.until(lambda v: "turn.cancelled" in v.names)
    run = await ended(client, run_id)
    assert run.status == run_pb2.RUN_STATUS_CANCELLED


async def test_a_kill_around_a_cancel_does_not_leave_the_agent_working(
    prepared: Path, tmp_path: Path
) -> None:
    assert await at_every("committed", telling(cancel_it), fresh=prepared, folder=tmp_path) >= 3
