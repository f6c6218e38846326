"""The recorded decisions of a conversation, as clients list them."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest
from grpc import aio

from tests.e2e.client import Client
from tests.e2e.process import Server
from wonder.v1 import conversation_service_pb2 as pb
from wonder_sdk import cli

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOLS = """
name: look
task:
  input_schema: {type: object, properties: {text: {type: string}}}
  steps: [{id: s, action: {kind: context}}]
---
name: look_now
tool: {description: Looks., target_type: task, target_id: look, input_schema: {type: object}}
---
name: look_later
tool: {description: Looks., target_type: task, target_id: look, input_schema: {type: object}, async: true}
---
name: looker
persona:
  system_prompt: You look.
  tool_ids: [look_now, look_later]
  memory_extraction_workflow_id: none
"""


async def test_the_decisions_of_a_turn_are_listed_in_order(client: Client) -> None:
    await client.apply("e2e/decisions", TOOLS)
    agent = await client.agent("looker", "e2e/decisions/looker")
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "run look_now {}\nrun look_later {}")
    other, _ = await client.turn(conv, "say 2 words")

    whole = await client.decisions(conv)
    mine = await client.decisions(conv, turn.id, page_size=1)

    assert [(each.sequence, each.index) for each in whole] == sorted(
        (each.sequence, each.index) for each in whole
    )
    assert mine == [each for each in whole if each.turn_id == turn.id]
    assert {each.turn_id for each in whole} == {"", turn.id, other.id}
    types = [each.type for each in mine]
    assert types[:4] == ["START_TURN", "APPEND_MESSAGE", "DISPATCH_WORKFLOW", "MARK_WAITING"]
    waits = [each for each in types if each in ("DISPATCH_TASK", "MARK_WAITING", "TRACK_ASYNC_OPERATION")]
    assert waits[:5] == [
        "MARK_WAITING", "DISPATCH_TASK", "MARK_WAITING", "DISPATCH_TASK", "TRACK_ASYNC_OPERATION",
    ]  # fmt: skip
    assert {
        "CALL_LLM",
        "RECORD_MOVE",
        "RESUME_FROM_TOOL",
        "ASYNC_OPERATION_COMPLETED",
        "COMPLETE_TURN",
    } <= set(types)
    waited = next(each for each in mine if each.type == "TRACK_ASYNC_OPERATION")
    dispatched = [each for each in mine if each.type == "DISPATCH_TASK"][1]
    assert waited.operation_id == dispatched.operation_id and waited.cause == "MODEL_ANSWERED"
    assert "look_later" in dispatched.summary and dispatched.create_time == waited.create_time
    assert all(len(each.summary) <= 200 for each in whole)
    chosen = await client.decisions("", turn.id, types=["CALL_LLM", "COMPLETE_TURN"])
    assert chosen == [each for each in mine if each.type in ("CALL_LLM", "COMPLETE_TURN")]

    # The calls name the revision of their tool, in the moves and in the events.
    first, *_ = await client.moves(turn.id, conv)
    pins = ["e2e/decisions/look_now@1", "e2e/decisions/look_later@1"]
    assert [call.tool_id for call in first.tool_calls] == pins
    shown = [e.tool_dispatched.tool_call.tool_id for e in view.events if e.name == "tool.dispatched"]
    ended = {e.tool_completed.tool_call.tool_id for e in view.events if e.name == "tool.completed"}
    assert shown == pins and ended == set(pins)


async def test_the_command_shows_decisions(
    client: Client, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    conv = await client.open()
    turn, _ = await client.turn(conv, "say 2 words")
    command = ["decisions", conv, "--turn", turn.id, "--server", server.address]
    assert (
        await asyncio.to_thread(cli.main, [*command, "--type", "call_llm", "--type", "APPEND_MESSAGE"]) == 0
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(line[2], line[3]) for line in lines] == [
        ("APPEND_MESSAGE", turn.id), ("CALL_LLM", turn.id), ("APPEND_MESSAGE", turn.id),
    ]  # fmt: skip
    assert lines[2][4:] == ["agent:", "word1", "word2"]

    assert await asyncio.to_thread(cli.main, [*command, "--json"]) == 0
    shown = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
    assert shown == [each.type for each in await client.decisions(conv, turn.id)]

    assert await asyncio.to_thread(cli.main, [*command, "--type", "NONSENSE"]) == 1
    assert "NONSENSE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("request_fields", "code", "said"),
    [
        ({}, grpc.StatusCode.INVALID_ARGUMENT, "Set conversation_id or turn_id."),
        ({"types": ["CALL_LLM", "call_llm"]}, grpc.StatusCode.INVALID_ARGUMENT, "types[1] is 'call_llm'"),
        ({"conversation_id": "conv_nothing"}, grpc.StatusCode.NOT_FOUND, "conv_nothing"),
        ({"conversation_id": "agt_1"}, grpc.StatusCode.NOT_FOUND, "agt_1"),
        ({"turn_id": "turn_nothing"}, grpc.StatusCode.NOT_FOUND, "turn_nothing"),
        ({"conversation_id": "CONV", "turn_id": "turn_x"}, grpc.StatusCode.NOT_FOUND, "turn_x"),
        ({"conversation_id": "CONV", "page_size": -1}, grpc.StatusCode.INVALID_ARGUMENT, "page_size is -1"),
        ({"conversation_id": "CONV", "page_token": "x"}, grpc.StatusCode.INVALID_ARGUMENT, "page_token"),
    ],
)
async def test_a_bad_request_is_refused(
    client: Client, request_fields: dict[str, object], code: grpc.StatusCode, said: str
) -> None:
    if request_fields.get("conversation_id") == "CONV":
        request_fields = {**request_fields, "conversation_id": await client.open()}
    with pytest.raises(aio.AioRpcError) as problem:
        await client.conversations.ListDecisions(pb.ListDecisionsRequest(**request_fields))  # type: ignore[arg-type]
    assert problem.value.code() is code
    assert said in (problem.value.details() or "")
