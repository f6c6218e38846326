"""Client methods for files."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncIterator
from pathlib import Path

from wonder_sdk._proto import stubs
from wonder_sdk._proto.wonder import v1
from wonder_sdk.errors import InternalError, UnavailableError
from wonder_sdk.methods.paging import pages
from wonder_sdk.values import content_parts

PIECE_BYTES = 1 << 20
"""Bytes of one message of an upload."""
MAX_RESUMES = 5
"""Number of times that a download goes on after a lost connection, and an upload whose refusal was lost."""
_PAGE = 200
_LOST_REFUSAL = "Internal error from Core"


class FileMethods:
    """Methods of `Client` for files. ``project`` is an id or a name."""

    conversations: stubs.ConversationServiceStub
    files: stubs.FileServiceStub

    async def upload(
        self,
        content: Path | str | bytes,
        *,
        name: str = "",
        media_type: str = "",
        project: str = "",
        request_id: str = "",
    ) -> v1.File:
        """Store a file in a project and return it. ``content`` is a path, or the bytes.

        ``name`` is the path's by default; bytes need one. Without ``media_type`` the server finds the type
        in the content, except for texts, whose type follows from the name. Raises InvalidArgumentError for a
        type that is not the content's or that the server does not accept, ResourceExhaustedError for a file
        that is too large, and OSError if the path cannot be read.
        """
        path = None if isinstance(content, bytes) else Path(content)
        name = name or (path.name if path is not None else "")
        size = (
            len(content)
            if isinstance(content, bytes)
            else (await asyncio.to_thread(Path(content).stat)).st_size
        )
        start = v1.UploadFileStart(
            project_id=project,
            name=name,
            media_type=media_type or _text_type(name),
            request_id=request_id,
            size_bytes=size,
        )

        async def messages() -> AsyncIterator[v1.UploadFileRequest]:
            yield v1.UploadFileRequest(start=start)
            async for piece in _pieces(content):
                yield v1.UploadFileRequest(content=piece)

        for attempt in range(MAX_RESUMES + 1):
            try:
                response = await self.files.upload_file(messages())
                break
            except InternalError as problem:
                # grpcio's own error: it wrote while the server's refusal arrived, and lost that.
                if problem.message != _LOST_REFUSAL or attempt == MAX_RESUMES:
                    raise
        if response.file is None:
            raise ValueError("the server answered without a file")
        return response.file

    async def attach(
        self,
        content: Path | str | bytes,
        *,
        name: str = "",
        media_type: str = "",
        conversation: str = "",
        project: str = "",
        request_id: str = "",
    ) -> v1.ContentPart:
        """Store an image or a file for a message and return its part, for ``parts`` of the message.

        ``content`` is a path, or the bytes; the name of bytes follows from their type. A message takes files
        of its conversation's project only: give the id of the ``conversation``, or the ``project`` of a new
        one. Raises the errors of `upload`, and NotFoundError.
        """
        if conversation and not project:
            request = v1.GetConversationRequest(conversation_id=conversation)
            found = (await self.conversations.get_conversation(request)).conversation
            project = "" if found is None else found.project_id
        if isinstance(content, bytes) and not name:
            name = _name_of(content, media_type)
        file = await self.upload(
            content, name=name, media_type=media_type, project=project, request_id=request_id
        )
        return content_parts([file])[0]

    async def download(self, file_id: str) -> bytes:
        """Return the content of a file. It goes on after a lost connection.

        Treat the content as hostile: do not execute it, and do not show it as a page. Raises NotFoundError.
        """
        content = bytearray()
        for attempt in range(MAX_RESUMES + 1):
            try:
                request = v1.GetFileRequest(file_id=file_id, offset=len(content))
                async for message in self.files.get_file(request):
                    content += message.content or b""
                break
            except UnavailableError:
                if attempt == MAX_RESUMES:
                    raise
        return bytes(content)

    async def describe_file(self, file_id: str) -> v1.File:
        """Return the description of a file: project, name, type and size. Raises NotFoundError."""
        call = self.files.get_file(v1.GetFileRequest(file_id=file_id))
        try:
            async for message in call:
                if message.file is not None:
                    return message.file
        finally:
            call.cancel()
        raise ValueError("the server answered without a file")

    async def list_files(self, *, project: str = "") -> AsyncIterator[v1.File]:
        """Yield the files of a project, or of all, newest first."""
        request = v1.ListFilesRequest(project_id=project, page_size=_PAGE)
        async for page in pages(self.files.list_files, request):
            for file in page.files:
                yield file

    async def delete_file(self, file_id: str, *, request_id: str = "") -> None:
        """Delete a file. Messages keep its description. Raises NotFoundError."""
        await self.files.delete_file(v1.DeleteFileRequest(file_id=file_id, request_id=request_id))


_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image.png"),
    (b"\xff\xd8\xff", "image.jpg"),
    (b"GIF8", "image.gif"),
    (b"RIFF", "image.webp"),
    (b"%PDF-", "file.pdf"),
)


def _name_of(content: bytes, media_type: str) -> str:
    """Return the name of a file that has none, such as ``image.png``. The server finds the type itself."""
    if media_type:
        kind = "image" if media_type.startswith("image/") else "file"
        return f"{kind}{mimetypes.guess_extension(media_type) or ''}"
    return next((name for start, name in _SIGNATURES if content.startswith(start)), "file.txt")


def _text_type(name: str) -> str:
    """Return the media type of a text by the end of its name; "" for others, whose content shows their
    type."""
    if name.endswith(".md"):
        return "text/markdown"
    guessed = mimetypes.guess_type(name)[0] or ""
    return guessed if guessed.startswith("text/") or guessed == "application/json" else ""


async def _pieces(content: Path | str | bytes) -> AsyncIterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), PIECE_BYTES):
            yield content[start : start + PIECE_BYTES]
        return
    with await asyncio.to_thread(Path(content).open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece
