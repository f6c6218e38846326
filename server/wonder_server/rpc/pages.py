"""Pages that a client can take: grpc's own default lets no answer of more than 4 MiB through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from wonder_server.services.paging import page

T = TypeVar("T")
M = TypeVar("M", bound=Message)

PAGE_BYTES: Final = 3 << 20


def encoded_page(
    found: Sequence[T],
    limit: int,
    scope: Sequence[Any],
    cursor: Callable[[T], Any],
    encode: Callable[[T], M],
) -> tuple[list[M], str]:
    """As `paging.page`, encoded, with the next page's token. A page ends early, though not before its
    first item, rather than take more than `PAGE_BYTES`."""
    encoded: list[M] = []
    size = 0
    for item in found[:limit]:
        message = encode(item)
        size += message.ByteSize()
        if encoded and size > PAGE_BYTES:
            break
        encoded.append(message)
    return encoded, page(found, len(encoded), scope, cursor).next_page_token
