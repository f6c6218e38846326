"""Idempotency keys of requests with a ``request_id``, and the requests that the server remembers (AIP-155).

`idempotency_key` derives the key from a request. `RecentRequests` keeps the results of the latest requests
while the server runs. Effects that must happen once across restarts too are deduplicated by the store.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from wonder_server.core.errors import Reason, error
from wonder_server.rpc.shared.principal import ANONYMOUS, current_principal
from wonder_server.services.catalog.transactions import IdempotencyKey

T = TypeVar("T")

MAX_REQUEST_ID_BYTES: Final = 128


class MessageType(Protocol):
    """The descriptor of a message type."""

    @property
    def full_name(self) -> str: ...


class IdempotentRequest(Protocol):
    """A request message of the contract that has a ``request_id``."""

    @property
    def request_id(self) -> str: ...

    @property
    def DESCRIPTOR(self) -> MessageType: ...

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...


def request_key(request_id: str) -> str:
    """Return the key under which the server stores the current caller's ``request_id``; "" for an empty id.

    The key begins with the name of the caller's token, so equal ids of two callers are two requests. A server
    without tokens stores the id unchanged. Raises FIELD_INVALID if the id is too long.
    """
    if not request_id:
        return ""
    size = len(request_id.encode("utf-8", "surrogatepass"))
    if size > MAX_REQUEST_ID_BYTES:
        raise error(
            Reason.FIELD_INVALID,
            f"request_id has {size} bytes; the maximum is {MAX_REQUEST_ID_BYTES}.",
            field="request_id",
        )
    name = current_principal.get()
    # A name has no line break, so the first "/" ends it: "a/b" with "c" differs from "a" with "b/c".
    return f"{name.replace('/', chr(10))}/{request_id}" if name != ANONYMOUS else request_id


def idempotency_key(request: IdempotentRequest) -> IdempotencyKey | None:
    """Return the key of a request with a ``request_id``, or None without one.

    The fingerprint covers the caller, the request's type and its content. Raises FIELD_INVALID if the id is
    too long.
    """
    if not (key := request_key(request.request_id)):
        return None
    digest = hashlib.blake2b(digest_size=16)
    for part in (current_principal.get().encode(), request.DESCRIPTOR.full_name.encode()):
        digest.update(len(part).to_bytes(4, "big") + part)
    digest.update(request.SerializeToString(deterministic=True))
    return IdempotencyKey(key, digest.hexdigest())


@dataclass(slots=True)
class _Entry(Generic[T]):
    fingerprint: str
    value: T
    size: int = 0
    is_complete: bool = False


class RecentRequests(Generic[T]):
    """Results of the latest requests with a ``request_id``, separate for each caller.

    The number and the total size are limited. Above a limit the oldest completed requests are discarded
    first; running requests are never discarded.
    """

    def __init__(self, *, limit: int = 1_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()

    def find(self, key: IdempotencyKey) -> T | None:
        """Return the value of an earlier request with this key, or None.

        Raises REQUEST_ID_REUSED if another request used the id.
        """
        entry = self._entries.get(key.request_id)
        if entry is None:
            return None
        if entry.fingerprint != key.fingerprint:
            raise error(
                Reason.REQUEST_ID_REUSED,
                f"request_id '{_without_caller(key)}' was used for another request. Choose a new one.",
                field="request_id",
                request_id=_without_caller(key),
            )
        return entry.value

    def check_capacity(self) -> None:
        """Make space for one more request. Raises LIMIT_EXCEEDED if every stored request is still running."""
        if len(self._entries) >= self._limit and not self._discard_oldest():
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"{self._limit} requests with a request_id are being served; try again later.",
                retry_after_ms=1_000,
                limit=str(self._limit),
            )

    def reserve(self, key: IdempotencyKey, value: T) -> RequestSlot[T]:
        """Store ``value`` for a request that starts. Raises LIMIT_EXCEEDED as `check_capacity`."""
        self.check_capacity()
        self._entries[key.request_id] = _Entry(key.fingerprint, value)
        return RequestSlot(self, key.request_id)

    def complete(self, key: str, size: int) -> None:
        """Mark the request as completed, with a result of ``size`` bytes."""
        entry = self._entries[key]
        entry.size, entry.is_complete = size, True
        self._bytes += size
        while self._bytes > self._max_bytes and self._discard_oldest():
            pass

    def discard(self, key: str) -> None:
        """Remove a request, so that it can be sent again."""
        self._bytes -= self._entries.pop(key).size

    def _discard_oldest(self) -> bool:
        oldest = next((key for key, entry in self._entries.items() if entry.is_complete), None)
        if oldest is not None:
            self.discard(oldest)
        return oldest is not None


def _without_caller(key: IdempotencyKey) -> str:
    return key.request_id.partition("/")[2] if current_principal.get() else key.request_id


@dataclass(frozen=True, slots=True)
class RequestSlot(Generic[T]):
    """The entry of one request in `RecentRequests`. Call `complete` or `discard`, once."""

    requests: RecentRequests[T]
    key: str

    def complete(self, size: int = 0) -> None:
        """Mark the request as completed, with a result of ``size`` bytes."""
        self.requests.complete(self.key, size)

    def discard(self) -> None:
        """Remove the failed request, so that it can be sent again."""
        self.requests.discard(self.key)
