"""Called agents that decline, and that fail for a cause that may pass: what each kind of caller learns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.background import asking as asking_tool
from tests.e2e.background import call
from tests.e2e.client import Client, View
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_agent_nodes import asking, ended, started
from tests.e2e.test_agent_tools import error_of
from tests.e2e.test_call_agent import asked
from tests.fakes.provider import Provider, Script
from wonder.v1 import common_pb2, errors_pb2, run_pb2
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED, FAILED = conversation.TURN_STATUS_COMPLETED, conversation.TURN_STATUS_FAILED
DECLINED = conversation.TOOL_ERROR_CODE_AGENT_DECLINED
EXECUTION_FAILED = conversation.TOOL_ERROR_CODE_EXECUTION_FAILED
NO = Script(text="Let me see.", calls=(call("decline", reason="I have no access to it."),))
DOWN = Script(status=503, error="overloaded")
LIBRARY = """
name: helper
persona:
  system_prompt: You help.
  memory_extraction_workflow_id: none
  tool_ids: [ask_guest]
---
name: ask_guest
description: Asks the guest.
tool: {target_type: agent, target_id: guest}
"""
STEPS = 4
"""Steps that are on disk before the next begins: the message, the call, the turn of the guest, its end."""


async def test_a_node_fails_with_the_reason_of_the_agent_that_declines(
    client: Client, provider: Provider
) -> None:
    agent = await Scripted(client, provider, "anthropic").agent(NO)
    run = await ended(client, await started(client, await asking(client, agent), "Look it up."))
    assert run.status == run_pb2.RUN_STATUS_FAILED
    assert run.error.reason == errors_pb2.ERROR_REASON_AGENT_DECLINED and not run.error.retriable
    assert "I have no access to it." in run.error.message
    assert run.error.metadata["turn_id"].startswith("turn_")


async def test_an_agent_that_is_called_for_another_declines_and_a_users_does_not(
    client: Client, provider: Provider
) -> None:
    """A person's question is no delegated turn: its model has no tool to decline with."""
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(NO, Script(text="Then I try."))
    other = (await client.library.GetAgent(library.GetAgentRequest(agent_id="assistant"))).agent.id
    caller = common_pb2.Caller(agent=common_pb2.AgentCaller(agent_id=other))
    answer = await client.conversations.CallAgent(asked(agent, caller=caller, request_id=f"declined {agent}"))
    assert answer.turn.status == FAILED
    assert answer.error.code == DECLINED and not answer.error.retriable
    assert answer.error.message.endswith(" declined: I have no access to it.")
    again = await client.conversations.CallAgent(asked(agent, caller=caller, request_id=f"declined {agent}"))
    assert again == answer and len(scripted.requests) == 1
    provider.script(scripted.model, NO, Script(text="Then I try."))
    user = common_pb2.Caller(user=common_pb2.UserCaller(user_id="ann"))
    answer = await client.conversations.CallAgent(asked(agent, caller=user))
    assert answer.turn.status == COMPLETED and answer.turn.output.string_value == "Then I try."
    assert answer.turn.issues.tool_failures == 1
    assert ["decline" in json.dumps(each.get("tools")) for each in scripted.requests] == [True, False, False]


async def test_a_provider_that_is_down_is_a_failure_that_a_retry_may_mend(
    client: Client, provider: Provider
) -> None:
    """The caller's model sees `retriable`, calls again, and gets the answer; a service may do the same."""
    guest = Scripted(client, provider, "anthropic")
    agent = await guest.agent(DOWN, Script(text="Up again."), max_attempts=1)
    tool, name = await asking_tool(client, agent, retry={"max_attempts": 1})
    host = Scripted(client, provider, "openai")
    ask = Script(calls=(call(name, message="?"),))
    conv = await client.open(await host.agent(ask, ask, Script(text="They are."), tools=(tool,)))
    turn, view = await client.turn(conv, "Ask until they answer.")
    assert turn.status == COMPLETED and view.text() == "They are."
    error = error_of(view)
    assert error.code == EXECUTION_FAILED and error.retriable
    shown = json.dumps(host.requests[1])
    assert "EXECUTION_FAILED" in shown and '\\"retriable\\":true' in shown
    assert "Up again." in json.dumps(host.requests[2])
    provider.script(guest.model, DOWN)
    answer = await client.conversations.CallAgent(asked(agent))
    assert answer.turn.status == FAILED and answer.turn.error.retriable
    assert answer.error.code == EXECUTION_FAILED and answer.error.retriable


async def test_an_agent_declines_once_through_a_kill_at_any_commit(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    async with serving(fresh) as server, server.client() as client:
        await client.agent("guest", "wonder/std/assistant")
        await client.apply("e2e/helper", LIBRARY)
        await client.agent("helper", "e2e/helper/helper")

    async def story(client: Client, view: View) -> None:
        conv = await client.open("helper", request_id="open")
        said = "use the tool ask_guest with use the tool decline with no time"
        turn = (await client.say(conv, said, "say")).turn.id
        await client.settled(conv, turn, view)

    async def tell(data: Path, doom: str) -> int:
        view = View()
        deaths = await through_deaths(data, story, view, doom, "")
        assert view.names.count("tool.failed") == view.names.count("turn.completed") == 1, view.names
        error = error_of(view)
        assert error.code == DECLINED and error.message.endswith(" declined: no time")
        async with serving(data) as server, server.client() as client:
            (ended,) = [e.agent_call_completed for e in view.events if e.name == "agent_call_completed"]
            called = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=ended.turn_id))).turn
            assert called.error.reason == errors_pb2.ERROR_REASON_AGENT_DECLINED
        return deaths

    assert await at_every("committed", tell, fresh=fresh, folder=tmp_path) >= STEPS
