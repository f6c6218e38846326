"""Bodies of HTTP responses as files of the project (``http`` with ``store_files``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from wonder_server.core.content.media_types import (
    EXTENSIONS,
    HEAD_BYTES,
    IMAGES,
    part_type,
    signature_type,
)
from wonder_server.core.errors import WonderError
from wonder_server.core.json_types import JsonDict
from wonder_server.services.actions.contract.kind import ActionCall
from wonder_server.services.actions.contract.stored_results import stored_content
from wonder_server.services.content.files import check_name

MAX_TEXT_BYTES: Final = 3 << 20
"""A longer text is a file too: a result does not hold it."""
_UNKNOWN: Final = ("", "application/octet-stream", "binary/octet-stream")
"""Content types that say nothing: the content shows its type."""


def is_file(headers: Mapping[str, str], body: bytes) -> bool:
    """Return True for a body that becomes a file: one that is declared as an image or PDF or looks like one,
    and a long one. Of the rest, text and JSON stay in the result."""
    if not body:
        return False
    declared = _media_type(headers)
    if len(body) > MAX_TEXT_BYTES or declared in EXTENSIONS or declared.startswith("image/"):
        return True
    if signature_type(body[:HEAD_BYTES]):
        return True
    if "charset" in headers.get("content-type", "").lower():
        return False
    try:
        body.decode()
    except UnicodeDecodeError:
        return True
    return False


async def stored_body(call: ActionCall, url: str, headers: Mapping[str, str], body: bytes) -> JsonDict:
    """Store a body as a file, and return it as a part; ``{type: text, text}`` if it is not accepted."""
    declared = _media_type(headers)
    media_type = "" if declared in _UNKNOWN else declared
    found = media_type or signature_type(body[:HEAD_BYTES])
    kind = "image" if found.startswith("image/") else part_type(found)
    return await stored_content(call, body, _name(url, found), media_type, 0, kind)


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _name(url: str, media_type: str) -> str:
    """Return the end of the path as the name, or one for a path that has none."""
    try:
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        check_name(name)
    except (ValueError, WonderError):
        kind = "image" if media_type in IMAGES else "file"
        return f"{kind}-0.{EXTENSIONS.get(media_type, 'bin')}"
    return name
