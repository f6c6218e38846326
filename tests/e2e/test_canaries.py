"""Secrets of the operator, planted everywhere, appear nowhere that someone reads (feature N5).

A server stands in for all others: it refuses every request and quotes its headers and path, as careless
proxies do. These texts may come back in errors, events, logs, metrics, spans and backups.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from google.protobuf import json_format
from grpc import aio

from tests.e2e.callers import calling_with
from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.fakes.collector import collecting
from wonder.v1 import backup_service_pb2 as backups
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs

pytestmark = pytest.mark.asyncio(loop_scope="session")

CANARIES = {
    name: f"canary-{name}-4711"
    for name in (
        *("openai", "anthropic", "gemini", "listed"),
        *("header", "mcpheader", "mcpenv", "metrics", "token"),
    )
}

DEFINITIONS = """
name: {name}_profile
model_profile: {{provider: {name}, model: any, max_attempts: 1}}
---
name: {name}
persona: {{system_prompt: Speak., model_profile_id: {name}_profile}}
"""

WITH_MCP = """
name: asking
task:
  steps:
    - {id: ask, action: {kind: mcp, config: {server: echo, tool: any, arguments: {}}}}
---
name: all
workflow: {nodes: [{id: ask, task_id: asking}]}
"""


@asynccontextmanager
async def quoting() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve the server that quotes. Yield its URL and what it was sent."""
    seen: list[str] = []

    async def quote(request: web.Request) -> web.Response:
        seen.append(f"{request.path_qs} {dict(request.headers)}")
        text = f"refused: {seen[-1]}"
        return web.json_response({"error": {"message": text, "type": text, "code": text}}, status=401)

    app = web.Application()
    app.add_routes([web.route("*", "/{rest:.*}", quote)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


def environment(url: str, folder: Path) -> dict[str, str]:
    """Return settings with a canary in every secret."""
    (folder / "metrics-token").write_text(CANARIES["metrics"])
    (folder / "tokens").write_text(f"{CANARIES['token']} ann\n")
    listed = {"name": "listed", "format": "openai_chat", "base_url": url, "key": CANARIES["listed"]}
    echo = {"url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {CANARIES['mcpheader']}"}}
    local = {"command": "/nonexistent", "env": {"SECRET": CANARIES["mcpenv"]}}
    return {
        "OPENAI_API_KEY": CANARIES["openai"],
        "ANTHROPIC_API_KEY": CANARIES["anthropic"],
        "GEMINI_API_KEY": CANARIES["gemini"],
        "WONDER_OPENAI_BASE_URL": url,
        "WONDER_ANTHROPIC_BASE_URL": url,
        "WONDER_GEMINI_BASE_URL": url,
        "WONDER_PROVIDERS": json.dumps([{**listed, "headers": {"x-org": CANARIES["header"]}}]),
        "WONDER_MCP_SERVERS": json.dumps({"echo": echo, "local": local}),
        "WONDER_METRICS_TOKEN_FILE": str(folder / "metrics-token"),
        "WONDER_AUTH_TOKENS_FILE": str(folder / "tokens"),
        "WONDER_ADMIN": "ann",
        "WONDER_BACKUP_DIR": str(folder / "backups"),
        "WONDER_LOG_LEVEL": "debug",
    }


async def failed(client: Client, provider: str) -> str:
    """Let a turn fail at the provider. Return everything that its record shows."""
    await client.apply(f"e2e/{provider}", DEFINITIONS.format(name=provider))
    await client.agent(provider, f"e2e/{provider}/{provider}")
    conv = await client.open(provider)
    request = pb.SendMessageRequest(conversation_id=conv, send=pb.ConverseSend(content="hello"))
    turn = (await client.conversations.SendMessage(request)).turn
    view = await client.settled(conv, turn.id)
    ended = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn.id))).turn
    assert ended.HasField("error"), provider
    return str([*map(json_format.MessageToJson, (event for event in view.events)), ended])


async def failed_mcp(client: Client) -> str:
    await client.apply("e2e/mcp", WITH_MCP)
    request = runs.StartRunRequest(workflow_id="e2e/mcp/all", wait_ms=30_000)
    try:
        return str(await client.coordinator.StartRun(request))
    except aio.AioRpcError as problem:
        return f"{problem.details()} {problem.trailing_metadata()}"


async def scraped(url: str) -> str:
    async with aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {CANARIES['metrics']}"}
        async with session.get(url, headers=headers) as found:
            assert found.status == 200
            return await found.text()


def contents(folder: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())


async def test_no_secret_of_the_settings_is_shown_anywhere(tmp_path: Path) -> None:
    shown: dict[str, Any] = {}
    async with quoting() as (url, seen), collecting() as collector:
        flags = ("--metrics-address", "127.0.0.1:0", "--otlp-endpoint", collector.url)
        async with (
            serving(tmp_path / "data", *flags, environment=environment(url, tmp_path)) as server,
            calling_with(server, CANARIES["token"]) as client,
        ):
            for provider in ("openai", "anthropic", "gemini", "listed"):
                shown[provider] = await failed(client, provider)
            shown["mcp"] = await failed_mcp(client)
            shown["metrics"] = await scraped((await server.logged("metrics_served"))["url"])
            metadata = aio.Metadata(("authorization", f"Bearer {CANARIES['token']}"))
            request = backups.CreateBackupRequest(name="one")
            async for _ in client.backups.CreateBackup(request, metadata=metadata):
                pass
        shown["log"] = json.dumps(server.log)
        shown["spans"] = "".join(collector.bodies)
    shown["backup"] = await asyncio.to_thread(contents, tmp_path / "backups")
    shown["data"] = await asyncio.to_thread(contents, tmp_path / "data")
    sent = "".join(seen)
    for name in ("openai", "anthropic", "gemini", "listed", "header", "mcpheader"):
        assert CANARIES[name] in sent, f"{name} was not sent, so nothing was tried"
    assert all(shown.values())
    leaks = [(where, name) for name, text in CANARIES.items() for where, all in shown.items() if text in all]
    assert not leaks
