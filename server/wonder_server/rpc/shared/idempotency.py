"""Requests with a ``request_id``: recognised when they come again (AIP-155).

`once_of` reads the mark off a request. `Recent` remembers what became of the latest ones, for as long
as the server runs; where an effect must be single across restarts too, the store sees to it.
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
    without tokens stores the id as it is. FIELD_INVALID if the id is too long.
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
    # A name has no line break, so the first "/" ends it: "a/b" with "c" stays apart from "a" with "b/c".
    return f"{name.replace('/', chr(10))}/{request_id}" if name != ANONYMOUS else request_id


def idempotency_key(request: IdempotentRequest) -> IdempotencyKey | None:
    """The mark of a request that has a ``request_id``, None without. FIELD_INVALID if it is too long.

    The fingerprint covers who asks, what kind of request it is, and all that it says.
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
    """What became of the latest requests with a ``request_id``, each caller's by themselves.

    Bounded in number and in bytes: the oldest that are over are forgotten first, those still at work
    never.
    """

    def __init__(self, *, limit: int = 1_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()

    def find(self, key: IdempotencyKey) -> T | None:
        """What is kept for this request. REQUEST_ID_REUSED if its id came with another one."""
        entry = self._entries.get(key.request_id)
        if entry is None:
            return None
        if entry.fingerprint != key.fingerprint:
            raise error(
                Reason.REQUEST_ID_REUSED,
                "This request_id was used for another request; choose a new one.",
                field="request_id",
                request_id=key.request_id.partition("/")[2] if current_principal.get() else key.request_id,
            )
        return entry.value

    def check_capacity(self) -> None:
        """See that one more can be kept. LIMIT_EXCEEDED if all that are kept are still at work."""
        if len(self._entries) >= self._limit and not self._discard_oldest():
            raise error(
                Reason.LIMIT_EXCEEDED,
                f"{self._limit} requests with a request_id are being served; try again later.",
                retry_after_ms=1_000,
                limit=str(self._limit),
            )

    def reserve(self, key: IdempotencyKey, value: T) -> RequestSlot[T]:
        """Keep ``value`` for a request that begins. LIMIT_EXCEEDED as `make_room`."""
        self.check_capacity()
        self._entries[key.request_id] = _Entry(key.fingerprint, value)
        return RequestSlot(self, key.request_id)

    def complete(self, key: str, size: int) -> None:
        """The request is over; what is kept of it takes ``size`` bytes."""
        entry = self._entries[key]
        entry.size, entry.is_complete = size, True
        self._bytes += size
        while self._bytes > self._max_bytes and self._discard_oldest():
            pass

    def discard(self, key: str) -> None:
        """Nothing became of the request: it may be sent again."""
        self._bytes -= self._entries.pop(key).size

    def _discard_oldest(self) -> bool:
        oldest = next((key for key, entry in self._entries.items() if entry.is_complete), None)
        if oldest is not None:
            self.discard(oldest)
        return oldest is not None


@dataclass(frozen=True, slots=True)
class RequestSlot(Generic[T]):
    """The place of a request in `Recent`. Call one of the two, once."""

    requests: RecentRequests[T]
    key: str

    def complete(self, size: int = 0) -> None:
        """It is over, and remembered with so many bytes."""
        self.requests.complete(self.key, size)

    def discard(self) -> None:
        """It failed, and may be sent again."""
        self.requests.discard(self.key)
