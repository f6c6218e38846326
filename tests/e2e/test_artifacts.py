"""Artifacts in a real server, by RPC and by action; killed while they are written (feature F1)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from tests.e2e.client import Client, struct
from tests.e2e.process import Server, serving
from tests.rpc.rpc_kit import rejected
from tests.services.content.repositories_kit import need_git
from wonder.v1 import executor_service_pb2 as executor
from wonder.v1 import library_service_pb2 as pb
from wonder_sdk import cli

need_git()
pytestmark = pytest.mark.asyncio(loop_scope="session")

NOTE = """
name: note
description: Writes an artifact and reads it.
task:
  steps:
    - id: write
      action: {kind: artifact.write, config: {message: By a task}}
      input_mapping: {path: input.path, content: input.content}
    - id: read
      action: {kind: artifact.read}
      input_mapping: {path: input.path}
      output_mapping: {output.content: result.content, output.author: result.revision.author}
"""


async def write(client: Client, path: str, content: str, **fields: Any) -> Any:
    request = pb.WriteArtifactRequest(project_id="default", path=path, content=content.encode(), **fields)
    return (await client.library.WriteArtifact(request)).artifact


async def read(client: Client, path: str) -> str:
    request = pb.ReadArtifactRequest(project_id="default", path=path)
    return (await client.library.ReadArtifact(request)).artifact.content.decode()


async def test_what_a_task_writes_everybody_reads(client: Client) -> None:
    await client.apply("e2e/notes", NOTE)
    request = executor.ExecuteTaskRequest(task_id="e2e/notes/note", request_id="note-1")
    request.input.CopyFrom(struct(path="notes/one.md", content="Decided.\n"))
    request.context.agent_id = "assistant"
    first = (await client.executor.ExecuteTask(request)).result
    assert dict(first.output)["content"] == "Decided.\n"
    assert str(dict(first.output)["author"]).startswith("agt_")
    assert await read(client, "notes/one.md") == "Decided.\n"
    await write(client, "notes/one.md", "Decided otherwise.\n", author="ada")
    history = pb.ListArtifactRevisionsRequest(project_id="default", path="notes/one.md")
    revisions = (await client.library.ListArtifactRevisions(history)).revisions
    assert [revision.message for revision in revisions] == ["notes/one.md", "By a task"]
    found = await client.library.SearchArtifacts(
        pb.SearchArtifactsRequest(project_id="default", query="otherwise", path_prefix="notes/")
    )
    assert [(match.path, match.line) for match in found.matches] == [("notes/one.md", 1)]


async def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "server"
    server = await Server(data).start()
    answered: list[str] = []
    enough = asyncio.Event()

    async def writing(worker: int) -> None:
        async with server.client() as client:
            for number in range(1_000):
                path = f"{worker}/{number}"
                await write(client, path, path, request_id=path)
                answered.append(path)
                if len(answered) >= 12:
                    enough.set()

    writers = [asyncio.create_task(writing(worker)) for worker in range(4)]
    async with asyncio.timeout(60):
        await enough.wait()
    await server.kill()
    for writer in writers:
        with contextlib.suppress(aio.AioRpcError):
            await writer
    async with serving(data) as again, again.client() as client:
        for path in answered:
            assert await read(client, path) == path
        # Sent again, they write nothing; and what was under way can be written now.
        for path in [*answered, *(f"{worker}/next" for worker in range(4))]:
            await write(client, path, path, request_id=path)
        history = pb.ListArtifactRevisionsRequest(project_id="default", page_size=500)
        revisions = (await client.library.ListArtifactRevisions(history)).revisions
        written = [revision.paths[0] for revision in revisions]
        assert len(written) == len(set(written)) and set(answered) <= set(written)


async def test_what_is_damaged_is_said_and_not_taken_for_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(tmp_path / "server") as server, server.client() as client:
        lost = (await write(client, "lost", "content\n")).etag
        await write(client, "kept", "content of another\n")
        (bare,) = (tmp_path / "server" / "artifacts").glob("*.git")
        (bare / "objects" / lost[:2] / lost[2:]).unlink()
        listed = (await client.library.ListArtifacts(pb.ListArtifactsRequest(project_id="default"))).artifacts
        assert [(each.path, each.damaged) for each in listed] == [("kept", False), ("lost", True)]
        assert await read(client, "kept") == "content of another\n"
        assert (await rejected(read(client, "lost")))[0] == "STORAGE_UNAVAILABLE"
        at = ("--server", server.address)
        assert await asyncio.to_thread(cli.main, ("artifact", "list", *at)) == 0
        rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
        assert rows == [["kept", "19"], ["lost", "damaged"]]
        assert await asyncio.to_thread(cli.main, ("artifact", "read", "lost", *at)) == 1
        assert "'lost' on branch 'main' is unreadable" in capsys.readouterr().err
        (bare / "refs" / "heads" / "main").unlink()
        asked = pb.ListArtifactsRequest(project_id="default")
        for call in (client.library.ListArtifacts(asked), read(client, "kept"), write(client, "new", "")):
            assert (await rejected(call))[0] == "STORAGE_UNAVAILABLE"
