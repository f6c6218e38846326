"""Packed form of stored values: JSON, compressed with zstd and a dictionary that ships with the package.

A stored value is text (JSON as it is) or a *packed* blob::

    byte 0      the form: which dictionary packed it
    then        one zstd frame that states the size of its content

JSON begins with another byte, so a reader distinguishes both forms by the first byte. Both stay readable
permanently. A dictionary never changes: a better one gets the next number, and values say which they need.

Short values stay text, since a frame would be longer. Very long values stay text too: a reader then never
needs to allocate more than `MAX_BYTES` for a frame, whatever a damaged one claims. See
docs/adr/0031-packed-values.md.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import resources
from typing import Final

import zstandard

MIN_BYTES: Final = 96
"""Shorter values stay text. Their frames would be about as long and cost 3 µs each."""
MAX_BYTES: Final = 16 << 20
"""Longer values stay text. No payload is longer than 4 MiB; a value can hold several."""

_FORM: Final = 1
_LEVEL: Final = 3
_DICTIONARY: Final = "values-1.zdict"

Stored = str | bytes
"""A value as SQLite stores it: text, or a packed blob."""


def pack_all(values: Sequence[bytes]) -> list[Stored]:
    """Return the stored form of each value.

    One call for many values: zstandard releases the interpreter lock once for each call, and a busy event
    loop takes long to return it.
    """
    found: list[Stored] = []
    packable = [value for value in values if MIN_BYTES <= len(value) <= MAX_BYTES]
    frames = iter(_context().compress(packable) if packable else ())
    for value in values:
        if MIN_BYTES <= len(value) <= MAX_BYTES:
            frame = next(frames)
            found.append(frame if len(frame) < len(value) else value.decode())
        else:
            found.append(value.decode())
    return found


def unpack(stored: bytes) -> bytes:
    """Return the JSON of a stored value that was read as bytes. Raises ValueError if it is damaged."""
    if not is_packed(stored):
        return stored
    size = unpacked_size(stored)
    if size > MAX_BYTES:
        raise ValueError(f"a packed value of {size} bytes; the maximum is {MAX_BYTES}")
    try:
        return _context().decompress(stored[1:])
    except zstandard.ZstdError as failure:
        raise ValueError(f"a packed value cannot be unpacked: {failure}") from None


def is_packed(stored: bytes) -> bool:
    """Return True for a packed value, False for JSON."""
    return stored[:1] == _MARK


def unpacked_size(stored: bytes) -> int:
    """Return the size of the value's JSON without unpacking it. Raises ValueError if the frame does not
    state it."""
    if not is_packed(stored):
        return len(stored)
    try:
        size = int(zstandard.frame_content_size(stored[1:20]))
    except zstandard.ZstdError as failure:
        raise ValueError(f"a packed value has no frame: {failure}") from None
    if size < 0:
        raise ValueError("the frame of a packed value does not state its size")
    return size


_MARK: Final = bytes([_FORM])


class _Context:
    """The compressor and the decompressor of one thread: they are not thread-safe."""

    def __init__(self) -> None:
        dictionary = _dictionary()
        parameters = zstandard.ZstdCompressionParameters.from_level(
            # The first byte of the value names the dictionary, and rows have seals.
            _LEVEL, write_dict_id=False, write_checksum=False, write_content_size=True
        )  # fmt: skip
        self._compressor = zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters)
        self._decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)

    def compress(self, values: Sequence[bytes]) -> list[bytes]:
        frames = self._compressor.multi_compress_to_buffer([*values])
        return [_MARK + frames[index].tobytes() for index in range(len(frames))]

    def decompress(self, frame: bytes) -> bytes:
        return self._decompressor.decompress(frame, allow_extra_data=False)


def _context() -> _Context:
    """Return the context of this thread."""
    found: _Context | None = getattr(_local, "context", None)
    if found is None:
        found = _local.context = _Context()
    return found


def _dictionary() -> zstandard.ZstdCompressionDict:
    """Return the dictionary, prepared once for all threads."""
    global _prepared
    with _preparing:
        if _prepared is None:
            data = resources.files(__package__).joinpath(_DICTIONARY).read_bytes()
            _prepared = zstandard.ZstdCompressionDict(data)
            _prepared.precompute_compress(level=_LEVEL)
        return _prepared


_prepared: zstandard.ZstdCompressionDict | None = None
_preparing = threading.Lock()
_local = threading.local()
