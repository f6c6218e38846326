"""A server whose disk is full, or which has no descriptors left: what works meanwhile, and that it
recovers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import subprocess
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import executor_service_pb2 as executor
from wonder.v1 import library_pb2, memory_pb2
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memory

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
RESERVE = {"WONDER_DISK_RESERVE_BYTES": str(2 * MIB), "WONDER_DEFAULT_MODEL": "offline"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Fill the file system completely."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (MIB, 4096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    assert os.statvfs(disk).f_bavail == 0
    return filler


async def refusal(asking: object) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        await asking  # type: ignore[misc]
    return refused.value.code(), str(refused.value.details())


async def test_a_server_starts_on_a_full_disk_reads_deletes_and_goes_on_when_there_is_space(
    disk: Path,
) -> None:
    data = disk / "data"
    async with serving(data, environment=RESERVE) as server, server.client() as client:
        convs = [await client.open(request_id=f"r{number}") for number in range(2)]
        for conv in convs:
            await client.turn(conv, "Hello. " + "I like tea. " * 20)
        kept = memory_pb2.Memory(type="fact", content="Tea is good.")
        await client.memory.WriteMemory(memory.WriteMemoryRequest(agent_id="assistant", memory=kept))
    (data / "RESERVE").unlink()
    filler = fill(disk)

    async with serving(data, environment=RESERVE) as server, server.client() as client:
        assert len(await client.messages(convs[0])) == 2
        assert len(await client.all_conversations()) == 2
        assert "Tea is good." in await client.memories()
        for asking in (
            client.say(convs[0], "Hello?"),
            client.open(request_id="new"),
            client.memory.WriteMemory(memory.WriteMemoryRequest(agent_id="assistant", memory=kept)),
        ):
            code, said = await refusal(asking)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "full" in said
            assert "must be free there, and " in said
        filler.write_bytes(b"")
        await server.logged("disk_space_available")
        await client.turn(convs[0], "Hello again.")

        fill(disk)
        await server.logged("disk_full", 2)
        assert (await refusal(client.say(convs[0], "Hello?")))[0] is grpc.StatusCode.UNAVAILABLE
        await client.conversations.DeleteConversation(pb.DeleteConversationRequest(conversation_id=convs[1]))
        assert [each.id for each in await client.all_conversations()] == [convs[0]]
        filler.write_bytes(b"")
        await server.logged("disk_space_available", 2)
        await client.turn(convs[0], "Still there?")
        assert len(await client.messages(convs[0])) == 6
    assert not [line for line in server.log if "Traceback" in str(line)]


def noise(seed: int, size: int) -> str:
    """Return text without repetitions."""
    return "".join(random.Random(seed).choices("abcdefgh ij", k=size))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("others", [False, True])
async def test_a_disk_that_conversations_filled_has_space_again_when_they_are_deleted(
    disk: Path, others: bool, restarted: bool
) -> None:
    data = disk / "data"
    async with serving(data, environment=RESERVE) as server, server.client() as client:
        convs = [await client.open(request_id=f"r{number}") for number in range(2)]
        if others:
            for number in range(3):
                await client.turn(convs[number % 2], noise(number, 300_000))
            fill(disk)
            await server.logged("disk_full")
        else:
            await fill_with_turns(server, client, convs)
        if not restarted:
            await delete(client, convs)
            await goes_on(server, client)
    if restarted:
        async with serving(data, environment=RESERVE) as server, server.client() as client:
            await delete(client, convs)
            await goes_on(server, client)


async def fill_with_turns(server: Server, client: Client, convs: list[str]) -> None:
    """Send turns until the disk is full. The last one may be refused, or wait for space for its answer."""

    async def turns() -> None:
        with contextlib.suppress(grpc.RpcError):
            for number in range(100):
                await client.turn(convs[number % 2], noise(number, 300_000))

    filling = asyncio.create_task(turns())
    await server.logged("disk_full")
    filling.cancel()
    await asyncio.gather(filling, return_exceptions=True)


async def goes_on(server: Server, client: Client) -> None:
    """New work is accepted, at once or when there is space; a server that starts may have had it."""
    try:
        conv = await client.open(request_id="new")
    except grpc.RpcError:
        await server.logged("disk_space_available", max(1, server.count("disk_full")))
        conv = await client.open(request_id="new")
    assert conv


async def delete(client: Client, convs: list[str]) -> None:
    for conv in convs:
        await client.conversations.DeleteConversation(pb.DeleteConversationRequest(conversation_id=conv))


TASKS = """
name: fetch
task:
  steps:
    - id: get
      action: {kind: http, config: {method: GET, url: "http://127.0.0.1:9/x"}, max_attempts: 1}
---
name: note
task:
  steps:
    - id: write
      action: {kind: artifact.write}
      input_mapping: {path: '"notes/task.md"', content: '"Decided."'}
"""
FINE = {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}


@contextmanager
def without_descriptors(server: Server) -> Iterator[None]:
    """The server can open nothing: each descriptor below the limit is taken."""
    pid = server.log[0]["pid"]
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    lowest = next(number for number in range(1 << 20) if number not in taken)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


async def said(asking: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """The status of a call, and what it says; a task's failure is one too."""
    try:
        answer = await asking
    except grpc.RpcError as problem:
        assert isinstance(problem, grpc.aio.AioRpcError)
        return problem.code(), str(problem.details())
    return grpc.StatusCode.OK, str(answer)


async def test_a_server_without_descriptors_says_so_and_recovers(data: Path) -> None:
    async with (
        serving(data, "--log-level", "debug", environment={"WONDER_DEFAULT_MODEL": "offline"}) as server,
        server.client() as client,
    ):
        conv = await client.open()
        await client.apply("e2e/scarce", TASKS)
        allowed = library_pb2.NetworkPolicy(http_allow=["127.0.0.1:9"])
        project = library_pb2.Project(name="open", network=allowed)
        await client.library.CreateProject(library.CreateProjectRequest(project=project))
        await server.logged("modules_preloaded")

        async def everything(number: int) -> dict[str, tuple[grpc.StatusCode, str]]:
            name, long = f"notes/{number}.md", memory_pb2.Memory(type="fact", content=f"{number} " * 60_000)
            written = library.WriteArtifactRequest(project_id="open", path=name, content=b"Decided.")
            found = {
                "artifact": await said(client.library.WriteArtifact(written)),
                "artifacts": await said(
                    client.library.ListArtifacts(library.ListArtifactsRequest(project_id="open"))
                ),
                "memory": await said(
                    client.memory.WriteMemory(memory.WriteMemoryRequest(agent_id="assistant", memory=long))
                ),
                "memories": await said(client.memories()),
                "turn": await said(client.turn(conv, "Hello.")),
                "messages": await said(client.messages(conv)),
            }
            for task in ("fetch", "note"):
                asked = executor.ExecuteTaskRequest(task_id=f"e2e/scarce/{task}")
                asked.context.project_id = "open"
                found[task] = await said(client.executor.ExecuteTask(asked))
            return found

        codes = set()
        with without_descriptors(server):
            for number in range(2):
                for name, (code, words) in (await everything(number)).items():
                    assert code in FINE, (name, code, words)
                    assert "INTERNAL" not in words, (name, words)
                    codes.add(code)
        assert len(codes) > 1, "it lacked nothing"
        after = await everything(9)
        assert {name: code for name, (code, _) in after.items()} == dict.fromkeys(after, grpc.StatusCode.OK)
        # The record of the conversation tells of turns that failed meanwhile.
        assert "no file descriptors" not in str({**after, "turn": ""})
    assert not [line for line in server.log if "Traceback" in str(line)]
