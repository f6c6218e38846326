"""Images in answers of models, as files of a project."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import AsyncIterator
from typing import Final

from wonder_server.core.content.answer_images import AnswerImage
from wonder_server.core.content.media_types import HEAD_BYTES, IMAGES, signature_type
from wonder_server.core.content.parts import ContentPart
from wonder_server.core.errors import Reason, error
from wonder_server.core.frozen import replace
from wonder_server.core.idempotency import Origin
from wonder_server.ports.access import working_principal
from wonder_server.ports.files import part_of
from wonder_server.services.content.files import FileContents, NewFile

DECODED_AT_ONCE: Final = 256 << 10
"""Characters of one call of base64, which holds the interpreter lock for 0.2 ms. A multiple of four."""


async def store_image(
    files: FileContents, project_id: str, principal: str, key: str, image: AnswerImage
) -> ContentPart:
    """Store an image and return it as a part. See `ports.files.RequestFiles.store_image`.

    The content says the type: providers declare another one at times.
    """
    if image.problem:
        raise error(Reason.FIELD_INVALID, image.problem, field="content")
    content, sha256 = await asyncio.to_thread(_decoded, image.data)
    media_type = signature_type(content[:HEAD_BYTES])
    if media_type not in IMAGES:
        raise error(Reason.FIELD_INVALID, f"the content is none of {', '.join(IMAGES)}", field="content")

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    # An answer that is made again after a crash has another image, and with it another request id.
    project_id = await files.project_id(project_id)
    origin = Origin(working_principal(principal), f"answer-image/{key}/{sha256}", "answer-image")
    name = replace(image, data="", media_type=media_type).name
    new = NewFile(project_id=project_id, name=name, media_type=media_type)
    made = await files.upload(new, pieces(), origin=origin)
    return part_of(made)


def _decoded(data: str) -> tuple[bytes, str]:
    """Return the content of base64 and its SHA-256. Raises FIELD_INVALID."""
    content = bytearray()
    try:
        for start in range(0, len(data), DECODED_AT_ONCE):
            content += base64.b64decode(data[start : start + DECODED_AT_ONCE], validate=True)
    except (binascii.Error, ValueError):
        raise error(Reason.FIELD_INVALID, "the content is not base64", field="content") from None
    return bytes(content), hashlib.sha256(content).hexdigest()
