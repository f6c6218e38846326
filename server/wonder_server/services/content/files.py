"""Contents of files: uploads, downloads, and whole contents for model requests.

A content is stored as objects of 1 MiB each, so that an upload and a download hold one object in memory, and
a download can begin anywhere. An object begins with the id of its project: two projects share none.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

from wonder_server.core.content.labels import file_label
from wonder_server.core.content.media_types import TypeCheck, normalized
from wonder_server.core.definitions.resources import File
from wonder_server.core.errors import Reason, WonderError, error, not_found
from wonder_server.core.idempotency import SERVER_ORIGIN, Origin
from wonder_server.core.printable import printable
from wonder_server.logs import logger
from wonder_server.ports.blobs import Blobs
from wonder_server.services.catalog.library import Library
from wonder_server.services.object_reservations import ObjectReservations

_log = logger("files")

OBJECT_BYTES: Final = 1 << 20
"""Bytes of content in one object. Changing it affects new files only."""
SLICE_BYTES: Final = 256 << 10
"""Bytes that are checked and hashed before the event loop serves others: less than a millisecond."""
MAX_NAME_BYTES: Final = 255
MAX_UPLOADS: Final = 64
"""Uploads in progress. Each holds up to an object and a message of its client in memory."""
MAX_CALLER_UPLOADS: Final = 16
"""Uploads in progress of one token."""
COLLECT_AFTER_S: Final = 30.0
COLLECT_EVERY_S: Final = 600.0

_NOT_IN_NAMES: Final = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """The settings of files: the maximum size in bytes, and the accepted media types."""

    max_bytes: int = 20 << 20
    media_types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """Description of a file before its content.

    ``project_id`` is the id. ``media_type`` "" finds the type in the content. ``size_bytes`` 0 and ``sha256``
    "" are not checked.
    """

    project_id: str
    name: str
    media_type: str = ""
    size_bytes: int = 0
    sha256: str = ""


class FileContents:
    """The use cases of files for one access scope."""

    def __init__(
        self, library: Library, blobs: Blobs, objects: ObjectReservations, limits: FileLimits
    ) -> None:
        self.descriptions = library.files
        self.limits = limits
        self._project_id = library.project_id
        self._blobs = blobs
        self._objects = objects
        self._uploads = Counter[str]()

    def within(self, library: Library) -> FileContents:
        """Return the use cases for the scope of another library. Both share the running uploads."""
        made = copy(self)
        made.descriptions = library.files
        made._project_id = library.project_id
        return made

    @property
    def uploads_in_progress(self) -> int:
        """The number of uploads in progress, of all scopes."""
        return self._uploads.total()

    async def project_id(self, key: str) -> str:
        """Return the id of a project. Raises PROJECT_NOT_FOUND."""
        return await self._project_id(key)

    async def upload(
        self, new: NewFile, pieces: AsyncIterator[bytes], *, origin: Origin = SERVER_ORIGIN
    ) -> File:
        """Store a file with the content ``pieces``, all of it or nothing.

        Raises FIELD_INVALID, PAYLOAD_TOO_LARGE, LIMIT_EXCEEDED, PROJECT_NOT_FOUND, STORAGE_UNAVAILABLE, and
        the errors of ``pieces``.
        """
        check_name(new.name)
        declared = normalized(new.media_type) if new.media_type else ""
        intake = _Intake(new, TypeCheck(declared, self.limits.media_types), self.limits.max_bytes)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._count_upload(origin.principal.caller))
            keys: list[str] = []

            async def store(content: bytes) -> None:
                reserved = self._objects.reserve(new.project_id, [_header(new.project_id) + content])
                keys.extend(await stack.enter_async_context(reserved))

            async for _ in self._fed(intake, pieces):
                if (full := intake.take(OBJECT_BYTES)) is not None:
                    await store(full)
            found = intake.finish()
            if (rest := intake.take(1)) is not None:
                await store(rest)
            made = replace(found, objects=tuple(keys))
            return await self.descriptions.add(made, origin=_with_content(origin, made.sha256))

    async def uploaded_before(
        self, new: NewFile, pieces: AsyncIterator[bytes], origin: Origin
    ) -> File | None:
        """Return the file that an earlier upload with the same id and content stored, also if it or its
        project was deleted since. Return None for a new id, before any piece is read. Store nothing.

        Raises REQUEST_ID_REUSED, and the errors of `upload`."""
        if not await self.descriptions.knows(origin):
            return None
        check_name(new.name)
        declared = normalized(new.media_type) if new.media_type else ""
        intake = _Intake(new, TypeCheck(declared, self.limits.media_types), self.limits.max_bytes)
        with self._count_upload(origin.principal.caller):
            async for _ in self._fed(intake, pieces):
                intake.take(OBJECT_BYTES)
            return await self.descriptions.added_before(_with_content(origin, intake.finish().sha256))

    async def _fed(self, intake: _Intake, pieces: AsyncIterator[bytes]) -> AsyncIterator[None]:
        """Feed the pieces to the intake in slices, and pause after each, so that others are served."""
        async for piece in pieces:
            for start in range(0, len(piece), SLICE_BYTES):
                intake.feed(piece[start : start + SLICE_BYTES])
                await asyncio.sleep(0)
                yield

    async def download(self, file: File, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield the content from ``offset`` on. Raises CURSOR_OUT_OF_RANGE, STORAGE_UNAVAILABLE, and
        FILE_NOT_FOUND if the file is deleted meanwhile."""
        if not 0 <= offset <= file.size_bytes:
            raise error(
                Reason.CURSOR_OUT_OF_RANGE,
                f"The offset is {offset}; the file has {file.size_bytes} bytes.",
                field="offset",
            )
        index, skipped = divmod(offset, file.object_bytes)
        for key in file.objects[index:]:
            content = await self._read(file, key)
            for start in range(skipped, len(content), SLICE_BYTES):
                yield content[start : start + SLICE_BYTES]
            skipped = 0

    async def read(self, file: File) -> bytes:
        """Return the whole content. Raises STORAGE_UNAVAILABLE and FILE_NOT_FOUND."""
        return b"".join([await self._read(file, key) for key in file.objects])

    async def delete(self, file_id: str, *, origin: Origin = SERVER_ORIGIN) -> None:
        """Delete a file. Raises FILE_NOT_FOUND."""
        await self.descriptions.delete(file_id, origin=origin)
        self._objects.schedule_collection()

    async def _read(self, file: File, key: str) -> bytes:
        found = await self._blobs.get(key)
        if found is not None:
            return found[len(_header(file.project_id)) :]
        if await self.descriptions.find(file.id) is None:
            raise not_found(Reason.FILE_NOT_FOUND, file.id, field="file_id")
        _log.error("file_object_missing", file=file.id, object=key)
        raise error(
            Reason.STORAGE_UNAVAILABLE,
            f"A part of the file {file.id} is missing in the object store. Restore a backup.",
            object=key,
        )

    @contextmanager
    def _count_upload(self, caller: str) -> Iterator[None]:
        if self._uploads.total() >= MAX_UPLOADS or (caller and self._uploads[caller] >= MAX_CALLER_UPLOADS):
            limit = (
                MAX_CALLER_UPLOADS if caller and self._uploads[caller] >= MAX_CALLER_UPLOADS else MAX_UPLOADS
            )
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"{limit} uploads are in progress; try again later.",
                retry_after_ms=1_000,
                limit=str(limit),
            )
        self._uploads[caller] += 1
        try:
            yield
        finally:
            self._uploads[caller] -= 1
            self._uploads += Counter()  # Removes callers with a count of zero.


