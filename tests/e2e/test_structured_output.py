"""Structured output through a server: each format's own means, the check, the repair, all callers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from grpc import StatusCode

from tests.conformance.models.subjects import KEY
from tests.e2e.background import asking, call
from tests.e2e.client import Client, struct
from tests.e2e.process import Server, serving
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2
from wonder_server.core.json_types import JsonDict

pytestmark = pytest.mark.asyncio(loop_scope="session")

FORMATS = ("openai", "responses", "anthropic", "gemini")
SCHEMA: JsonDict = {
    "type": "object",
    "properties": {"total": {"type": "number"}, "items": {"type": "array", "items": {"type": "string"}}},
    "required": ["total", "items"],
    "additionalProperties": False,
}
VALID = '{"total": 5.5, "items": ["tea"]}'
OUTPUT = {"total": 5.5, "items": ["tea"]}
FORM = {"name": "output", "schema": SCHEMA, "strict": True}
ASKED: dict[str, JsonDict] = {
    "openai": {"response_format": {"type": "json_schema", "json_schema": FORM}},
    "responses": {"text": {"format": {"type": "json_schema", **FORM}}},
    "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "gemini": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
}


def asked(agent: str, schema: JsonDict | None = None, **fields: Any) -> pb.CallAgentRequest:
    request = pb.CallAgentRequest(agent_id=agent, **fields)
    request.input.string_value = "What did it cost?"
    if schema is not None:
        request.output_schema.CopyFrom(struct(**schema))
    return request


def numbers(value: Any) -> Any:
    """Return JSON of the wire with whole numbers, as Python compares them."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("speaks", FORMATS)
async def test_a_service_gets_the_parsed_answer(client: Client, provider: Provider, speaks: str) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(Script(text=VALID), tools=())
    answer = await client.conversations.CallAgent(asked(agent, SCHEMA))
    assert answer.turn.status == conversation.TURN_STATUS_COMPLETED, answer.turn.error
    assert MessageToDict(answer.turn.output) == OUTPUT
    (request,) = scripted.requests
    for name, value in ASKED[speaks].items():
        assert numbers(request[name]) == value
    turn = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=answer.turn.id))).turn
    assert turn.output == answer.turn.output


