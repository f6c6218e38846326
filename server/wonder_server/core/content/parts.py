"""Parts of messages: texts, images and files, in the order of their author. Pure.

A message of text alone has no parts: its content is the text. In any other message, the content is the text
of all text parts, joined with line breaks, so that readers that know only texts lose nothing of it.

An image or file part is a description of a stored file. It stays readable after the file was deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wonder_server.core.content.labels import file_label
from wonder_server.core.content.media_types import is_media_type, part_type
from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonDict, JsonObject, JsonValue
from wonder_server.core.token_estimates import FILE_KEY, file_tokens, text_tokens

TEXT: Final = "text"
IMAGE: Final = "image"
FILE: Final = "file"

MAX_PARTS: Final = 100
"""Maximum number of parts of a message or a tool result."""
MAX_MESSAGE_FILES: Final = 20
"""Default of the maximum number of images and files in a message, and the maximum in an agent's input."""


class ContentPart(Value, frozen=True, kw_only=True):
    """One part of a message.

    ``type`` is ``text``, ``image`` or ``file``. A text part is the next ``length`` characters of the
    message's content; a line break separates it from the next one. The other fields describe the file of the
    others.
    """

    type: str
    length: int = 0
    file_id: str = ""
    media_type: str = ""
    name: str = ""
    size_bytes: int = 0


_MAX_NODES: Final = 1_000
_FILE_FIELDS: Final = ("type", "file_id", "media_type", "name", "size_bytes")

Parts = tuple[ContentPart, ...]


def joined(texts: Sequence[str]) -> str:
    """Return the content of a message with these text parts."""
    return "\n".join(texts)


def with_texts(content: str, parts: Parts) -> list[tuple[ContentPart, str]]:
    """Return each part with its text, "" for images and files. The last text has the rest of the content."""
    last = max((index for index, part in enumerate(parts) if part.type == TEXT), default=-1)
    found, start = list[tuple[ContentPart, str]](), 0
    for index, part in enumerate(parts):
        end = len(content) if index == last else start + part.length
        found.append((part, content[start:end] if part.type == TEXT else ""))
        start = end + 1 if part.type == TEXT else start
    return found


def neutral_content(content: str, parts: Parts) -> JsonValue:
    """Return the content for context assembly: the text, or a list of parts as `neutral_part` describes."""
    if not parts:
        return content
    return [neutral_part(part, text) for part, text in with_texts(content, parts)]


def neutral_part(part: ContentPart, text: str = "") -> JsonDict:
    """Return ``{type: text, text}``, or ``{type, file_id, media_type, name, size_bytes}``."""
    if part.type == TEXT:
        return {"type": TEXT, "text": text}
    return {"type": part.type, **description(part)}


def description(part: ContentPart) -> JsonDict:
    """Return the description of a part's file."""
    return {
        "file_id": part.file_id,
        "media_type": part.media_type,
        "name": part.name,
        "size_bytes": part.size_bytes,
    }


def reference_of(item: JsonValue) -> JsonDict | None:
    """Return the place of a file in a request for a neutral image or file part; None for anything else.

    Requests are stored with this place. The content takes it when the request is sent.
    """
    if not isinstance(item, Mapping) or item.get("type") not in (IMAGE, FILE) or "file_id" not in item:
        return None
    return {FILE_KEY: {name: value for name, value in item.items() if name != "type"}}


def files_in(value: JsonValue) -> list[JsonDict]:
    """Return the neutral image and file parts in a tool's result, in order, each file once.

    They may stand anywhere in the first `_MAX_NODES` values of it, so a large result costs no more.
    """
    found: dict[str, JsonDict] = {}
    pending, seen = [value], 0
    while pending and seen < _MAX_NODES:
        item, seen = pending.pop(), seen + 1
        if isinstance(item, dict):
            if _is_file(item):
                found.setdefault(item["file_id"], {name: item[name] for name in _FILE_FIELDS if name in item})
            else:
                pending.extend(reversed(item.values()))
        elif isinstance(item, list):
            pending.extend(reversed(item[:_MAX_NODES]))
    return list(found.values())[:MAX_PARTS]


def _is_file(item: JsonDict) -> bool:
    file_id = item.get("file_id")
    return (
        item.get("type") in (IMAGE, FILE)
        and isinstance(file_id, str)
        and file_id.startswith("file_")
        and isinstance(item.get("media_type"), str)
    )


def stand_in(file: JsonObject, remark: str = "") -> str:
    """Return a description of a file in words, on one line, for readers that take only text."""
    media_type = str(file.get("media_type", ""))
    kind = IMAGE if media_type.startswith("image/") else FILE
    name = file_label(str(file.get("name", ""))) or "unnamed"
    facts = [name, media_type if is_media_type(media_type) else "", size_text(file.get("size_bytes"))]
    return f"[{kind}: {', '.join(filter(None, facts))}{'; ' + remark if remark else ''}]"


def unknown_file(file: JsonObject, remark: str) -> str:
    """Return the words for a file that is not stored. Of its description, which anyone may have written, they
    have only the name as a label."""
    known = {"name": file.get("name", "")}
    if part_type(str(file.get("media_type", ""))) == IMAGE:
        return stand_in({**known, "media_type": "image/*"}, remark)
    return stand_in(known, remark)


def size_text(size_bytes: JsonValue) -> str:
    """Return a size for people, such as ``120 KB``; "" for no number."""
    if type(size_bytes) is not int or size_bytes < 0:
        return ""
    for unit, size in (("MB", 1_000_000), ("KB", 1_000)):
        if size_bytes >= size:
            value = size_bytes / size
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size_bytes} bytes"


def readable(content: str, parts: Parts) -> str:
    """Return a message as one text, with descriptions in place of images and files."""
    if not parts:
        return content
    texts = [
        text if part.type == TEXT else stand_in(description(part))
        for part, text in with_texts(content, parts)
    ]
    return joined(texts)


def character_count(content: str, parts: Parts) -> int:
    """Return a number above the estimated tokens of a message, which takes no time to compute."""
    if not parts:
        return len(content)
    return len(content) + sum([file_tokens(description(part)) for part in parts if part.type != TEXT])


def content_tokens(content: str, parts: Parts) -> int:
    """Return the estimated tokens of a message."""
    if not parts:
        return text_tokens(content)
    return text_tokens(content) + sum([file_tokens(description(part)) for part in parts if part.type != TEXT])