class _Intake:
    """The content of one upload as it arrives: checks, hash, and the bytes that are not stored yet."""

    def __init__(self, new: NewFile, check: TypeCheck, max_bytes: int) -> None:
        self._new = new
        self._check = check
        self._max_bytes = max_bytes
        self._digest = hashlib.sha256()
        self._size = 0
        self._buffer = bytearray()
        if new.size_bytes > max_bytes:
            raise self._too_large(new.size_bytes)

    def feed(self, piece: bytes) -> None:
        """Take the next bytes. Raises PAYLOAD_TOO_LARGE, FIELD_INVALID."""
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise self._too_large(self._size)
        self._check.feed(piece)
        self._digest.update(piece)
        self._buffer += piece

    def take(self, at_least: int) -> bytes | None:
        """Return the next object's content if so many bytes have arrived."""
        if len(self._buffer) < at_least:
            return None
        taken = bytes(self._buffer[:OBJECT_BYTES])
        del self._buffer[:OBJECT_BYTES]
        return taken

    def finish(self) -> File:
        """Return the file, without id and objects. Raises FIELD_INVALID."""
        new, sha256 = self._new, self._digest.hexdigest()
        if not self._size:
            raise error(Reason.FIELD_INVALID, "The file is empty. Send its content.", field="content")
        if new.size_bytes and new.size_bytes != self._size:
            raise error(
                Reason.FIELD_INVALID,
                f"size_bytes is {new.size_bytes}, but {self._size} bytes arrived. Upload the file again.",
                field="size_bytes",
            )
        if new.sha256 and new.sha256.lower() != sha256:
            raise error(
                Reason.FIELD_INVALID,
                f"The SHA-256 of the content is {sha256}, not that of the request. Upload the file again.",
                field="sha256",
            )
        return File(
            id="",
            project_id=new.project_id,
            name=new.name,
            media_type=self._check.finish(),
            size_bytes=self._size,
            sha256=sha256,
            object_bytes=OBJECT_BYTES,
        )

    def _too_large(self, size: int) -> WonderError:
        return error(
            Reason.PAYLOAD_TOO_LARGE,
            f"The file has {size} bytes or more; the maximum is {self._max_bytes} (max_file_bytes).",
            field="content",
            limit=str(self._max_bytes),
        )


def check_name(name: str, field: str = "name") -> None:
    """Raise FIELD_INVALID for a name that is empty, too long, or not that of a file."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if (
        not 1 <= size <= MAX_NAME_BYTES
        or _NOT_IN_NAMES.search(name)
        or name in (".", "..")
        or not file_label(name)
    ):
        raise error(
            Reason.FIELD_INVALID,
            f"'{printable(name, 100)}' is not a name of a file. Use 1 to {MAX_NAME_BYTES} bytes with visible"
            " characters, without '/', '\\' and control characters.",
            field=field,
        )


def _header(project_id: str) -> bytes:
    return f"file of {project_id}\n".encode()


def _with_content(origin: Origin, sha256: str) -> Origin:
    """Return the origin with a fingerprint that covers the content too."""
    if not origin.request_id:
        return origin
    digest = hashlib.blake2b(f"{origin.fingerprint}/{sha256}".encode(), digest_size=16)
    return Origin(origin.principal, origin.request_id, digest.hexdigest())


async def collect_forever(objects: ObjectReservations) -> None:
    """Remove unreferenced objects, at first those that the last process left."""
    await asyncio.sleep(COLLECT_AFTER_S)
    while True:
        await objects.try_collect()
        await asyncio.sleep(COLLECT_EVERY_S)
