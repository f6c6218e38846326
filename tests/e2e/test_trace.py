"""One trace through a turn, its tools, their runs, and the agents that these call (feature J3)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from grpc import aio

from tests.e2e.background import asking, call
from tests.e2e.client import Client, View
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRACE = "0af7651916cd43dd8448eb211c80319c"
BROUGHT = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),)

CONSULTING = """
name: consult
description: Consults the expert.
tool: {{target_type: workflow, target_id: consultation}}
---
name: consultation
workflow:
  nodes:
    - {{id: inside, workflow_id: asking, output_mapping: {{output.text: result.text}}}}
---
name: asking
workflow:
  nodes:
    - id: ask
      agent_id: {expert}
      input_mapping: {{question: '"Why?"'}}
      output_mapping: {{output.text: result.text}}
"""


async def turn_of(client: Client, turn_id: str) -> conversation.Turn:
    return (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn_id))).turn


async def run_of(client: Client, run_id: str) -> run_pb2.Run:
    return (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run


async def said(client: Client, conv: str, *, brought: tuple[tuple[str, str], ...] = ()) -> View:
    request = pb.SendMessageRequest(conversation_id=conv, send=pb.ConverseSend(content="Find out."))
    turn = (await client.conversations.SendMessage(request, metadata=aio.Metadata(*brought))).turn
    return await client.settled(conv, turn.id)


@pytest.mark.parametrize("brought", [(), BROUGHT])
async def test_everything_that_a_message_leads_to_is_in_one_trace(
    client: Client, provider: Provider, brought: tuple[tuple[str, str], ...]
) -> None:
    expert, third = Scripted(client, provider, "anthropic"), Scripted(client, provider, "openai")
    deeper, deeper_name = await asking(client, await third.agent(Script(text="Because."), tools=()))
    question = Script(calls=(call(deeper_name, message="Why?"),))
    name = await expert.agent(question, Script(text="They say because."), tools=(deeper,))
    await client.apply(f"e2e/{name}", CONSULTING.format(expert=name))
    host = Scripted(client, provider, "openai")
    scripts = Script(calls=(call("consult"),)), Script(text="Now we know.")
    conv = await client.open(await host.agent(*scripts, tools=(f"e2e/{name}/consult",)))
    view = await said(client, conv, brought=brought)
    (first,) = (e.turn_completed for e in view.events if e.name == "turn.completed")
    trace = first.trace_id
    assert len(trace) == 32 and (trace == TRACE) is bool(brought)
    (started,) = (e.workflow_started for e in view.events if e.name == "workflow_started")
    listed = runs.ListRunsRequest(conversation_id=conv, include_children=True, page_size=100)
    found = {run.id: run.trace_id for run in (await client.coordinator.ListRuns(listed)).runs}
    # The tool's run, the one inside, and the hook.
    assert started.run_id in found and first.context_assembly_run_id in found and len(found) == 3
    turns = [
        turn
        for turn in (await client.conversations.ListTurns(pb.ListTurnsRequest(page_size=1000))).turns
        if turn.trace_id == trace
    ]
    assert len(turns) == 3 and {turn.caller.WhichOneof("caller") for turn in turns} == {
        "user",
        "workflow",
        "agent",
    }
    assembly = await run_of(client, next(t for t in turns if t.id != first.id).context_assembly_run_id)
    assert {*found.values(), assembly.trace_id} == {trace}
    # Another message begins another trace.
    other = await said(client, conv)
    assert trace not in {e.turn_completed.trace_id for e in other.events if e.sequence > view.cursor}


async def test_a_run_and_a_call_of_a_service_are_in_the_trace_that_the_client_brings(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    name = await scripted.agent(Script(text="Yes."), tools=())
    await client.apply(f"e2e/{name}", CONSULTING.format(expert=name))
    request = runs.StartRunRequest(workflow_id=f"e2e/{name}/consultation", wait_ms=30_000, request_id="once")
    metadata = aio.Metadata(*BROUGHT)
    run = (await client.coordinator.StartRun(request, metadata=metadata)).run
    assert run.status == run_pb2.RUN_STATUS_COMPLETED and run.trace_id == TRACE
    # Asking again, which may well be in another trace, is the same request.
    assert (await client.coordinator.StartRun(request)).run.trace_id == TRACE
    inside = runs.ListRunsRequest(parent_run_id=run.id, include_children=True)
    (child,) = (await client.coordinator.ListRuns(inside)).runs
    assert child.trace_id == TRACE
    asked = pb.CallAgentRequest(agent_id=name)
    asked.input.string_value = "?"
    turn = (await client.conversations.CallAgent(asked, metadata=metadata)).turn
    assert turn.trace_id == TRACE
    plain = (await client.coordinator.StartRun(runs.StartRunRequest(workflow_id=request.workflow_id))).run
    assert len(plain.trace_id) == 32 and plain.trace_id != TRACE
    within = runs.StartRunRequest(workflow_id=request.workflow_id)
    within.context.run_id = run.id
    assert (await client.coordinator.StartRun(within)).run.trace_id == TRACE


async def test_a_traceparent_that_is_none_is_passed_over(client: Client) -> None:
    conv = await client.open()
    view = await said(client, conv, brought=(("traceparent", "00-nonsense"),))
    (turn,) = (e.turn_completed for e in view.events if e.name == "turn.completed")
    assert len(turn.trace_id) == 32
    assert json.dumps(turn.trace_id) and (await turn_of(client, turn.id)).trace_id == turn.trace_id


async def test_turns_of_a_stream_are_in_the_trace_that_it_was_opened_with(client: Client) -> None:
    conv = await client.open()
    stream = client.conversations.Converse(metadata=aio.Metadata(*BROUGHT))
    await stream.write(pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=conv)))
    send = pb.ConverseSend(content="say 2 words", request_id="one")
    await stream.write(pb.ConverseRequest(send=send))
    async for word in stream:
        if word.event.name == "turn.completed":
            assert word.event.turn_completed.trace_id == TRACE
            break
    stream.cancel()


async def test_what_the_log_says_of_a_call_names_its_trace(data: Path) -> None:
    async with serving(data) as server, server.client() as client:
        await client.open()
        request = pb.SendMessageRequest(conversation_id="conv_nowhere", send=pb.ConverseSend(content="?"))
        traced = client.conversations.SendMessage(request, metadata=aio.Metadata(*BROUGHT))
        assert (await rejected(traced))[0] == "CONVERSATION_NOT_FOUND"
        assert (await server.logged("rpc_rejected"))["trace"] == TRACE
        assert (await rejected(client.conversations.SendMessage(request)))[0] == "CONVERSATION_NOT_FOUND"
        assert "trace" not in await server.logged("rpc_rejected", 2)
