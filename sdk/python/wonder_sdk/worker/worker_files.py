"""Files of a worker's action: those that its input names, and those that its result shows.

::

    @worker.action("negative")
    async def negative(given: Picture, context: WorkerContext) -> dict:
        content = await context.read_file(given.file_id)
        return {"picture": await context.store_file(invert(content), name="negative.png")}

The server shows the model of an agent each file that a tool's result describes. See docs/workers.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wonder_sdk._proto.wonder import v1
from wonder_sdk.errors import NotFoundError, UnavailableError, WonderError
from wonder_sdk.json_types import JsonDict
from wonder_sdk.worker.action_error import ActionError

if TYPE_CHECKING:
    from wonder_sdk.client import Client

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class WorkerFiles:
    """The files of one assignment."""

    def __init__(self, client: Client, project_id: str, operation_id: str) -> None:
        self._client = client
        self._project_id = project_id
        self._operation_id = operation_id

    async def read(self, file_id: str) -> bytes:
        """See `WorkerContext.read_file`."""
        with _as_action_error():
            # A worker may reach further projects than that of the assignment, and a model chose the id.
            # Both cases read the same, so that a caller learns no ids that exist.
            try:
                description = await self._client.describe_file(file_id)
                if description.project_id == self._project_id:
                    return await self._client.download(file_id)
            except NotFoundError:
                pass
        raise ActionError(
            "This project has no such file. It may have been deleted.", reason=v1.ErrorReason.FILE_NOT_FOUND
        )

    async def store(self, content: bytes, name: str, media_type: str) -> JsonDict:
        """See `WorkerContext.store_file`."""
        # Another attempt that stores the same gets the same file; one with another content, another file.
        facts = "\n".join([self._operation_id, name, media_type, hashlib.sha256(content).hexdigest()])
        request_id = f"worker-file-{hashlib.sha256(facts.encode()).hexdigest()}"
        with _as_action_error():
            made = await self._client.upload(
                content, name=name, media_type=media_type, project=self._project_id, request_id=request_id
            )
        return {
            "type": "image" if made.media_type in IMAGE_TYPES else "file",
            "file_id": made.id,
            "media_type": made.media_type,
            "name": made.name,
            "size_bytes": made.size_bytes,
        }


@contextmanager
def _as_action_error() -> Iterator[None]:
    """Turn an error of the server into the action's, so that the tool's caller reads the reason."""
    try:
        yield
    except WonderError as problem:
        raise ActionError(
            problem.message,
            reason=problem.reason or v1.ErrorReason.TASK_FAILED,
            retriable=isinstance(problem, UnavailableError),
        ) from problem
