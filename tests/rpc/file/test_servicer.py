"""FileService over a real connection: uploads, downloads, and every bad input with its reason."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import grpc
import pytest
import pytest_asyncio
from grpc import aio

from tests.rpc.rpc_kit import rejected, serving
from tests.services.catalog.library_kit import STANDARD, make
from tests.views import ForAll
from wonder.v1 import file_pb2
from wonder.v1 import file_service_pb2 as pb
from wonder.v1.file_service_pb2_grpc import FileServiceStub
from wonder_server.adapters.in_memory.blobs import MemoryBlobs
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.definitions.resources import Project
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.catalog import Put
from wonder_server.rpc.file.servicer import FileServicer
from wonder_server.services.content.files import MAX_UPLOADS, OBJECT_BYTES, FileContents, FileLimits, NewFile
from wonder_server.services.object_reservations import ObjectReservations

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
LIMIT = 3 * OBJECT_BYTES


@dataclass
class Stack:
    stub: FileServiceStub
    catalog: MemoryCatalog
    blobs: MemoryBlobs
    files: FileContents
    objects: ObjectReservations

    async def upload(self, *content: bytes, **start: object) -> file_pb2.File:
        return (await self.stub.UploadFile(messages(*content, **start))).file

    async def download(self, file_id: str, offset: int = 0) -> tuple[file_pb2.File, bytes]:
        file, content = file_pb2.File(), b""
        async for message in self.stub.GetFile(pb.GetFileRequest(file_id=file_id, offset=offset)):
            if message.HasField("file"):
                assert not content
                file = message.file
            content += message.content
        return file, content

    async def assert_nothing_is_left(self) -> None:
        """Check that a failed upload left neither a file nor an object."""
        assert await self.catalog.files("", "", 9) == []
        await self.objects.collect()
        assert self.blobs.contents == {} and await self.catalog.unreferenced() == []


async def messages(*content: bytes, **start: object) -> AsyncIterator[pb.UploadFileRequest]:
    given = {"name": "cat.png", "media_type": "image/png", **start}
    yield pb.UploadFileRequest(start=pb.UploadFileStart(**given))  # type: ignore[arg-type]
    for piece in content:
        yield pb.UploadFileRequest(content=piece)


@pytest_asyncio.fixture
async def stack() -> AsyncIterator[Stack]:
    catalog, blobs = MemoryCatalog(), MemoryBlobs()
    library = make(catalog)
    await library.ensure_standard(STANDARD)
    await catalog.commit([Put(Project(id="proj_2", name="second"))])
    objects = ObjectReservations(blobs, catalog)
    types = frozenset({"image/png", "image/gif", "text/plain"})
    files = FileContents(library, blobs, objects, FileLimits(max_bytes=LIMIT, media_types=types))
    servicer = FileServicer(ForAll(files), message_timeout_s=0.2)
    async with serving({"wonder.v1.FileService": servicer}) as channel:
        yield Stack(FileServiceStub(channel), catalog, blobs, files, objects)
    await objects.close()


async def test_a_file_comes_back_as_it_was_sent(stack: Stack) -> None:
    content = PNG + bytes(range(251)) * 10_000
    made = await stack.upload(content[:7], content[7:900_000], content[900_000:])
    project = await stack.catalog.project("default")
    assert project is not None and made.project_id == project.id
    assert (made.name, made.media_type, made.size_bytes) == ("cat.png", "image/png", len(content))
    assert made.sha256 == hashlib.sha256(content).hexdigest() and made.id.startswith("file_")
    assert await stack.download(made.id) == (made, content)
    assert len(stack.blobs.contents) == 3


@pytest.mark.parametrize("offset", [1, OBJECT_BYTES - 1, OBJECT_BYTES, 2 * OBJECT_BYTES + 5, LIMIT])
async def test_a_download_continues_anywhere(stack: Stack, offset: int) -> None:
    content = (PNG + bytes(range(241)) * 14_000)[:LIMIT]
    made = await stack.upload(content)
    assert await stack.download(made.id, offset) == (made, content[offset:])


@pytest.mark.parametrize("offset", [-1, len(PNG) + 1])
async def test_an_offset_beyond_the_file_is_refused(stack: Stack, offset: int) -> None:
    made = await stack.upload(PNG)
    with pytest.raises(aio.AioRpcError) as refused:
        await stack.download(made.id, offset)
    assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE


async def test_files_are_listed_by_project_and_deleted(stack: Stack) -> None:
    first, second = await stack.upload(PNG), await stack.upload(PNG, project_id="second")
    listed = await stack.stub.ListFiles(pb.ListFilesRequest())
    assert list(listed.files) == [second, first]
    listed = await stack.stub.ListFiles(pb.ListFilesRequest(project_id="second", page_size=1))
    assert list(listed.files) == [second]
    # Equal contents of two projects share nothing.
    assert len(stack.blobs.contents) == 2
    request = pb.DeleteFileRequest(file_id=first.id, request_id="d1")
    await stack.stub.DeleteFile(request)
    await stack.stub.DeleteFile(request)
    assert await rejected(stack.stub.DeleteFile(pb.DeleteFileRequest(file_id=first.id))) == (
        "FILE_NOT_FOUND", ["file_id"],
    )  # fmt: skip
    await stack.objects.collect()
    assert len(stack.blobs.contents) == 1 and (await stack.download(second.id))[1] == PNG


BAD: dict[str, tuple[Sequence[bytes], dict[str, object], str, str]] = {
    "lies about its type": ([PNG], {"media_type": "image/gif"}, "FIELD_INVALID", "media_type"),
    "lies with text": ([b"<svg/>"], {}, "FIELD_INVALID", "media_type"),
    "an unknown type": ([PNG], {"media_type": "image/svg+xml"}, "FIELD_INVALID", "media_type"),
    "no media type": ([PNG], {"media_type": "png"}, "FIELD_INVALID", "media_type"),
    "unknown bytes": ([b"\x00\x01\x02"], {"media_type": ""}, "FIELD_INVALID", "media_type"),
    "half a character": ([b"caf\xc3"], {"media_type": "text/plain"}, "FIELD_INVALID", "media_type"),
    "no content": ([], {}, "FIELD_INVALID", "content"),
    "empty pieces": ([b"", b""], {}, "FIELD_INVALID", "content"),
    "too large": ([PNG, *[b"\0" * OBJECT_BYTES] * 3], {}, "PAYLOAD_TOO_LARGE", "content"),
    "too large by its own words": ([PNG], {"size_bytes": LIMIT + 1}, "PAYLOAD_TOO_LARGE", "content"),
    "cut off": ([PNG[:-1]], {"size_bytes": len(PNG)}, "FIELD_INVALID", "size_bytes"),
    "a negative size": ([PNG], {"size_bytes": -1}, "FIELD_INVALID", "size_bytes"),
    "another hash": ([PNG], {"sha256": "0" * 64}, "FIELD_INVALID", "sha256"),
    "no name": ([PNG], {"name": ""}, "FIELD_INVALID", "name"),
    "a path": ([PNG], {"name": "../../etc/passwd"}, "FIELD_INVALID", "name"),
    "a long name": ([PNG], {"name": "é" * 128}, "FIELD_INVALID", "name"),
    "a name that turns around": ([PNG], {"name": "cat\u202egnp.exe"}, "FIELD_INVALID", "name"),
    "a missing project": ([PNG], {"project_id": "nowhere"}, "PROJECT_NOT_FOUND", "project_id"),
    "a long request id": ([PNG], {"request_id": "r" * 129}, "FIELD_INVALID", "request_id"),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_has_its_reason_and_leaves_nothing(stack: Stack, name: str) -> None:
    content, start, reason, field = BAD[name]
    found = await rejected(stack.stub.UploadFile(messages(*content, **start)))
    assert found == (reason, [field] if field else [])
    await stack.assert_nothing_is_left()


async def test_an_upload_begins_with_its_description_and_has_one(stack: Stack) -> None:
    async def content_first() -> AsyncIterator[pb.UploadFileRequest]:
        yield pb.UploadFileRequest(content=PNG)

    async def nothing() -> AsyncIterator[pb.UploadFileRequest]:
        for each in ():
            yield each

    async def two() -> AsyncIterator[pb.UploadFileRequest]:
        async for each in messages(PNG):
            yield each
        async for each in messages():
            yield each

    assert await rejected(stack.stub.UploadFile(content_first())) == ("FIELD_INVALID", ["start"])
    assert await rejected(stack.stub.UploadFile(nothing())) == ("FIELD_INVALID", ["start"])
    assert await rejected(stack.stub.UploadFile(two())) == ("FIELD_INVALID", ["content"])
    await stack.assert_nothing_is_left()


async def test_an_upload_that_stalls_ends_with_a_timeout(stack: Stack) -> None:
    stalled = asyncio.Event()

    async def stall() -> AsyncIterator[pb.UploadFileRequest]:
        async for each in messages(PNG + b"\0" * OBJECT_BYTES):
            yield each
        await stalled.wait()

    assert await rejected(stack.stub.UploadFile(stall())) == ("TIMEOUT", [])
    await stack.assert_nothing_is_left()


async def test_an_upload_that_breaks_off_leaves_nothing(stack: Stack) -> None:
    """The client leaves after the first object was written."""
    written = asyncio.Event()
    put = stack.blobs.put

    async def notice(content: bytes) -> str:
        written.set()
        return await put(content)

    stack.blobs.put = notice  # type: ignore[method-assign]
    ended = asyncio.Event()
    stack.objects.schedule_collection = ended.set  # type: ignore[method-assign]

    async def leave() -> AsyncIterator[pb.UploadFileRequest]:
        async for each in messages(PNG + b"\0" * OBJECT_BYTES):
            yield each
        await asyncio.Event().wait()

    call = stack.stub.UploadFile(leave())
    task = asyncio.ensure_future(call.wait_for_connection())
    await written.wait()
    call.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await ended.wait()
    assert stack.files.uploads_in_progress == 0
    await stack.assert_nothing_is_left()


async def test_two_uploads_of_one_content_at_once_are_two_files_with_one_object(stack: Stack) -> None:
    made = await asyncio.gather(*(stack.upload(PNG) for _ in range(8)))
    assert len({each.id for each in made}) == 8 and len(stack.blobs.contents) == 1
    for each in made[1:]:
        await stack.stub.DeleteFile(pb.DeleteFileRequest(file_id=each.id))
    await stack.objects.collect()
    assert (await stack.download(made[0].id))[1] == PNG


async def test_a_repeated_request_returns_its_file_and_another_content_is_refused(stack: Stack) -> None:
    made = await stack.upload(PNG, request_id="r1")
    assert await stack.upload(PNG[:5], PNG[5:], request_id="r1") == made
    again = stack.stub.UploadFile(messages(PNG + b"\0", request_id="r1"))
    assert await rejected(again) == ("REQUEST_ID_REUSED", ["request_id"])
    assert len(await stack.catalog.files("", "", 9)) == 1
    await stack.objects.collect()
    assert (await stack.download(made.id))[1] == PNG and len(stack.blobs.contents) == 1


async def test_uploads_in_progress_are_limited(stack: Stack) -> None:
    release = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield PNG
        await release.wait()

    project = await stack.files.project_id("")
    new = NewFile(project_id=project, name="cat.png")
    running = [asyncio.create_task(stack.files.upload(new, slow())) for _ in range(MAX_UPLOADS)]
    await asyncio.sleep(0)
    assert await rejected(stack.stub.UploadFile(messages(PNG))) == ("LIMIT_EXCEEDED", [])
    release.set()
    await asyncio.gather(*running)
    assert (await stack.upload(PNG)).size_bytes == len(PNG)


async def test_a_store_that_fails_leaves_what_the_next_collection_removes(stack: Stack) -> None:
    put = stack.blobs.put

    async def fail(content: bytes) -> str:
        await put(content)
        raise error(Reason.STORAGE_UNAVAILABLE, "The object store does not answer.", transient=True)

    stack.blobs.put = fail  # type: ignore[method-assign]
    assert await rejected(stack.stub.UploadFile(messages(PNG))) == ("STORAGE_UNAVAILABLE", [])
    await stack.assert_nothing_is_left()


async def test_a_lost_object_is_an_error_and_not_an_empty_file(stack: Stack) -> None:
    made = await stack.upload(PNG)
    stack.blobs.contents.clear()
    with pytest.raises(aio.AioRpcError) as refused:
        await stack.download(made.id)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(WonderError, match="missing in the object store"):
        await stack.files.read(await stack.files.descriptions.file(made.id))
