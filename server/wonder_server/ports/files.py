"""Files of projects, as actors use them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

from wonder_server.core.content.answer_images import AnswerImage, StoredImage
from wonder_server.core.content.media_types import part_type
from wonder_server.core.content.parts import ContentPart
from wonder_server.core.definitions.resources import File
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict


def part_of(file: File) -> ContentPart:
    """Return a file as a part of a message."""
    return ContentPart(
        type=part_type(file.media_type),
        file_id=file.id,
        media_type=file.media_type,
        name=file.name,
        size_bytes=file.size_bytes,
    )


class FileLookup(Protocol):
    """Descriptions of the files in an access scope."""

    async def file(self, file_id: str) -> File | None: ...


class RequestFiles(Protocol):
    """The contents of files in requests to models, and images in their answers."""

    def filled(
        self, project_id: str, profile: ModelProfile, request: JsonDict
    ) -> AbstractAsyncContextManager[JsonDict]:
        """Yield the request as it is sent: with the content of each file of the project that it names.

        A file that the model cannot take, that is missing, or that belongs to another project is described in
        words. The contents are in memory until the end of the block. Raises STORAGE_UNAVAILABLE.
        """
        ...

    async def labelled(self, project_id: str, profile: ModelProfile, request: JsonDict) -> JsonDict:
        """Return the request with the words that `filled` puts before users' files, and with their places."""
        ...

    async def store_image(self, project_id: str, principal: str, key: str, image: AnswerImage) -> ContentPart:
        """Store an image of a model's answer as a file of the project, and return it as a part.

        ``principal`` is the one for whom the answer was made, as in `Scope`. The same image, stored again
        under ``key`` by that principal, is the same file. Raises FIELD_INVALID, PAYLOAD_TOO_LARGE,
        LIMIT_EXCEEDED, PROJECT_NOT_FOUND and STORAGE_UNAVAILABLE.
        """
        ...


async def store_images(
    files: RequestFiles, project_id: str, principal: str, key: str, images: Sequence[AnswerImage]
) -> list[StoredImage]:
    """Store the images of an answer, as `RequestFiles.store_image` does; of others return the reason.

    No image fails the call: the answer is paid for, and a repeated call would make another one.
    """
    stored = list[StoredImage]()
    for image in images:
        try:
            stored.append(await files.store_image(project_id, principal, key, image))
        except WonderError as problem:
            stored.append(problem.fault.message)
    return stored


class NoFiles:
    """Files of a server without any. Implements the ports ``FileLookup`` and ``RequestFiles``."""

    async def file(self, file_id: str) -> File | None:
        return None

    @asynccontextmanager
    async def filled(
        self, project_id: str, profile: ModelProfile, request: JsonDict
    ) -> AsyncIterator[JsonDict]:
        yield request

    async def labelled(self, project_id: str, profile: ModelProfile, request: JsonDict) -> JsonDict:
        return request

    async def store_image(self, project_id: str, principal: str, key: str, image: AnswerImage) -> ContentPart:
        raise error(Reason.NOT_IMPLEMENTED, "This server stores no files.")


NO_FILES: Final = NoFiles()
