"""A real server that keeps its objects in a real S3 server, which goes away and comes back (feature E2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from tests.rpc.rpc_kit import rejected
from tests.s3_server import ACCESS, SECRET, S3Server, s3_server
from wonder.v1 import memory_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = s3_server(tmp_path_factory.mktemp("s3") / "objects")
    server.start()
    yield server
    server.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    store = s3.store("of-the-house")
    environment = {
        "WONDER_S3_ENDPOINT": store.endpoint,
        "WONDER_S3_BUCKET": store.bucket,
        "WONDER_S3_ACCESS_KEY": ACCESS,
        "WONDER_S3_SECRET_KEY": SECRET,
    }
    data = tmp_path_factory.mktemp("objects") / "data"
    async with serving(data, environment=environment) as running:
        yield running
    assert not (data / "blobs").exists()
    assert not [line for line in running.log if line.get("level") == "error"]
    assert ACCESS not in str(running.log) and SECRET not in str(running.log)


@pytest_asyncio.fixture(loop_scope="session")
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client() as connected:
        yield connected


async def write(client: Client, content: str) -> str:
    request = pb.WriteMemoryRequest(agent_id="assistant")
    request.memory.type, request.memory.content = "fact", content
    return (await client.memory.WriteMemory(request)).memory.id


async def read(client: Client, memory_id: str) -> str:
    request = pb.GetMemoryRequest(agent_id="assistant", memory_id=memory_id)
    return (await client.memory.GetMemory(request)).memory.content


async def test_long_memories_are_objects_and_read_like_any_other(client: Client, s3: S3Server) -> None:
    for length in (4095, 4096, 4097, 500_000):
        content = "é🎈" + "x" * (length - 6)
        assert await read(client, await write(client, content)) == content
    assert await read(client, await write(client, "short")) == "short"


async def test_while_the_store_is_down_what_needs_it_fails_and_nothing_else(
    client: Client, s3: S3Server
) -> None:
    kept, content = await write(client, "k" * 10_000), "n" * 10_000
    s3.kill()
    try:
        for call in (write(client, content), read(client, kept)):
            assert await rejected(call) == ("STORAGE_UNAVAILABLE", [])
        assert await read(client, await write(client, "short, meanwhile")) == "short, meanwhile"
    finally:
        s3.start()
    assert await read(client, kept) == "k" * 10_000
    assert await read(client, await write(client, content)) == content


async def test_a_server_starts_while_its_store_is_down(
    s3: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment = {
        "WONDER_S3_ENDPOINT": "http://127.0.0.1:9",
        "WONDER_S3_ACCESS_KEY": ACCESS,
        "WONDER_S3_SECRET_KEY": SECRET,
    }
    data = tmp_path_factory.mktemp("down") / "data"
    async with serving(data, environment=environment) as running, running.client() as client:
        assert await read(client, await write(client, "short")) == "short"
        assert await rejected(write(client, "n" * 10_000)) == ("STORAGE_UNAVAILABLE", [])
