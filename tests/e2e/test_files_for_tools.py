"""Models hand users' files to tools: the ids in words, and a worker that reads the file it is named."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from tests.conformance.models.subjects import KEY
from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_parts import EXPECTED, FORMATS, PNG, everything, settle, upload, user_contents
from tests.e2e.test_parts import image as image_part
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import errors_pb2, library_pb2
from wonder.v1 import executor_service_pb2 as executor
from wonder.v1 import file_service_pb2 as files
from wonder.v1 import library_service_pb2 as library
from wonder_sdk import Worker, WorkerContext

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOL = """
name: measure
description: Measures an image.
tool:
  target_type: task
  target_id: measure_task
  input_schema:
    type: object
    properties: {pictures: {type: array, items: {type: object, properties: {file_id: {type: string}}}}}
---
name: measure_task
task:
  steps:
    - id: ask
      action: {kind: worker, timeout_ms: 30000, config: {name: measure}}
      input_mapping: {input: input}
      output_mapping: {output.measured: result}
"""
INVENTED = "file_01ARZ3NDEKTSV4RRFFQ69G5FAV"
SMALL = PNG[:40]


def words(part: Any) -> str:
    return str(part.get("text", ""))


@pytest.mark.parametrize("speaks", FORMATS)
async def test_a_model_with_a_tool_for_files_gets_their_ids(
    client: Client, provider: Provider, speaks: str
) -> None:
    await client.apply("e2e/measuring", TOOL)
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        Script(text="A cat."),
        Script(text="Black."),
        tools=("e2e/measuring/measure",),
        accepts=["text", "image", "file"],
    )
    conv, parts = await client.open(agent), await everything(client)
    ids = [parts[1].image.file_id, parts[2].file.file_id, parts[3].file.file_id]
    await settle(client, conv, pb.ConverseSend(parts=parts))
    [found] = user_contents(speaks, scripted.requests[0])
    plain = EXPECTED[speaks]
    assert words(found[1]) == f"[image: cat.png, image/png, 307 KB; file_id: {ids[0]}]"
    assert words(found[3]) == f"[file: a.pdf, application/pdf, 137 bytes; file_id: {ids[1]}]"
    assert words(found[5]).startswith(
        f"[file: notes.md, text/markdown, 17 bytes; file_id: {ids[2]}; its content follows]\nLine one."
    )
    assert [found[0], found[2], found[4], found[6]] == [plain[0], plain[1], plain[2], plain[4]]
    # In later turns too, with the same bytes at the beginning.
    await settle(client, conv, pb.ConverseSend(content="Which colour?"))
    assert user_contents(speaks, scripted.requests[1])[0] == found


def with_contents(value: Any, shown: dict[str, Any]) -> Any:
    """Return a preview with the content of each file in its place."""
    if isinstance(value, dict) and "wonder_file" in value:
        return shown[value["wonder_file"]["file_id"]]
    if isinstance(value, dict):
        return {name: with_contents(each, shown) for name, each in value.items()}
    return [with_contents(each, shown) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("speaks", FORMATS)
async def test_a_preview_has_the_ids_that_are_sent(client: Client, provider: Provider, speaks: str) -> None:
    await client.apply("e2e/measuring", TOOL)
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        Script(text="A cat."),
        Script(text="Again."),
        tools=("e2e/measuring/measure",),
        accepts=["text", "image", "file"],
    )
    conv, parts = await client.open(agent), await everything(client)
    first = pb.ConverseSend(parts=parts)
    for number, send in enumerate([first, pb.ConverseSend(content="Which colour?")]):
        request = pb.PreviewContextRequest(conversation_id=conv, send=send)
        preview = MessageToDict((await client.conversations.PreviewContext(request)).request)
        await settle(client, conv, send)
        sent = user_contents(speaks, scripted.requests[number])
        ids = [parts[1].image.file_id, parts[2].file.file_id, parts[3].file.file_id]
        contents = dict(zip(ids, [sent[0][2], sent[0][4], sent[0][5]], strict=True))
        assert with_contents(user_contents(speaks, preview), contents) == sent
        assert f"file_id: {ids[0]}]" in json.dumps(preview)


async def measure(given: dict[str, Any], context: WorkerContext) -> dict[str, Any]:
    """Read each picture; answer with their sizes, and with a picture of its own."""
    contents = [await context.read_file(each["file_id"]) for each in given["pictures"]]
    drawn = await context.store_file(SMALL, name="drawn.png")
    return {"sizes": [len(each) for each in contents], "shown": drawn}


@asynccontextmanager
async def working(
    data: Path, provider: Provider, handler: Callable[..., Awaitable[object]] = measure
) -> AsyncIterator[tuple[Server, Client]]:
    """A server with the tool, and a worker of the SDK that is connected to it."""
    keys = {"ANTHROPIC_API_KEY": KEY, "WONDER_ANTHROPIC_BASE_URL": provider.url}
    async with serving(data, environment=keys) as server, server.client() as client:
        await client.apply("e2e/measuring", TOOL)
        worker = Worker("w", address=server.address)
        worker.action("measure")(handler)
        running = asyncio.create_task(worker.run())
        try:
            # A task waits for a worker.
            yield server, client
        finally:
            worker.stop()
            await running


def result_of(scripted: Scripted, request: int) -> tuple[str, list[Any]]:
    """Return the text and the other parts of the newest tool result of a request to Anthropic."""
    body = json.loads(json.dumps(scripted.requests[request]))
    [block] = [each for each in body["messages"][-1]["content"] if each["type"] == "tool_result"]
    content = block["content"]
    if isinstance(content, str):
        return content, []
    return content[0]["text"], content[1:]


async def test_a_worker_reads_the_image_that_a_user_sent(provider: Provider, data: Path) -> None:
    async with working(data, provider) as (_, client):
        cat = await upload(client, "cat.png", PNG)
        given = json.dumps({"pictures": [{"file_id": cat}]})
        scripted = Scripted(client, provider, "anthropic")
        agent = await scripted.agent(
            Script(calls=(Call(name="measure", arguments=given),)),
            Script(text="It is large."),
            tools=("e2e/measuring/measure",),
            accepts=["image"],
        )
        conv = await client.open(agent)
        await settle(client, conv, pb.ConverseSend(parts=[image_part(cat)]))
        text, shown = result_of(scripted, 1)
        assert json.loads(text)["measured"]["sizes"] == [len(PNG)]
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(SMALL).decode()}
        assert shown == [{"type": "image", "source": source}]


async def test_a_worker_gets_no_file_that_is_gone_foreign_or_invented(provider: Provider, data: Path) -> None:
    async with working(data, provider) as (_, client):
        await client.library.CreateProject(
            library.CreateProjectRequest(project=library_pb2.Project(name="elsewhere"))
        )
        foreign = await upload(client, "cat.png", PNG, project="elsewhere")
        gone = await upload(client, "cat.png", PNG)
        await client.files.DeleteFile(files.DeleteFileRequest(file_id=gone))
        for file_id in (foreign, gone, INVENTED, "", "../../etc/passwd"):
            given = json.dumps({"pictures": [{"file_id": file_id}]})
            scripted = Scripted(client, provider, "anthropic")
            agent = await scripted.agent(
                Script(calls=(Call(name="measure", arguments=given),)),
                Script(text="I could not."),
                tools=("e2e/measuring/measure",),
                accepts=["image"],
            )
            await settle(client, await client.open(agent), pb.ConverseSend(content="Measure it."))
            text, shown = result_of(scripted, 1)
            message = json.loads(text)["error"]["message"]
            expected = "This project has no such file. It may have been deleted." if file_id else "file_id"
            assert expected in message and not shown, file_id


async def test_what_a_worker_cannot_store_has_its_reason(provider: Provider, tmp_path: Path) -> None:
    attempts: list[tuple[bytes, str]] = [
        (bytes(50 << 20), "image/png"),
        (b"<svg onload=alert(1)>", "image/png"),
        (SMALL, "application/x-sharedlib"),
    ]

    async def store(given: dict[str, Any], context: WorkerContext) -> dict[str, Any]:
        content, media_type = attempts[given["pictures"][0]["number"]]
        return {"shown": await context.store_file(content, name="a.png", media_type=media_type)}

    async with working(tmp_path / "data", provider, store) as (_, client):
        for number, reason in enumerate(["PAYLOAD_TOO_LARGE", "FIELD_INVALID", "FIELD_INVALID"]):
            request = executor.ExecuteTaskRequest(task_id="e2e/measuring/measure_task")
            request.input.update({"pictures": [{"number": number}]})
            fault = (await client.executor.ExecuteTask(request)).result.error
            assert errors_pb2.ErrorReason.Name(fault.reason) == f"ERROR_REASON_{reason}", fault
        assert not (await client.files.ListFiles(files.ListFilesRequest())).files
