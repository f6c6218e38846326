"""Images in hooks: an action `llm` of a context assembly and of an extraction gets and makes them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.e2e.test_answer_images import content_of
from tests.e2e.test_parts import PNG, image, settle, text, upload
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

MADE = PNG[:50]
LIBRARY = """
name: sketch
description: Makes an image of the one in a message.
task:
  steps:
    - id: ask
      action: {kind: llm, max_attempts: 1}
      input_mapping:
        model_profile: '{"provider": "gemini", "model": "MODEL", "format": "gemini", "accepts": ["image"]}'
        request: >
          {"model": "MODEL",
           "contents": provider_messages([{"role": "user", "content": input.parts}], "gemini")}
      output_mapping: {output.answer: result}
---
name: ask
task:
  steps:
    - id: build
      action: {kind: context}
      output_mapping:
        output.request: >
          {"messages": provider_messages(
            [{"role": "user", "content": [{"type": "text", "text": "Compare."}] + input.parts + input.files}],
            "anthropic_messages"), "max_tokens": 100}
---
name: sketching
workflow:
  nodes:
    - id: sketch
      task_id: sketch
      input_mapping: {parts: input.user_parts}
      output_mapping: {output.files: result.answer.files}
    - id: ask
      task_id: ask
      input_mapping: {parts: input.user_parts, files: output.files}
      output_mapping: {output.request: result.request}
  transitions: [{from_node_id: sketch, to_node_id: ask}]
---
name: noting
workflow:
  nodes:
    - id: sketch
      task_id: sketch
      input_mapping: {parts: '[{"type": "text", "text": "Draw it."}]'}
      output_mapping:
        output.memory_operations: >
          [{"op": "write", "type": "fact",
            "content": "A sketch is in the file " + result.answer.files[0].file_id}]
"""


async def test_an_assembly_gets_an_image_and_shows_the_one_that_it_makes(
    client: Client, provider: Provider
) -> None:
    model = "sketches-for-assembly"
    provider.script(model, Script(text="So:", images=(base64.b64encode(MADE).decode(),)))
    await client.apply("e2e/sketches", LIBRARY.replace("MODEL", model))
    scripted = Scripted(client, provider, "anthropic")
    agent = await scripted.agent(
        Script(text="Alike."), tools=(), accepts=["image"], assembly="e2e/sketches/sketching"
    )
    conv, cat = await client.open(agent), await upload(client, "cat.png", PNG)
    await settle(client, conv, pb.ConverseSend(parts=[text("Look:"), image(cat)]))
    [asked] = [seen.body for seen in provider.requests if seen.model == model]
    data = base64.b64encode(PNG).decode()
    shown = json.dumps(asked)
    assert data in shown and "wonder_file" not in shown
    [request] = scripted.requests
    sent: Any = request["messages"]
    images = [part["source"]["data"] for part in sent[-1]["content"] if part["type"] == "image"]
    assert images == [data, base64.b64encode(MADE).decode()]


async def test_an_extraction_remembers_the_image_that_it_makes(client: Client, provider: Provider) -> None:
    model = "sketches-for-extraction"
    provider.script(model, Script(text="So:", images=(base64.b64encode(MADE).decode(),)))
    await client.apply("e2e/sketched", LIBRARY.replace("MODEL", model))
    scripted = Scripted(client, provider, "anthropic")
    agent = await scripted.agent(Script(text="Yes."), tools=(), extraction="e2e/sketched/noting")
    turn, view = await client.turn(await client.open(agent), "Hello.")
    assert view.names[-1] == "memory_extraction.completed" and not turn.issues.memory_extraction_failed
    [memory] = await client.memories(agent)
    said, _, file_id = memory.rpartition(" ")
    assert said == "A sketch is in the file" and await content_of(client, file_id) == MADE
