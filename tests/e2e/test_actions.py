"""Actions that reach outside, in a real server: what a project allows, keys, progress (features H3, I4)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from google.protobuf.json_format import MessageToDict

from tests.e2e.client import Client, struct
from tests.e2e.process import serving
from tests.fakes import mcp_server
from tests.rpc.rpc_kit import rejected
from wonder.v1 import errors_pb2, library_pb2, task_pb2
from wonder.v1 import executor_service_pb2 as pb
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIBRARY = """
name: order
description: Orders over HTTP, and says so.
task:
  steps:
    - id: pause
      action: {kind: sleep, config: {duration_ms: 1}}
    - id: post
      action: {kind: http, config: {method: POST, body: {item: tea}}, max_attempts: 3, backoff_ms: 1}
      input_mapping: {url: input.url}
      output_mapping: {state.order: result.body}
    - id: announce
      action: {kind: event, config: {name: order.placed}}
      input_mapping: {payload: state.order}
      output_mapping: {output.number: state.order.number}
---
name: add
description: Adds, with the tool of another.
task:
  steps:
    - id: call
      action: {kind: mcp, config: {server: fake, tool: add}}
      input_mapping: {arguments: input}
      output_mapping: {output.sum: result.structured.sum}
"""


class Shop:
    """An HTTP server that counts what reaches it; busy at first."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[str] = []

    async def order(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers["Idempotency-Key"])
        if len(self.keys) == 1:
            return web.Response(status=503)
        return web.json_response({"number": 7, "asked": await request.json()})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shop() -> AsyncIterator[Shop]:
    shop, app = Shop(), web.Application()
    app.router.add_post("/orders", shop.order)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    shop.url = f"http://127.0.0.1:{runner.addresses[0][1]}/orders"
    yield shop
    await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(tmp_path_factory: pytest.TempPathFactory, shop: Shop) -> AsyncIterator[Client]:
    """Of a server whose operator names an MCP server, with a project that allows the shop."""
    folder = tmp_path_factory.mktemp("actions")
    fake = {"command": sys.executable, "args": [mcp_server.__file__, str(folder / "notes")]}
    environment = {"WONDER_MCP_SERVERS": json.dumps({"fake": fake})}
    async with serving(folder / "data", environment=environment) as running, running.client() as client:
        await client.apply("e2e/actions", LIBRARY)
        allowed = shop.url.removeprefix("http://").removesuffix("/orders")
        project = library_pb2.Project(
            name="shopping", network=library_pb2.NetworkPolicy(http_allow=[allowed])
        )
        await client.library.CreateProject(library.CreateProjectRequest(project=project))
        yield client
    assert (folder / "notes").read_text().splitlines()[-1] == "ended", "no process outlives the server"
    assert not [line for line in running.log if line.get("level") == "error"]


def asked(task: str, project: str = "", **input: Any) -> dict[str, Any]:
    context = task_pb2.ExecutionContext(project_id=project)
    return {"task_id": f"e2e/actions/{task}", "input": struct(**input), "context": context}


async def test_a_project_that_does_not_allow_it_reaches_nothing_on_this_machine(
    client: Client, shop: Shop
) -> None:
    answer = await client.executor.ExecuteTask(pb.ExecuteTaskRequest(**asked("order", url=shop.url)))
    fault = answer.result.error
    assert fault.reason == errors_pb2.ERROR_REASON_PERMISSION_DENIED
    assert (fault.metadata["task"], fault.metadata["step_id"]) == ("e2e/actions/order@1", "post")
    assert shop.keys == []


async def test_a_project_that_allows_it_does_and_a_stream_shows_the_event(client: Client, shop: Shop) -> None:
    request = pb.StreamTaskRequest(**asked("order", "shopping", url=shop.url))
    answers = [answer async for answer in client.executor.StreamTask(request)]
    assert MessageToDict(answers[-1].result.output) == {"number": 7}
    assert [step.attempts for step in answers[-1].result.steps] == [1, 2, 1]
    assert len(shop.keys) == 2 and len(set(shop.keys)) == 1 and shop.keys[0].endswith("/post")
    [event] = [answer.progress for answer in answers if answer.HasField("progress")]
    assert (event.step_id, event.progress.message) == ("announce", "event order.placed")
    assert json.loads(event.progress.output) == {"number": 7, "asked": {"item": "tea"}}


async def test_a_tool_of_a_process_that_the_operator_names_is_called(client: Client) -> None:
    answer = await client.executor.ExecuteTask(pb.ExecuteTaskRequest(**asked("add", a=1, b=2)))
    assert MessageToDict(answer.result.output) == {"sum": 3}


async def test_a_policy_that_cannot_be_kept_to_is_refused_with_its_place(client: Client) -> None:
    network = library_pb2.NetworkPolicy(http_allow=["ci.internal", "http://ci.internal"])
    project = library_pb2.Project(name="wrong", network=network)
    call = client.library.CreateProject(library.CreateProjectRequest(project=project))
    assert await rejected(call) == ("FIELD_INVALID", ["project.network.http_allow[1]"])


async def test_every_kind_is_published_with_its_schema(client: Client) -> None:
    answer = await client.executor.ListActionKinds(pb.ListActionKindsRequest(page_size=100))
    kinds = {kind.name: kind for kind in answer.action_kinds}
    assert {"assert", "context", "event", "http", "llm", "mcp", "memory.search", "sleep", "worker"} <= set(
        kinds
    )
    assert MessageToDict(kinds["http"].input_schema)["required"] == ["url"]
    assert {name for name in ("event", "http", "mcp", "sleep") if kinds[name].idempotent} == {
        "event",
        "sleep",
    }
