"""Pages of lists, bounded in bytes. How many are under way at once, `rpc.calls` bounds.

grpc's own default lets no answer of more than 4 MiB through, and a page is in memory several times over
while it is made: as it is stored, as values, as a message, and encoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from wonder_server.rpc.shared.message_trimming import MAX_ITEM_BYTES, trim_message
from wonder_server.services.paging import Page, PageRequest, page

PAGE_BYTES: Final = 1 << 20
"""A page ends before it has more than this, as it is stored and as it is sent; a single item may be as large
as `fitting.ITEM_BYTES`."""
ITEM_OVERHEAD: Final = 8
"""The most bytes of an item's tag and length."""
SLICE_BYTES: Final = 64 << 10
SLICE_ITEMS: Final = 25
"""After so much of a page has been encoded, other work of the server has its turn."""

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class ListRequest(Protocol):
    """A list request of the contract."""

    @property
    def page_size(self) -> int: ...

    @property
    def page_token(self) -> str: ...


def page_request(request: ListRequest) -> PageRequest:
    """Return the page size and the page token of a list request."""
    return PageRequest(size=request.page_size, token=request.page_token)


async def page_from_rows(
    found: Sequence[T],
    limit: int,
    scope: Sequence[object],
    cursor: Callable[[T], object],
    encode: Callable[[T], M],
) -> tuple[list[M], str]:
    """As `paging.page`, encoded, with the next page's token. A page ends early, though not before its
    first item, rather than take more than `PAGE_BYTES`."""
    return await encode_page(page(found, limit, scope, cursor), encode)


async def encode_page(whole: Page[T], encode: Callable[[T], M]) -> tuple[list[M], str]:
    """Encode a page, as far as it goes into `PAGE_BYTES`; what is left comes on the next page."""
    messages: list[M] = []
    size = sliced = 0
    for item in whole.items:
        message = encode(item)
        trim_message(message, MAX_ITEM_BYTES)
        taken = message.ByteSize() + ITEM_OVERHEAD
        size += taken
        if messages and size > PAGE_BYTES:
            break
        messages.append(message)
        sliced += taken
        if sliced > SLICE_BYTES or len(messages) % SLICE_ITEMS == 0:
            sliced = 0
            await asyncio.sleep(0)
    return messages, whole.first(len(messages)).next_page_token
