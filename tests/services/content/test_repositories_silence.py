"""Git servers that accept connections and never answer: which operations they delay."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.services.content.repositories_kit import UsersRepository, need_git
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.git import origins as module
from wonder_server.adapters.git.hosts.host_folders import HostAccess
from wonder_server.adapters.git.origins import MAX_PER_PROJECT, GitOrigins
from wonder_server.adapters.git.repositories import GitRepositories
from wonder_server.adapters.git.storage.command import Git, ThreadPool
from wonder_server.core.definitions.resources import NetworkPolicy
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.workspaces import Remote

need_git()

HERE = "127.0.0.1"


class Silent:
    """A server that accepts connections and never answers. ``reached`` has one item for each request."""

    def __init__(self) -> None:
        self.reached: asyncio.Queue[None] = asyncio.Queue()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while await reader.read(1000):
                self.reached.put_nowait(None)
        writer.close()

    def origin(self, name: str, project: str) -> Remote:
        network = NetworkPolicy(http_allow=(f"{HERE}:{self.port}",))
        url = f"http://{HERE}:{self.port}/{name}.git"
        return Remote(name=f"{project}.{name}", url=url, network=network, project=project)


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    found = Silent()
    server = await asyncio.start_server(found.serve, HERE, 0)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found


@asynccontextmanager
async def reaching(folder: Path, far_threads: int) -> AsyncIterator[GitOrigins]:
    near, far, egress = ThreadPool(1, "near"), ThreadPool(far_threads, "far"), Egress()
    repositories = GitRepositories(Git(os.environ), near, folder / "data")
    origins = GitOrigins(repositories, near, egress, HostAccess(folder / "data", [folder]), remote_pool=far)
    try:
        yield origins
    finally:
        await origins.close()
        for pool in (far, near):
            await pool.close()
        await egress.close()


async def test_a_folder_of_the_host_is_copied_while_every_far_thread_waits(
    tmp_path: Path, silent: Silent
) -> None:
    folder = UsersRepository(tmp_path / "work").folder
    async with reaching(tmp_path, far_threads=1) as origins:
        waiting = asyncio.create_task(origins.fetch(silent.origin("a", "proj_1")))
        await silent.reached.get()
        await origins.check(str(folder), NetworkPolicy())
        assert await origins.fetch(Remote(name="proj_2.code", url=str(folder), project="proj_2")) == "main"
        assert not waiting.done()
        waiting.cancel()


async def test_silent_servers_of_one_project_leave_threads_to_the_others(
    tmp_path: Path, silent: Silent
) -> None:
    async with reaching(tmp_path, far_threads=MAX_PER_PROJECT + 1) as origins:
        mine = [
            asyncio.create_task(origins.fetch(silent.origin(f"a{n}", "proj_1")))
            for n in range(MAX_PER_PROJECT + 2)
        ]
        for _ in range(MAX_PER_PROJECT):
            await silent.reached.get()
        other = asyncio.create_task(origins.fetch(silent.origin("b", "proj_2")))
        await silent.reached.get()
        assert not any(task.done() for task in (*mine, other))
        for task in (*mine, other):
            task.cancel()


async def test_a_connection_to_a_silent_server_ends_at_the_idle_limit(
    tmp_path: Path, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_TIMEOUT_S", 0.05)
    async with reaching(tmp_path, far_threads=1) as origins:
        with pytest.raises(WonderError) as caught:
            await origins.fetch(silent.origin("a", "proj_1"))
    assert caught.value.fault.reason is Reason.STORAGE_UNAVAILABLE
