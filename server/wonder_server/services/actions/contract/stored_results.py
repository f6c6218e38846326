"""Images and files in results of actions with ``store_files``: files of the project take their places.

A content that the server does not accept becomes a text with the reason, and the action goes on."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

from wonder_server.core.content.media_types import EXTENSIONS
from wonder_server.core.content.parts import FILE, IMAGE
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.printable import printable
from wonder_server.services.actions.contract.file_parts import decoded, store_part
from wonder_server.services.actions.contract.kind import ActionCall

MAX_RESULT_FILES: Final = 32
"""Contents of one result that are stored. An image of a few bytes would otherwise cost a file each."""

MAX_ATTEMPTS: Final = 100
ATTEMPT_EVERY_S: Final = 0.1


async def stored_content(
    call: ActionCall, content: bytes | str, name: str, media_type: str, number: int, kind: str = IMAGE
) -> JsonDict:
    """Store bytes or base64 as a file and return it as a part, or ``{type: text, text}`` with the reason why
    it is not stored. ``media_type`` "" finds the type in the content.

    Raises the errors that another attempt may not meet.
    """
    try:
        if number >= MAX_RESULT_FILES:
            raise error(
                Reason.LIMIT_EXCEEDED, f"A result has at most {MAX_RESULT_FILES} files.", field="store_files"
            )
        # Both release the interpreter or are done piece by piece: a content has up to 20 MiB.
        data = content if isinstance(content, bytes) else await asyncio.to_thread(decoded, content)
        digest = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        return await _store(call, name, data, media_type, f"{number}/{digest}")
    except WonderError as problem:
        if problem.fault.transient:
            raise
        shown = printable(media_type, 100) or "of no declared type"
        return {"type": "text", "text": f"[{kind}, {shown}, not stored: {problem.fault.message}]"}


async def _store(call: ActionCall, name: str, data: bytes, media_type: str, number: str) -> JsonDict:
    """Store a file. Wait while the maximum number of uploads is in progress: many branches end at once."""
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return await store_part(call, name, data, media_type, number)
        except WonderError as problem:
            if problem.fault.reason is not Reason.LIMIT_EXCEEDED or problem.fault.retry_after_ms is None:
                raise
            await asyncio.sleep(ATTEMPT_EVERY_S)
    return await store_part(call, name, data, media_type, number)


async def with_files(call: ActionCall, output: JsonDict) -> JsonDict:
    """Return an output with a file of the project in place of each image and file, at any depth: each object
    with ``type`` image or file, base64 in ``data``, and ``media_type`` or ``mimeType``."""
    return await _Outputs(call).replaced_members(output)


class _Outputs:
    """The replacement in one output, which numbers the files in their order. Outputs have a limited depth."""

    def __init__(self, call: ActionCall) -> None:
        self._call = call
        self._number = 0

    async def replaced_members(self, value: JsonDict) -> JsonDict:
        return {name: await self._replaced(each) for name, each in value.items()}

    async def _replaced(self, value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            return [await self._replaced(each) if isinstance(each, list | dict) else each for each in value]
        if not isinstance(value, dict):
            return value
        kind, data = value.get("type"), value.get("data")
        if kind not in (IMAGE, FILE) or not isinstance(data, str):
            return await self.replaced_members(value)
        number, self._number = self._number, self._number + 1
        declared = value.get("media_type", value.get("mimeType"))
        media_type = declared if isinstance(declared, str) else ""
        given = value.get("name")
        name = given if isinstance(given, str) and given else default_name(str(kind), number, media_type)
        return await stored_content(self._call, data, name, media_type, number, str(kind))


def default_name(kind: str, number: int, media_type: str) -> str:
    """Return the name of a file that has none, such as ``image-0.png``."""
    return f"{kind}-{number}.{EXTENSIONS.get(media_type, 'bin')}"