@pytest.mark.parametrize("speaks", FORMATS)
async def test_an_invalid_answer_is_repaired_beside_tools(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(Script(text="It was 5.5."), Script(text=VALID))
    answer = await client.conversations.CallAgent(asked(agent, SCHEMA))
    assert MessageToDict(answer.turn.output) == OUTPUT
    first, repair = scripted.requests
    if speaks == "gemini":
        # Gemini takes no schema beside tools: the instructions have it.
        assert "generationConfig" not in first
        assert '\\"total\\"' in json.dumps(first["systemInstruction"])
    else:
        assert ASKED[speaks].keys() <= first.keys()
    assert "not one valid JSON object" in json.dumps(repair) and "It was 5.5." in json.dumps(repair)
    assert "not one valid JSON object" not in json.dumps(first)
    messages = await client.messages(answer.turn.conversation_id)
    assert [message.content for message in messages] == ["What did it cost?", "It was 5.5.", VALID]


async def test_a_second_invalid_answer_fails_the_turn_with_its_reason(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "anthropic")
    agent = await scripted.agent(Script(text='{"total": "much", "items": []}'), tools=())
    answer = await client.conversations.CallAgent(asked(agent, SCHEMA))
    assert answer.turn.status == conversation.TURN_STATUS_FAILED
    assert answer.turn.error.reason == errors_pb2.ERROR_REASON_OUTPUT_INVALID
    assert "output.total: must be a number" in answer.turn.error.message
    assert answer.error.code == conversation.TOOL_ERROR_CODE_EXECUTION_FAILED
    assert len(scripted.requests) == 2
    events = pb.ListEventsRequest(conversation_id=answer.turn.conversation_id)
    found = [e for e in (await client.conversations.ListEvents(events)).events if e.name == "output.rejected"]
    assert [each.output_rejected.repairing for each in found] == [True, False]
    assert list(found[0].output_rejected.problems) == ["output.total: must be a number"]


@pytest.mark.parametrize(
    "script",
    [
        Script(text='{"total": 5', stop="length"),
        Script(text='{"total": ' + "[" * 5000 + "]" * 5000 + "}"),
        Script(text='{"total": 1, "items": ["' + "x" * 1_200_000 + '"]}'),
    ],
    ids=["cut", "deep", "huge"],
)
async def test_an_answer_that_cannot_be_read_is_repaired(
    client: Client, provider: Provider, script: Script
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(script, Script(text=VALID), tools=())
    answer = await client.conversations.CallAgent(asked(agent, SCHEMA))
    assert MessageToDict(answer.turn.output) == OUTPUT, answer.turn.error


async def test_a_persona_binds_the_turns_of_people_too(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    name = await scripted.agent(Script(text=VALID), tools=())
    persona = {
        "system_prompt": "You count.",
        "model_profile_id": name.replace("openai_", "profile_"),
        "memory_extraction_workflow_id": "none",
        "output_schema": SCHEMA,
    }
    await client.apply("e2e/scripted", json.dumps({"name": f"{name}_typed", "persona": persona}))
    await client.agent(f"{name}_typed", f"e2e/scripted/{name}_typed")
    conv = await client.open(f"{name}_typed")
    send = pb.ConverseSend(content="What did it cost?")
    question = pb.PreviewContextRequest(conversation_id=conv, send=send)
    preview = await client.conversations.PreviewContext(question)
    assert MessageToDict(preview.request)["response_format"] == ASKED["openai"]["response_format"]
    turn, _ = await client.turn(conv, "What did it cost?")
    assert MessageToDict(turn.output) == OUTPUT


async def test_a_node_of_a_workflow_gets_the_parsed_answer(client: Client, provider: Provider) -> None:
    agent = await Scripted(client, provider, "openai").agent(Script(text=VALID), tools=())
    node = {
        "id": "ask",
        "agent_id": agent,
        "output_schema": SCHEMA,
        "output_mapping": {"output.total": "result.output.total", "output.text": "result.text"},
    }
    document = {"name": f"typed_{agent}", "workflow": {"nodes": [node]}}
    await client.apply("e2e/typed", json.dumps(document))
    start = runs.StartRunRequest(
        workflow_id=f"e2e/typed/typed_{agent}", input=struct(question="?"), wait_ms=30_000
    )
    run = (await client.coordinator.StartRun(start)).run
    assert MessageToDict(run.output) == {"total": 5.5, "text": json.dumps(OUTPUT)}, run.error


async def test_the_model_that_asks_a_delegate_gets_the_parsed_answer(
    client: Client, provider: Provider
) -> None:
    guest, host = Scripted(client, provider, "anthropic"), Scripted(client, provider, "openai")
    tool, name = await asking(client, await guest.agent(Script(text=VALID), tools=()), output_schema=SCHEMA)
    scripts = (Script(calls=(call(name, message="?"),)), Script(text="It cost 5.5."))
    conv = await client.open(await host.agent(*scripts, tools=(tool,)))
    await client.turn(conv, "Ask the expert.")
    assert ASKED["anthropic"].keys() <= guest.requests[0].keys()
    result = json.loads(host.requests[1]["messages"][-1]["content"])  # type: ignore[index]
    assert result["output"] == OUTPUT and "text" not in result


async def test_a_repeated_call_gets_the_same_output_and_another_schema_is_another_call(
    client: Client, provider: Provider
) -> None:
    agent = await Scripted(client, provider, "openai").agent(Script(text=VALID), tools=())
    first = await client.conversations.CallAgent(asked(agent, SCHEMA, request_id=f"r-{agent}"))
    assert await client.conversations.CallAgent(asked(agent, SCHEMA, request_id=f"r-{agent}")) == first
    other = asked(agent, {"type": "object"}, request_id=f"r-{agent}")
    assert (await rejected(client.conversations.CallAgent(other)))[0] == "REQUEST_ID_REUSED"


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"type": "string"}, "output_schema.type"),
        ({"type": "object", "requried": ["a"]}, "output_schema.requried"),
        (
            {"type": "object", "properties": {"a": False}, "required": ["a"]},
            "output_schema.properties.a",
        ),
        ({"type": "object", "description": "x" * 40_000}, "output_schema.description"),
    ],
)
async def test_a_schema_without_a_checkable_answer_is_refused(
    client: Client, schema: JsonDict, field: str
) -> None:
    call_agent = client.conversations.CallAgent
    assert await rejected(call_agent(asked("assistant", schema))) == ("FIELD_INVALID", [field])
    tool = {"description": "x", "target_type": "agent", "target_id": "assistant", "output_schema": schema}
    node = {"id": "a", "agent_id": "assistant", "output_schema": schema}
    for kind, spec, place in (
        ("persona", {"system_prompt": "x", "output_schema": schema}, f"persona.{field}"),
        ("tool", tool, f"tool.{field}"),
        ("workflow", {"nodes": [node]}, f"workflow.nodes[0].{field}"),
    ):
        found = await rejected(client.apply("e2e/refused", json.dumps({"name": "refused", kind: spec})))
        assert found[0] == "DEFINITION_INVALID" and any(each.endswith(place) for each in found[1]), found


