"""Images in answers of models: the answer with descriptions of stored files in place of their contents. Pure.

An adapter takes the contents out of the provider's own message and leaves a place, ``{wonder_file: {image:
n}}``, with the other members of the part. `described` names the stored file in each place. The contents
return to the places when the message is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wonder_server.core.content.media_types import EXTENSIONS
from wonder_server.core.content.parts import TEXT, ContentPart, Parts, description, joined, stand_in
from wonder_server.core.frozen import Value
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.token_estimates import FILE_KEY

MAX_IMAGES: Final = 10
"""Maximum number of images of an answer that the server keeps."""
MAX_IMAGES_BYTES: Final = 32 << 20
"""Maximum size of all images of an answer in base64."""

_INDEX: Final = "image"
_PLACES: Final = ("parts", "output")
"""Members of a provider's own message that list its parts."""


class AnswerImage(Value, frozen=True, kw_only=True):
    """An image of an answer. ``data`` is its content in base64, ``media_type`` what the provider says of it.

    ``number`` counts the images of the answer from 1.
    ``position`` is the number of characters of the answer's text before it. ``problem`` is the reason why
    there is no content; "" with a content.
    """

    number: int
    data: str
    media_type: str
    position: int
    problem: str = ""

    @property
    def name(self) -> str:
        """The name of the file for the image."""
        return f"image-{self.number}.{EXTENSIONS.get(self.media_type, 'png')}"


StoredImage = ContentPart | str
"""The part of a stored image, or the reason in words why it is not stored."""


def place_of(image: AnswerImage) -> JsonDict:
    """Return the place of an image in the provider's own message."""
    return {FILE_KEY: {_INDEX: image.number}}


def file_of(image: AnswerImage, stored: StoredImage) -> JsonDict:
    """Return the description of an image's file; of an image that is not stored with the ``remark`` why."""
    if isinstance(stored, ContentPart):
        return description(stored)
    return {
        "name": image.name,
        "media_type": image.media_type,
        "size_bytes": len(image.data) * 3 // 4,
        "remark": f"not stored: {stored}",
    }


def stand_ins_of(files: Sequence[JsonDict]) -> str:
    """Return stand-ins for the images that are not stored; "" if all are."""
    return joined([stand_in(file, str(file["remark"])) for file in files if "remark" in file])


def with_stand_ins(text: str, stand_ins: str) -> str:
    """Return an answer's text with the stand-ins of images after it."""
    return joined([each for each in (text, stand_ins) if each])


def answer_parts(text: str, images: Sequence[AnswerImage], stored: Sequence[StoredImage]) -> Parts:
    """Return the parts of an answer; none if no image is stored.

    The model's adapter puts a line break between texts with an image between them.
    """
    if not any(isinstance(each, ContentPart) for each in stored):
        return ()
    parts, start = list[ContentPart](), 0
    for image, part in zip(images, stored, strict=True):
        if not isinstance(part, ContentPart):
            continue
        if (end := min(image.position, len(text))) > start:
            parts.append(ContentPart(type=TEXT, length=end - start))
            start = end + 1
        parts.append(part)
    if start < len(text):
        parts.append(ContentPart(type=TEXT, length=len(text) - start))
    return tuple(parts)


def described(raw: JsonDict, files: Sequence[JsonDict]) -> JsonDict:
    """Return the provider's own message with the description of a file in each place of an image."""
    lists = {key: raw[key] for key in _PLACES if isinstance(raw.get(key), list)}
    return {**raw, **{key: [_described(item, files) for item in items] for key, items in lists.items()}}


def _described(item: JsonValue, files: Sequence[JsonDict]) -> JsonValue:
    place = item.get(FILE_KEY) if isinstance(item, dict) else None
    number = place.get(_INDEX) if isinstance(place, dict) else None
    if not isinstance(item, dict) or type(number) is not int or not 1 <= number <= len(files):
        return item
    return {**item, FILE_KEY: files[number - 1]}
