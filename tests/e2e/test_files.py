"""Files of a real server: kill -9 in the middle of uploads, and what its folder has then."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc import aio

from tests.e2e.client import Client
from tests.e2e.process import Server
from wonder.v1 import file_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(253)) * 10_000
"""Three objects."""
POINTS = {
    "before-object:2": False,
    "after-object:3": False,
    "catalog-in-commit:4": False,
    "catalog-committed:4": True,
}
"""Places of the death, and whether the file is stored there. The first three commits register objects."""


async def messages() -> AsyncIterator[pb.UploadFileRequest]:
    start = pb.UploadFileStart(name="cat.png", media_type="image/png", request_id="the cat")
    yield pb.UploadFileRequest(start=start)
    for begin in range(0, len(PNG), 1 << 20):
        yield pb.UploadFileRequest(content=PNG[begin : begin + (1 << 20)])


async def read(client: Client, file_id: str) -> bytes:
    return b"".join([each.content async for each in client.files.GetFile(pb.GetFileRequest(file_id=file_id))])


def objects(data: Path) -> tuple[set[str], set[str], set[str]]:
    """Return the objects of the folder, those of files, and those that the next collection removes."""
    with sqlite3.connect(data / "catalog.db") as rows:
        bodies = [json.loads(body) for (body,) in rows.execute("SELECT body FROM files")]
        loose = {key for (key,) in rows.execute("SELECT key FROM loose_file_objects")}
    rows.close()
    there = {path.name for path in (data / "blobs").glob("??/*")}
    return there, {key for body in bodies for key in body["objects"]}, loose


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_in_an_upload_leaves_all_of_the_file_or_nothing(tmp_path: Path, point: str) -> None:
    data = tmp_path / "data"
    first = await Server(data).start()
    assert await first.stop() == 0
    server = await Server(data, doom=point).start()
    async with server.client() as client:
        with pytest.raises(aio.AioRpcError) as broken:
            await client.files.UploadFile(messages())
        assert broken.value.code() is grpc.StatusCode.UNAVAILABLE
    assert await server.ended() == -9
    there, of_files, loose = objects(data)
    assert of_files <= there and there <= of_files | loose
    assert bool(of_files) is POINTS[point]

    server = await Server(data).start()
    async with server.client() as client:
        listed = (await client.files.ListFiles(pb.ListFilesRequest())).files
        assert len(listed) == POINTS[point]
        made = (await client.files.UploadFile(messages())).file
        assert list((await client.files.ListFiles(pb.ListFilesRequest())).files) == [made]
        assert not listed or listed[0] == made
        assert await read(client, made.id) == PNG
        await client.files.DeleteFile(pb.DeleteFileRequest(file_id=made.id))
        assert not (await client.files.ListFiles(pb.ListFilesRequest())).files
    assert await server.stop() == 0
    there, of_files, loose = objects(data)
    assert of_files == set() and there <= loose
