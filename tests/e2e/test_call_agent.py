"""CallAgent: a service asks an agent and waits for its answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.e2e.client import Client, struct
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import common_pb2
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOOP_IN = common_pb2.INVOCATION_MODE_LOOP_IN


def asked(agent: str, question: str = "Two or three?", **fields: Any) -> pb.CallAgentRequest:
    request = pb.CallAgentRequest(agent_id=agent, **fields)
    request.input.struct_value.CopyFrom(struct(question=question))
    return request


async def test_an_agent_answers_a_service(client: Client, provider: Provider) -> None:
    agent = await Scripted(client, provider, "openai").agent(Script(text="Use two."))
    caller = common_pb2.Caller(user=common_pb2.UserCaller(user_id="ann"))
    request = asked(agent, request_id=f"ask {agent}", caller=caller)
    answer = await client.conversations.CallAgent(request)
    assert answer.turn.status == conversation.TURN_STATUS_COMPLETED
    assert answer.turn.output.string_value == "Use two."
    assert answer.turn.caller.user.user_id == "ann"
    assert not answer.HasField("error")
    assert await client.conversations.CallAgent(request) == answer
    listed = await client.conversations.ListConversations(pb.ListConversationsRequest(agent_id=agent))
    assert not listed.conversations


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (Script(text="I will not.", stop="refusal"), conversation.TOOL_ERROR_CODE_AGENT_DECLINED),
        (Script(status=401), conversation.TOOL_ERROR_CODE_EXECUTION_FAILED),
    ],
)
async def test_why_there_is_no_answer(client: Client, provider: Provider, script: Script, code: int) -> None:
    agent = await Scripted(client, provider, "anthropic").agent(script)
    answer = await client.conversations.CallAgent(asked(agent))
    assert answer.turn.status == conversation.TURN_STATUS_FAILED
    assert answer.error.code == code


async def test_an_agent_joins_a_conversation_for_a_service(client: Client, provider: Provider) -> None:
    conv = await client.open()
    agent = await Scripted(client, provider, "openai").agent(Script(text="Here I am."))
    answer = await client.conversations.CallAgent(asked(agent, mode=LOOP_IN, conversation_id=conv))
    assert answer.turn.conversation_id == conv
    assert answer.turn.output.string_value == "Here I am."
    assert [m.content for m in await client.messages(conv)] == ["Two or three?", "Here I am."]


async def test_a_caller_that_hangs_up_stops_the_model(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(stall="headers"))
    call = client.conversations.CallAgent(asked(agent))
    async with asyncio.timeout(60):
        await provider.wait_until(lambda: bool(scripted.requests))
        call.cancel()
        await scripted.until_closed_early()


async def test_what_cannot_be_asked_is_refused(client: Client) -> None:
    conv, call = await client.open(), client.conversations.CallAgent
    nothing = pb.CallAgentRequest(agent_id="assistant")
    assert await rejected(call(nothing)) == ("FIELD_INVALID", ["input"])
    assert await rejected(call(asked(""))) == ("FIELD_INVALID", ["agent_id"])
    assert (await rejected(call(asked("absent"))))[0] == "AGENT_NOT_FOUND"
    assert await rejected(call(asked("assistant", " "))) == ("INPUT_INVALID", ["input"])
    for wrong in (asked("assistant", conversation_id=conv), asked("assistant", mode=LOOP_IN)):
        assert await rejected(call(wrong)) == ("FIELD_INVALID", ["conversation_id"])
    missing = asked("assistant", mode=LOOP_IN, conversation_id="conv_01M80B4FQSR67S4TVYMV1BGX37")
    assert (await rejected(call(missing)))[0] == "CONVERSATION_NOT_FOUND"
    assert await rejected(call(asked("assistant", branch="a..b"))) == ("FIELD_INVALID", ["branch"])
    assert await rejected(call(asked("assistant", timeout_ms=-1))) == ("FIELD_INVALID", ["timeout_ms"])
    forged = common_pb2.Caller(workflow=common_pb2.WorkflowCaller(run_id="x"))
    assert (await rejected(call(asked("assistant", caller=forged))))[1] == ["caller.workflow.run_id"]
