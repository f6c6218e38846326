"""Pages of lists: sizes, and tokens that only fit the list they were made for (AIP-158)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from wonder_server.core.errors import Reason, error
from wonder_server.ports.records import is_truncated

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page and the token of the next; empty on the last."""

    items: tuple[T, ...]
    next_page_token: str = ""
    token_after: Callable[[int], str] = field(default=lambda _: "", compare=False, repr=False)
    """The token of a page that begins behind so many of the items."""

    def first(self, count: int) -> Page[T]:
        """Return the page that has only the first ``count`` of the items; the others come on the next."""
        if count >= len(self.items):
            return self
        return Page(items=self.items[:count], next_page_token=self.token_after(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What a client asks for. ``size`` 0 is the default; more than `MAX_PAGE` is `MAX_PAGE`."""

    size: int = 0
    token: str = ""

    def limit(self) -> int:
        """How many to answer. FIELD_INVALID if negative."""
        if self.size < 0:
            raise error(Reason.FIELD_INVALID, "page_size must not be negative.", field="page_size")
        return min(self.size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)

    def cursor(self, scope: Sequence[Any], start: Any) -> Any:
        """Where the page begins: ``start``, or what the token says.

        ``scope`` is all that shapes the list; PAGE_TOKEN_INVALID for a token of another list.
        """
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
                "Give the next_page_token of an earlier answer, with the same filters.",
                field="page_token",
            )
        return cursor


def page(found: Sequence[T], limit: int, scope: Sequence[Any], cursor: Callable[[T], Any]) -> Page[T]:
    """The first ``limit`` of ``found``, which holds one more if there is a next page, or `is_cut`."""
    items = tuple(found[:limit])

    def token_after(count: int) -> str:
        token = json.dumps([_fingerprint(scope), cursor(items[count - 1])], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(token).decode().rstrip("=")

    more = bool(items) and (len(found) > limit or is_truncated(found))
    return Page(items=items, next_page_token=token_after(len(items)) if more else "", token_after=token_after)


def _fingerprint(scope: Sequence[Any]) -> str:
    return hashlib.blake2b(json.dumps(scope, sort_keys=True).encode(), digest_size=8).hexdigest()
