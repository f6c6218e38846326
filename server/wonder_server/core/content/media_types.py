"""Media types of files: what content shows about its type, and the kind of part that a file is. Pure.

The beginning of a file shows its type if the type has a signature. A file whose declared type differs from
what its content shows is rejected: a program that trusts the declaration would read it as something else.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.printable import printable

HEAD_BYTES: Final = 1024
"""Bytes at the beginning in which PDF readers look for the signature. Others are at the very start."""

PNG, JPEG, GIF, WEBP = "image/png", "image/jpeg", "image/gif", "image/webp"
PDF, PLAIN_TEXT, JSON = "application/pdf", "text/plain", "application/json"

IMAGES: Final = (PNG, JPEG, GIF, WEBP)

EXTENSIONS: Final = {PNG: "png", JPEG: "jpg", GIF: "gif", WEBP: "webp", PDF: "pdf"}
"""The usual end of the name of a file of each type with a signature."""

_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}")
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"\xff\xd8\xff", JPEG),
    (b"GIF87a", GIF),
    (b"GIF89a", GIF),
)


def signature_type(head: bytes) -> str:
    """Return the media type that the first `HEAD_BYTES` of a content show by a signature; "" without one."""
    for signature, media_type in _SIGNATURES:
        if head.startswith(signature):
            return media_type
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return WEBP
    return PDF if b"%PDF-" in head[:HEAD_BYTES] and not _is_text_start(head) else ""


def _is_text_start(head: bytes) -> bool:
    """Return True if a text that mentions the signature of PDF precedes it."""
    before = head[: head.index(b"%PDF-")]
    return bool(before.strip(b"\xef\xbb\xbf \t\r\n\x00"))


def is_text(media_type: str) -> bool:
    """Return True if content of this type is UTF-8 text."""
    return media_type.startswith("text/") or media_type == JSON or media_type.endswith("+json")


def part_type(media_type: str) -> str:
    """Return the type of the part that a file of this type is: ``image`` or ``file``."""
    return "image" if media_type in IMAGES else "file"


def is_media_type(text: str) -> bool:
    """Return True for a media type in lower case without parameters."""
    return _TYPE.fullmatch(text) is not None


def normalized(media_type: str) -> str:
    """Return a media type in lower case without parameters. Raises FIELD_INVALID for another text."""
    found = media_type.partition(";")[0].strip(" ").lower()
    if not _TYPE.fullmatch(found) or not media_type.isprintable():
        raise error(
            Reason.FIELD_INVALID,
            f"'{printable(media_type, 100)}' is not a media type. Use a type such as image/png.",
            field="media_type",
        )
    return found


class TypeCheck:
    """The check of one content against its declared type, piece by piece."""

    def __init__(self, declared: str, accepted: frozenset[str]) -> None:
        """``declared`` is a `normalized` type; "" finds the type in the content. Raises FIELD_INVALID for a
        type that is not ``accepted``."""
        self._declared = declared
        self._accepted = accepted
        self._head = bytearray()
        self._found: str | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._is_text = True
        if declared:
            self._require_accepted(declared)

    def feed(self, piece: bytes) -> None:
        """Check the next piece. Raises FIELD_INVALID once the content shows another type."""
        if self._found is None:
            self._head += piece[: HEAD_BYTES - len(self._head)]
            if len(self._head) >= HEAD_BYTES:
                self._check_head()
        if self._is_text:
            self._decode(piece, final=False)

    def finish(self) -> str:
        """Return the media type of the whole content. Raises FIELD_INVALID."""
        if self._found is None:
            self._check_head()
        if self._is_text:
            self._decode(b"", final=True)
        media_type = self._declared or self._found or (PLAIN_TEXT if self._is_text else "")
        if not media_type:
            raise error(
                Reason.FIELD_INVALID,
                "The content shows no type that the server knows. Set media_type.",
                field="media_type",
            )
        self._require_accepted(media_type)
        return media_type

    def _check_head(self) -> None:
        self._found = signature_type(bytes(self._head))
        declared = self._declared
        if declared and self._found != declared and (self._found or declared in EXTENSIONS):
            raise _mismatch(declared, self._found)

    def _decode(self, piece: bytes, *, final: bool) -> None:
        try:
            text = self._decoder.decode(piece, final)
        except UnicodeDecodeError:
            text = "\x00"
        if "\x00" in text:
            self._is_text = False
            if is_text(self._declared):
                raise _mismatch(self._declared, "", "it is not UTF-8 text")

    def _require_accepted(self, media_type: str) -> None:
        if media_type not in self._accepted:
            raise error(
                Reason.FIELD_INVALID,
                f"The server accepts no files of the type {media_type}. It accepts"
                f" {', '.join(sorted(self._accepted))}; the operator sets file_media_types.",
                field="media_type",
            )


def _mismatch(declared: str, found: str, problem: str = "") -> WonderError:
    shown = problem or (f"it is {found}" if found else "its beginning is not that of this type")
    return error(
        Reason.FIELD_INVALID,
        f"The declared type {declared} is not that of the content: {shown}. Declare the type of the content.",
        field="media_type",
    )
