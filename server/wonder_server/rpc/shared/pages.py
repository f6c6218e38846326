"""Pages of lists, limited in bytes. `rpc.server.call_slots` limits the number of pages built at once.

gRPC clients refuse answers above 4 MiB by default, and the server holds a page several times while it builds
it: as stored bytes, as values, as a message, and encoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from wonder_server.rpc.shared.message_trimming import MAX_ITEM_BYTES, trim_message
from wonder_server.services.paging import Page, PageRequest, page

PAGE_BYTES: Final = 1 << 20
"""Size limit of a page, both stored and sent. A single item may have `message_trimming.MAX_ITEM_BYTES`."""
ITEM_OVERHEAD: Final = 8
"""Maximum size of an item's tag and length."""
SLICE_BYTES: Final = 64 << 10
SLICE_ITEMS: Final = 25
"""Part of a page after which its encoding yields to other tasks of the event loop."""

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
    """Build a page as `paging.page`, encode it, and return it with the next page's token.

    A page ends before it exceeds `PAGE_BYTES`, but has at least one item.
    """
    return await encode_page(page(found, limit, scope, cursor), encode)


async def encode_page(whole: Page[T], encode: Callable[[T], M]) -> tuple[list[M], str]:
    """Encode the items of a page up to `PAGE_BYTES`; the next page continues with the rest."""
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
