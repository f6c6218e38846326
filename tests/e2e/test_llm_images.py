"""Images that the action `llm` gets: files of the project, and no base64 in a run's record."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict

from tests.conformance.models.subjects import KEY
from tests.e2e.client import Client, View
from tests.e2e.deaths import through_deaths
from tests.e2e.scripted import Scripted
from tests.e2e.test_accounts import end_run, start_run, struct
from tests.e2e.test_answer_images import content_of
from tests.e2e.test_parts import PNG, settle, shown_after_call
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import executor_service_pb2 as executor
from wonder.v1 import file_service_pb2 as files
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORK = """
name: draw
task:
  steps:
    - id: ask
      action: {kind: llm, max_attempts: 1}
      input_mapping:
        model_profile: '{"provider": "PROVIDER", "model": "MODEL", "format": "FORMAT"}'
        request: '{"model": "MODEL", WORDS}'
      output_mapping: {output.answer: result}
---
name: work
workflow: {nodes: [{id: first, task_id: draw, output_mapping: {output.answer: result.answer}}]}
"""
LARGE = PNG[:-12] + bytes(20 * (1 << 20) - len(PNG)) + PNG[-12:]
SHAPES = [
    ("openai", "openai_chat", '"messages": [{"role": "user", "content": "Draw."}]'),
    ("gemini", "gemini", '"contents": [{"role": "user", "parts": [{"text": "Draw."}]}]'),
]


@pytest.mark.parametrize(("speaks", "form", "words"), SHAPES)
@pytest.mark.parametrize(("content", "kept"), [(PNG, True), (LARGE, True), (LARGE + b"x" * 64, False)])
async def test_an_image_of_an_llm_step_is_a_file(
    client: Client, provider: Provider, speaks: str, form: str, words: str, content: bytes, kept: bool
) -> None:
    model = f"draws-{speaks}-{len(content)}"
    data = base64.b64encode(content).decode()
    provider.script(model, Script(text="A cat:", images=(data,)))
    document = WORK.replace("MODEL", model).replace("PROVIDER", speaks).replace("FORMAT", form)
    await client.apply("e2e/" + model, document.replace("WORDS", words))
    run_id = await start_run(client, f"e2e/{model}/work")
    run = await end_run(client, run_id)
    assert run.status == run_pb2.RUN_STATUS_COMPLETED, run.error
    watched = client.coordinator.WatchRun(runs.WatchRunRequest(run_id=run_id))
    record = json.dumps([MessageToDict(run), [MessageToDict(each) async for each in watched]])
    assert data[:1000] not in record and len(record) < 100_000
    answer = MessageToDict(run)["output"]["answer"]
    if kept:
        [file] = answer["files"]
        assert await content_of(client, file["file_id"]) == content
    else:
        assert answer["files"] == [] and "not stored" in answer["text"]


TOOL = """
---
name: draw_cat
description: Draws a cat.
tool: {target_type: task, target_id: draw, input_schema: {type: object, properties: {}}}
"""


async def test_a_tool_of_an_llm_step_shows_the_image_to_the_model(client: Client, provider: Provider) -> None:
    data = base64.b64encode(PNG[:30]).decode()
    provider.script("draws-for-tool", Script(text="A cat:", images=(data,)))
    speaks, form, words = SHAPES[1]
    document = WORK.replace("MODEL", "draws-for-tool").replace("PROVIDER", speaks).replace("FORMAT", form)
    await client.apply("e2e/drawn", document.replace("WORDS", words) + TOOL)
    scripted = Scripted(client, provider, "anthropic")
    script = Script(calls=(Call(name="draw_cat"),))
    agent = await scripted.agent(
        script, Script(text="See."), tools=("e2e/drawn/draw_cat",), accepts=["image"]
    )
    await settle(client, await client.open(agent), pb.ConverseSend(content="Draw."))
    result, image = shown_after_call("anthropic", json.loads(json.dumps(scripted.requests[1])))
    assert "image-1.png" in result["text"] and data not in result["text"]
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": data}


async def test_a_task_by_itself_stores_what_is_an_image_and_says_why_the_rest_is_not(
    client: Client, provider: Provider
) -> None:
    data = base64.b64encode(PNG[:30]).decode()
    bad = base64.b64encode(b"<svg onload=alert(1)>").decode()
    provider.script("draws-alone", Script(text="Three:", images=(bad, "%%%", data)))
    speaks, form, words = SHAPES[1]
    document = WORK.replace("MODEL", "draws-alone").replace("PROVIDER", speaks).replace("FORMAT", form)
    await client.apply("e2e/alone", document.replace("WORDS", words))
    request = executor.ExecuteTaskRequest(task_id="e2e/alone/draw", request_id="draw-1")
    done = (await client.executor.ExecuteTask(request)).result
    answer = MessageToDict(done.output)["answer"]
    [file] = answer["files"]
    assert (file["type"], file["name"], file["size_bytes"]) == ("image", "image-3.png", 30)
    assert await content_of(client, file["file_id"]) == PNG[:30]
    assert answer["text"].count("not stored: ") == 2
    assert (await client.executor.ExecuteTask(request)).result == done


@pytest.mark.parametrize(
    "point", ["before-object", "after-object", "catalog-in-commit:2", "catalog-committed:2", "committed:2"]
)
async def test_a_kill_leaves_one_file_and_the_run_goes_on(provider: Provider, data: Path, point: str) -> None:
    keys = {"GEMINI_API_KEY": KEY, "WONDER_GEMINI_BASE_URL": provider.url}
    image = base64.b64encode(PNG).decode()
    provider.script("draws-and-dies", Script(text="A cat:", images=(image,)))
    speaks, form, words = SHAPES[1]
    document = WORK.replace("MODEL", "draws-and-dies").replace("PROVIDER", speaks).replace("FORMAT", form)

    async def prepare(client: Client, _: View) -> None:
        await client.apply("e2e/dying", document.replace("WORDS", words))

    async def story(client: Client, _: View) -> None:
        started = await client.coordinator.StartRun(
            runs.StartRunRequest(workflow_id="e2e/dying/work", input=struct(), request_id="once")
        )
        run = await end_run(client, started.run.id)
        assert run.status == run_pb2.RUN_STATUS_COMPLETED, run.error
        [file] = MessageToDict(run)["output"]["answer"]["files"]
        listed = (await client.files.ListFiles(files.ListFilesRequest())).files
        assert [each.id for each in listed] == [file["file_id"]]
        assert await content_of(client, file["file_id"]) == PNG

    await through_deaths(data, prepare, View(), "", environment=keys)
    assert await through_deaths(data, story, View(), point, "", environment=keys) == 1