async def test_only_agents_have_an_output_schema_in_tools_and_nodes(client: Client) -> None:
    tool = {"description": "x", "target_type": "task", "target_id": "t", "output_schema": SCHEMA}
    node = {"id": "a", "task_id": "wonder/std/write_request", "output_schema": SCHEMA}
    for kind, spec in (("tool", tool), ("workflow", {"nodes": [node]})):
        found = await rejected(client.apply("e2e/refused", json.dumps({"name": "refused", kind: spec})))
        assert found[0] == "DEFINITION_INVALID" and any("output_schema" in each for each in found[1])


async def test_a_killed_server_repeats_only_the_repair(provider: Provider, data: Path) -> None:
    environment = {"OPENAI_API_KEY": KEY, "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1"}
    server = await Server(data, environment=environment).start()
    # Keys that begin with `$` are also those of references in stored values.
    amount: JsonDict = {"properties": {"total": {"$ref": "#/$defs/amount"}, "items": {"type": "array"}}}
    schema = {**SCHEMA, **amount, "$defs": {"amount": {"type": "number"}}}
    async with server.client() as client:
        scripted = Scripted(client, provider, "openai")
        scripts = (Script(text="It was 5.5."), Script(stall="headers"), Script(text=VALID))
        agent = await scripted.agent(*scripts, tools=())
        first_call = client.conversations.CallAgent(asked(agent, schema, request_id="typed"))
        async with asyncio.timeout(60):
            reading = asyncio.ensure_future(first_call.code())
            await provider.wait_until(lambda: len(scripted.requests) == 2)
            await server.kill()
            assert await reading == StatusCode.UNAVAILABLE
    async with serving(data, environment=environment) as again, again.client() as client:
        answer = await client.conversations.CallAgent(asked(agent, schema, request_id="typed"))
        assert MessageToDict(answer.turn.output) == OUTPUT
        assert answer.turn.move_count == 2
    first, repair, repeated = scripted.requests
    assert repeated == repair != first


async def test_the_offline_model_gives_an_output_and_repairs_a_wrong_one(client: Client) -> None:
    """Try structured output without a key, as docs/definitions.md shows."""
    await client.agent("typed_offline", "wonder/std/assistant")
    answer = await client.conversations.CallAgent(asked("typed_offline", SCHEMA))
    assert MessageToDict(answer.turn.output).keys() == OUTPUT.keys(), answer.turn.error
    request = asked("typed_offline", SCHEMA)
    request.input.string_value = 'answer with {"total": "much"}'
    answer = await client.conversations.CallAgent(request)
    assert answer.turn.usage.model_calls == 2, answer.turn
    assert MessageToDict(answer.turn.output).keys() == OUTPUT.keys(), answer.turn.error
