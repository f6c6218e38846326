"""``wonder.v1.FileService``: uploads and downloads of files of projects.

The catalog stores the ``request_id`` of an upload in the transaction of its file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from wonder.v1 import file_pb2
from wonder.v1 import file_service_pb2 as pb
from wonder_server.core.definitions.resources import File
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.ports.access import ByPrincipal
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.common_codec import set_principal
from wonder_server.rpc.shared.fields import bounded, required
from wonder_server.rpc.shared.pages import encode_page, page_request
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.rpc.shared.request_keys import audited_origin, message_origin
from wonder_server.rpc.shared.times import to_timestamp
from wonder_server.services.content.files import FileContents, NewFile


class FileServicer:
    """Methods of the FileService; see ``file_service.proto``."""

    def __init__(self, files: ByPrincipal[FileContents], *, message_timeout_s: float) -> None:
        """``message_timeout_s`` is the time in which the next message of an upload must arrive."""
        self._files = files
        self._message_timeout_s = message_timeout_s

    async def upload_file(
        self, requests: AsyncIterator[pb.UploadFileRequest], _context: CallContext
    ) -> pb.UploadFileResponse:
        messages = _Messages(requests, self._message_timeout_s)
        first = await messages.next()
        if first is None or first.WhichOneof("message") != "start":
            raise error(
                Reason.FIELD_INVALID,
                "The first message must have `start`, which describes the file.",
                field="start",
            )
        start, files, origin = first.start, self._own, message_origin(first.start)
        project = bounded(start.project_id, "project_id")
        new = NewFile(
            project_id="",
            name=required(start.name, "name"),
            media_type=start.media_type,
            size_bytes=_not_negative(start.size_bytes, "size_bytes"),
            sha256=start.sha256,
        )
        try:
            new = replace(new, project_id=await files.project_id(project))
        except WonderError:
            # The project may have been deleted since the request was sent first.
            made = await files.uploaded_before(new, _contents(messages), origin)
            if made is None:
                raise
        else:
            made = await files.upload(new, _contents(messages), origin=origin)
        return pb.UploadFileResponse(file=file_to_proto(made))

    async def get_file(
        self, request: pb.GetFileRequest, _context: CallContext
    ) -> AsyncIterator[pb.GetFileResponse]:
        files = self._own
        file = await files.descriptions.file(required(request.file_id, "file_id"))
        contents = files.download(file, request.offset)

        async def responses() -> AsyncIterator[pb.GetFileResponse]:
            # Read before the description is sent: an invalid offset or a missing object is the only answer.
            piece = await anext(contents, b"")
            yield pb.GetFileResponse(file=file_to_proto(file))
            while piece:
                yield pb.GetFileResponse(content=piece)
                piece = await anext(contents, b"")

        return responses()

    async def list_files(self, request: pb.ListFilesRequest, _context: CallContext) -> pb.ListFilesResponse:
        files, project_id = self._own, bounded(request.project_id, "project_id")
        if project_id:
            project_id = await files.project_id(project_id)
        page = await files.descriptions.files(page_request(request), project_id=project_id)
        found, token = await encode_page(page, file_to_proto)
        return pb.ListFilesResponse(files=found, next_page_token=token)

    async def delete_file(self, request: pb.DeleteFileRequest, context: CallContext) -> pb.DeleteFileResponse:
        origin = audited_origin(request, "DeleteFile", context)
        await self._own.delete(required(request.file_id, "file_id"), origin=origin)
        return pb.DeleteFileResponse()

    @property
    def _own(self) -> FileContents:
        return self._files.of(current_principal.get())


@dataclass(frozen=True, slots=True)
class _Messages:
    """The messages of an upload, each within a timeout."""

    requests: AsyncIterator[pb.UploadFileRequest]
    timeout_s: float

    async def next(self) -> pb.UploadFileRequest | None:
        """Return the next message; None at the end. Raises TIMEOUT."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await anext(self.requests, None)
        except TimeoutError:
            raise _timeout(self.timeout_s) from None


async def _contents(messages: _Messages) -> AsyncIterator[bytes]:
    """Yield the pieces of the content. Raises TIMEOUT, and FIELD_INVALID for any other message."""
    while (message := await messages.next()) is not None:
        if message.WhichOneof("message") != "content":
            raise error(
                Reason.FIELD_INVALID,
                "A message after the first must have `content`, a piece of the file.",
                field="content",
            )
        yield message.content


def _timeout(seconds: float) -> WonderError:
    return error(
        Reason.TIMEOUT,
        f"The next message of the upload did not arrive within {seconds:g} seconds, so nothing was stored. "
        "The operator can raise the setting request_seconds.",
    )


def _not_negative(number: int, field: str) -> int:
    if number < 0:
        raise error(Reason.FIELD_INVALID, f"{field} is {number}; use 0 or more.", field=field)
    return number


def file_to_proto(file: File) -> file_pb2.File:
    """Return the description of a file for clients."""
    message = file_pb2.File(
        id=file.id,
        project_id=file.project_id,
        name=file.name,
        media_type=file.media_type,
        size_bytes=file.size_bytes,
        sha256=file.sha256,
        create_time=to_timestamp(file.created_ms),
    )
    set_principal(message.created_by, file.created_by)
    return message
