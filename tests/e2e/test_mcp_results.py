"""The result of an MCP server's tool, as each provider is sent it and as the record has it."""

from __future__ import annotations

import json

import pytest
from google.protobuf.json_format import MessageToDict

from tests.e2e.background import call
from tests.e2e.client import Client
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_pb2 as conversation

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIBRARY = """
name: look_up
description: Looks up a variable.
tool:
  target_type: task
  target_id: look_up_task
  input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
---
name: look_up_task
task:
  steps:
    - id: call
      action: {kind: mcp, config: {server: fake, tool: variable}}
      input_mapping: {arguments: input}
      output_mapping: {output.answer: result}
"""


@pytest.mark.parametrize("provider_name", PROVIDERS)
async def test_a_result_reaches_the_model_once_and_the_record_has_all_forms(
    client: Client, provider: Provider, provider_name: str
) -> None:
    scripted = Scripted(client, provider, provider_name)
    await client.apply("e2e/mcp", LIBRARY)
    scripts = Script(calls=(call("look_up", name="GIVEN"),)), Script(text="Found.")
    conv = await client.open(await scripted.agent(*scripts, tools=("e2e/mcp/look_up",)))
    turn, view = await client.turn(conv, "Look it up.")
    assert turn.status == conversation.TURN_STATUS_COMPLETED and view.text() == "Found."
    assert json.dumps(scripted.requests[1]).count("needle-4711") == 1
    first, _ = await client.moves(turn.id, conv)
    (result,) = first.tool_results
    assert MessageToDict(result.result) == {
        "answer": {
            "content": [{"type": "text", "text": "needle-4711"}],
            "text": "needle-4711",
            "structured": {"result": "needle-4711"},
            "is_error": False,
        }
    }
