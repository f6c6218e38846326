"""End to end: real server processes, real clients, a scripted model provider.

One server and one provider are shared by all tests that leave them standing; a test that kills or stops
its server has a folder of its own (``data``). Whatever a test did, afterwards every journal that it left is
replayed: the planners must decide the same again. Everything runs on the session's event loop.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.models.subjects import KEY
from tests.e2e.client import Client
from tests.e2e.journals import assert_replays
from tests.e2e.process import Server, serving
from tests.fakes import mcp_server
from tests.fakes.provider import Provider, running_provider


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def provider() -> AsyncIterator[Provider]:
    async with running_provider() as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """Start the shared server, which is offline unless a model profile says otherwise."""
    data = tmp_path_factory.mktemp("shared") / "data"
    notes = data.with_name("notes")
    fake = {
        "command": sys.executable,
        "args": [mcp_server.__file__, str(notes)],
        "env": {"GIVEN": "needle-4711"},
    }
    environment = {
        "WONDER_DEFAULT_MODEL": "offline",
        "WONDER_BACKUP_DIR": str(data.with_name("backups")),
        "WONDER_MCP_SERVERS": json.dumps({"fake": fake}),
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1",
        "WONDER_ANTHROPIC_BASE_URL": provider.url,
        "WONDER_GEMINI_BASE_URL": provider.url,
    }
    async with serving(data, environment=environment) as running:
        yield running
    assert not [line for line in running.log if line.get("level") == "error"]
    assert KEY not in str(running.log)
    await assert_replays(data)


@pytest_asyncio.fixture(loop_scope="session")
async def client(server: Server) -> AsyncIterator[Client]:
    """Connect a client to the shared server, with its own connection."""
    async with server.client() as connected:
        yield connected


@pytest_asyncio.fixture(loop_scope="session")
async def data(tmp_path: Path) -> AsyncIterator[Path]:
    """Return a folder for servers of one test."""
    yield tmp_path / "data"
    assert await assert_replays(tmp_path / "data")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare a folder that a server was started on, to copy."""
    data = tmp_path_factory.mktemp("fresh") / "data"
    async with serving(data):
        pass
    return data
