"""Pages of lists: sizes, and tokens that are valid only for the list that issued them (AIP-158)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from wonder_server.core.errors import Reason, error
from wonder_server.core.json_types import JsonValue
from wonder_server.ports.records import is_truncated

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 500

T = TypeVar("T")

JsonArray: TypeAlias = Sequence[JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of items and the token of the next page, which is empty on the last page."""

    items: tuple[T, ...]
    next_page_token: str = ""
    token_after: Callable[[int], str] = field(default=lambda _: "", compare=False, repr=False)
    """Returns the token of the page that follows the first so many items."""

    def first(self, count: int) -> Page[T]:
        """Return a page with only the first ``count`` items. Its token continues after them."""
        if count >= len(self.items):
            return self
        return Page(items=self.items[:count], next_page_token=self.token_after(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """The page that a client requests. ``size`` 0 means `DEFAULT_PAGE_SIZE`; larger sizes than
    `MAX_PAGE_SIZE` mean `MAX_PAGE_SIZE`."""

    size: int = 0
    token: str = ""

    def limit(self) -> int:
        """Return the maximum number of items. Raises FIELD_INVALID for a negative size."""
        if self.size < 0:
            raise error(
                Reason.FIELD_INVALID,
                f"page_size is {self.size}; use 0 to {MAX_PAGE_SIZE}.",
                field="page_size",
            )
        return min(self.size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)

    def cursor(self, scope: JsonArray, start: JsonValue) -> JsonValue:
        """Return the cursor of the token; ``start`` without a token.

        ``scope`` contains everything that determines the list. Raises PAGE_TOKEN_INVALID for a token of
        another list."""
        if not self.token:
            return start
        try:
            padded = self.token + "=" * (-len(self.token) % 4)
            fingerprint, cursor = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        except (ValueError, TypeError, RecursionError):
            fingerprint, cursor = "", None
        if fingerprint != _fingerprint(scope) or type(cursor) is not type(start):
            raise error(
                Reason.PAGE_TOKEN_INVALID,
                "page_token is not valid for this list. Use the next_page_token of the previous page, with "
                "the same filters.",
                field="page_token",
            )
        return cursor


def page(found: Sequence[T], limit: int, scope: JsonArray, cursor: Callable[[T], JsonValue]) -> Page[T]:
    """Return the first ``limit`` items as a page. ``found`` has one item more, or is truncated, if there is a
    next page."""
    items = tuple(found[:limit])
    more = bool(items) and (len(found) > limit or is_truncated(found))
    return page_until(items, cursor(items[-1]) if more else None, scope, cursor)


def page_until(
    items: Sequence[T], end: JsonValue, scope: JsonArray, cursor: Callable[[T], JsonValue]
) -> Page[T]:
    """Return the items as a page. The next page begins after the cursor ``end``, which may be beyond the last
    item; None if there is no next page."""

    def token_after(count: int) -> str:
        return _token(scope, cursor(items[count - 1]))

    token = "" if end is None else _token(scope, end)
    return Page(items=tuple(items), next_page_token=token, token_after=token_after)


def _token(scope: JsonArray, cursor: JsonValue) -> str:
    token = json.dumps([_fingerprint(scope), cursor], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _fingerprint(scope: JsonArray) -> str:
    return hashlib.blake2b(json.dumps(scope, sort_keys=True).encode(), digest_size=8).hexdigest()
