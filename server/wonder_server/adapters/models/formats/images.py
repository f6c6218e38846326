"""`GatheredImages`: the images of one streamed answer. Pure."""

from __future__ import annotations

from typing import Final

from wonder_server.adapters.models.common.tool_arguments import clean_text
from wonder_server.core.content.answer_images import MAX_IMAGES, MAX_IMAGES_BYTES, AnswerImage, place_of
from wonder_server.core.json_types import JsonDict, JsonValue

_TOO_MANY: Final = (
    f"an answer may have {MAX_IMAGES} images of together {MAX_IMAGES_BYTES >> 20} MiB in base64"
)
_NO_CONTENT: Final = "the provider sent an address instead of the content"
MAX_OMITTED: Final = 100
"""Maximum number of images that are counted. A faulty provider could send empty ones without end."""


class GatheredImages:
    """The images that have arrived, and their positions in the text."""

    def __init__(self) -> None:
        self.found: list[AnswerImage] = []
        self._size = 0
        self._text_length = 0
        self._begins_part = False

    def after_text(self, text: str) -> str:
        """Return a piece of the answer's text; after an image that follows other text, with a line break
        before it."""
        if not text:
            return text
        if self._begins_part and self._text_length:
            text = f"\n{text}"
        self._begins_part = False
        self._text_length += len(text)
        return text

    def add(self, data: str, media_type: str) -> JsonDict:
        """Add an image of base64, and return its place in the provider's own message.

        An image that arrives twice is one image: events at the end of an answer repeat it.
        """
        for image in self.found:
            if data and image.data == data:
                return place_of(image)
        if len(self.found) >= MAX_IMAGES or self._size + len(data) > MAX_IMAGES_BYTES:
            return self._add("", media_type, _TOO_MANY)
        self._size += len(data)
        return self._add(data, media_type, "" if data else _NO_CONTENT)

    def add_url(self, url: JsonValue) -> JsonDict:
        """Add an image at a URL. Only URLs of the scheme ``data`` have a content."""
        head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
        media_type, semicolon, encoding = head.removeprefix("data:").partition(";")
        is_data = head.startswith("data:") and comma and semicolon and encoding.endswith("base64")
        return self.add(data, media_type) if is_data else self.add("", "")

    def _add(self, data: str, media_type: str, problem: str) -> JsonDict:
        if len(self.found) >= MAX_OMITTED:
            return place_of(self.found[-1])
        self._begins_part = True
        image = AnswerImage(
            number=len(self.found) + 1,
            data=data,
            media_type=clean_text(media_type)[:100],
            position=self._text_length,
            problem=problem,
        )
        self.found.append(image)
        return place_of(image)
