"""Chunks of a message's text, for ReadMessage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wonder.v1 import conversation_service_pb2 as pb

CHUNK_BYTES: Final = 256 << 10


def message_chunks(text: str, offset: int) -> Iterator[pb.ReadMessageResponse]:
    """Yield the text from the first character that begins at ``offset`` bytes or later.

    At the end of the text the function yields one empty chunk, so that the client learns the size.
    """
    encoded = text.encode("utf-8", "replace")
    begin, size = _boundary_from(encoded, offset), len(encoded)
    while True:
        end = _boundary_before(encoded, begin + CHUNK_BYTES)
        yield pb.ReadMessageResponse(content=encoded[begin:end].decode(), offset=begin, size_bytes=size)
        begin = end
        if begin >= size:
            return


def _boundary_from(encoded: bytes, at: int) -> int:
    at = min(at, len(encoded))
    while at < len(encoded) and encoded[at] & 0xC0 == 0x80:
        at += 1
    return at


def _boundary_before(encoded: bytes, at: int) -> int:
    at = min(at, len(encoded))
    while at < len(encoded) and encoded[at] & 0xC0 == 0x80:
        at -= 1
    return at
