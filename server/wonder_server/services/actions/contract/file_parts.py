"""Files that actions store, as parts of messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator

from wonder_server.core.content.media_types import part_type
from wonder_server.core.errors import Reason, error
from wonder_server.core.idempotency import Origin
from wonder_server.core.json_types import JsonDict
from wonder_server.ports.access import working_principal
from wonder_server.services.actions.contract.kind import ActionCall
from wonder_server.services.content.files import FileContents, NewFile


def decoded(data: str) -> bytes:
    """Return the content of base64. Raises INPUT_INVALID."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise error(Reason.INPUT_INVALID, "content_base64 is not base64.", field="content_base64") from None


async def store_part(
    call: ActionCall, name: str, content: bytes, media_type: str = "", number: str = "0"
) -> JsonDict:
    """Store a file for the principal of the task and return it as a part of a message.

    ``number`` distinguishes the files of one call: a repeated call returns the same file, and is refused with
    another content unless the number contains its digest.
    """
    files = _files_of(call)

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    context = call.context
    origin = Origin(
        working_principal(context.principal), f"file/{context.key}/{number}" if context.key else ""
    )
    project_id = await files.project_id(context.project_id)
    made = await files.upload(
        NewFile(project_id=project_id, name=name, media_type=media_type), pieces(), origin=origin
    )
    return {
        "type": part_type(made.media_type),
        "file_id": made.id,
        "media_type": made.media_type,
        "name": made.name,
        "size_bytes": made.size_bytes,
    }


def _files_of(call: ActionCall) -> FileContents:
    files = call.services.content.files
    if files is None:
        raise error(Reason.NOT_IMPLEMENTED, "This server stores no files.")
    return files
