"""Images in results of ``http`` and ``worker`` with ``store_files``: files of the project, which models see
in each format."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tests.conformance.models.subjects import KEY
from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_parts import FORMATS, PNG, settle, shown_after_call
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import executor_service_pb2 as executor
from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as library
from wonder_sdk import Worker

pytestmark = pytest.mark.asyncio(loop_scope="session")

SMALL = PNG[:40]
DATA = base64.b64encode(SMALL).decode()
LARGE = PNG + bytes(4 << 20)
LIBRARY = """
name: by_http
description: Draws a cat.
tool:
  target_type: task
  target_id: http_task
  input_schema: {type: object, properties: {}}
---
name: http_task
task:
  steps:
    - id: get
      action: {kind: http, config: {url: "%(url)s/small.png", store_files: true}}
      output_mapping: {output.drawing: result}
---
name: by_worker
description: Draws a cat.
tool:
  target_type: task
  target_id: worker_task
  input_schema: {type: object, properties: {}}
---
name: worker_task
task:
  steps:
    - id: ask
      action: {kind: worker, timeout_ms: 30000, config: {name: paint, store_files: true}}
      output_mapping: {output.drawing: result}
---
name: fetch
task:
  steps:
    - id: get
      action: {kind: http, config: {store_files: true}}
      input_mapping: {url: input.url}
      output_mapping: {output.file: result.file}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def images() -> AsyncIterator[str]:
    """The address of a web server with images."""

    async def get(request: web.Request) -> web.Response:
        body = LARGE if request.path == "/large.png" else SMALL
        declared = "image/gif" if request.path == "/lie.gif" else "image/png"
        return web.Response(body=bytes(21 << 20) if request.path == "/huge" else body, content_type=declared)

    app = web.Application()
    app.router.add_get("/{name}", get)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(
    tmp_path_factory: pytest.TempPathFactory, provider: Provider, images: str
) -> AsyncIterator[Client]:
    """Of a server with the tools and a worker."""
    environment = {
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1",
        "WONDER_ANTHROPIC_BASE_URL": provider.url,
        "WONDER_GEMINI_BASE_URL": provider.url,
    }
    data = tmp_path_factory.mktemp("stored") / "data"
    async with serving(data, environment=environment) as server, server.client() as client:
        default = library.GetProjectRequest(project_id="default")
        project = (await client.library.GetProject(default)).project
        network = library_pb2.NetworkPolicy(http_allow=[images.removeprefix("http://")])
        changed = library_pb2.Project(id=project.id, network=network, etag=project.etag)
        await client.library.UpdateProject(library.UpdateProjectRequest(project=changed))
        await client.apply("e2e/stored", LIBRARY % {"url": images})
        worker = Worker("painter", address=server.address)

        @worker.action("paint")
        async def paint(given: dict[str, Any]) -> dict[str, Any]:
            return {
                "picture": {"type": "image", "data": DATA, "media_type": "image/png", "name": "small.png"}
            }

        running = asyncio.create_task(worker.run())
        try:
            yield client
        finally:
            worker.stop()
            await running


@pytest.mark.parametrize("tool", ["by_http", "by_worker"])
@pytest.mark.parametrize("speaks", FORMATS)
async def test_a_model_sees_the_image_of_a_result(
    client: Client, provider: Provider, speaks: str, tool: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        Script(calls=(Call(name=tool),)),
        Script(text="A cat."),
        tools=(f"e2e/stored/{tool}",),
        accepts=["image"],
    )
    await settle(client, await client.open(agent), pb.ConverseSend(content="Draw."))
    found = shown_after_call(speaks, json.loads(json.dumps(scripted.requests[1])))
    expected = {
        "openai": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
        "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        "gemini": {"inlineData": {"mimeType": "image/png", "data": DATA}},
    }[speaks]
    words = json.dumps(found[:-1])
    assert found[-1] == expected and "small.png" in words and "file_id" in words and DATA not in words


async def test_a_large_image_is_stored_and_a_lie_has_its_reason(client: Client, images: str) -> None:
    async def fetch(name: str) -> Any:
        request = executor.ExecuteTaskRequest(task_id="e2e/stored/fetch")
        request.input.update({"url": f"{images}/{name}"})
        return (await client.executor.ExecuteTask(request)).result

    large = dict((await fetch("large.png")).output["file"])
    assert (large["type"], large["name"], large["size_bytes"]) == ("image", "large.png", len(LARGE))
    lie = dict((await fetch("lie.gif")).output["file"])
    assert lie["type"] == "text" and "The declared type image/gif is not that of the content" in lie["text"]
    assert "more than 20971520 bytes" in (await fetch("huge")).error.message
