"""Pages of a list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar


class PageRequest(Protocol):
    """A request for one page of a list."""

    page_token: str


class Page(Protocol):
    """One page of a list, with the token of the next one; "" for the last page."""

    next_page_token: str


Request = TypeVar("Request", bound=PageRequest)
Response = TypeVar("Response", bound=Page)


async def pages(
    list_page: Callable[[Request], Awaitable[Response]], request: Request
) -> AsyncIterator[Response]:
    """Yield the page that ``request`` names and those after it. The request changes."""
    while True:
        page = await list_page(request)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
