"""Sizes that no request holds: a message of 1 MiB before a window of 4,000 tokens, a result of 50 MB, and a
schema that no answer meets. Nothing is lost, and the turn says what happened.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.background import call
from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.e2e.test_stories import FORMATS, Wire, texts_of
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import errors_pb2
from wonder_server.core.token_estimates import json_tokens

pytestmark = pytest.mark.asyncio(loop_scope="session")

WINDOW = 4_000
LARGE = "The begin. " + "word " * ((1 << 20) // 5 - 10) + "The end."
DOUBLINGS = 8
LIBRARY = f"""
name: swell
description: Repeats a text many times.
tool:
  target_type: task
  target_id: doubled
  input_schema: {{type: object, properties: {{text: {{type: string}}}}, required: [text]}}
---
name: doubled
task:
  steps:
    - id: double
      action: {{kind: context}}
      output_mapping: {{output.texts: "[{", ".join(["input.text"] * 2**DOUBLINGS)}]"}}
"""


@pytest.fixture(params=FORMATS)
def scripted(client: Client, provider: Provider, request: pytest.FixtureRequest) -> Scripted:
    return Scripted(client, provider, request.param)


async def test_a_message_of_1_mib_is_cut_for_a_small_window_and_kept_whole(scripted: Scripted) -> None:
    client, wire = scripted.client, Wire(scripted.speaks)
    assert 1 << 19 < len(LARGE) <= 1 << 20
    answers = Script(text="Long."), Script(text="Yes.")
    agent = await scripted.agent(*answers, tools=(), context_window_tokens=WINDOW)
    conv = await client.open(agent)
    for text in (LARGE, "Was it long?"):
        turn, _ = await client.turn(conv, text)
        assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
    for request in scripted.requests:
        assert json_tokens(request) <= WINDOW
    [shown] = texts_of(wire.messages(scripted.requests[0])[0])
    assert shown.startswith("The begin. word") and "cut" in shown.lower()
    *_, last = wire.messages(scripted.requests[1])
    assert texts_of(last)[0].endswith("Was it long?")
    first, *_ = await client.messages(conv)
    assert first.content == LARGE


async def test_a_result_of_50_mb_is_an_error_that_the_model_reads(scripted: Scripted) -> None:
    client, wire = scripted.client, Wire(scripted.speaks)
    await client.apply("e2e/bad_sizes", LIBRARY)
    swells = Script(calls=(call("swell", text="x" * 200_000),))
    agent = await scripted.agent(swells, Script(text="Too large."), tools=("e2e/bad_sizes/swell",))
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Swell.")
    assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
    [failed] = [event.tool_failed for event in view.events if event.name == "tool.failed"]
    assert "too much text" in failed.tool_result.error.message
    assert "too much text" in json.dumps(wire.messages(scripted.requests[1])[-1])


IMPOSSIBLE: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 1}},
    "required": ["a"],
}


async def test_a_schema_that_plainly_no_answer_meets_is_refused(client: Client) -> None:
    spec = {"name": "never", "persona": {"system_prompt": "x", "output_schema": IMPOSSIBLE}}
    assert await rejected(client.apply("e2e/refused", json.dumps(spec))) == (
        "DEFINITION_INVALID",
        ["definitions[0].persona.output_schema.properties.a.minimum"],
    )


NEVER: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 1}]}},
    "required": ["a"],
}


async def test_a_schema_that_no_answer_meets_fails_the_turn_after_one_repair(scripted: Scripted) -> None:
    agent = await scripted.agent(Script(text='{"a": 3}'), tools=(), persona={"output_schema": NEVER})
    turn, _ = await scripted.client.turn(await scripted.client.open(agent), "Answer.")
    assert turn.status == conversation.TURN_STATUS_FAILED and len(scripted.requests) == 2
    assert turn.error.reason == errors_pb2.ERROR_REASON_OUTPUT_INVALID
    assert "output.a: must be at least 5" in turn.error.message
