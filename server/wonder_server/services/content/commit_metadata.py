"""Author, message and idempotency key of commits. A commit keeps the key of its request."""

from __future__ import annotations

import hashlib
from typing import Final

from wonder_server.core.errors import Reason, error
from wonder_server.core.frozen import Value
from wonder_server.core.idempotency import IdempotencyKey
from wonder_server.ports.repositories import CommitMetadata

MAX_MESSAGE_BYTES: Final = 16 << 10
MAX_AUTHOR_BYTES: Final = 512


class CommitRequest(Value, frozen=True, kw_only=True):
    """Author, message and idempotency key of a requested commit."""

    author: str = ""
    message: str = ""
    idempotency_key: IdempotencyKey | None = None


ANONYMOUS: Final = CommitRequest()
"""A commit without author, message and idempotency key."""


def commit_metadata(request: CommitRequest, default_message: str = "") -> CommitMetadata:
    """Return the metadata of the commit that ``request`` asks for. Raises FIELD_INVALID if a text is too
    long."""
    author, message, key = request.author, request.message or default_message, request.idempotency_key
    for field, value, limit in (
        ("author", author, MAX_AUTHOR_BYTES),
        ("message", message, MAX_MESSAGE_BYTES),
    ):
        size = len(value.encode("utf-8", "replace"))
        if size > limit:
            raise error(
                Reason.FIELD_INVALID, f"{field} has {size} bytes; the maximum is {limit}.", field=field
            )
    if key is None:
        return CommitMetadata(author=author, message=message)
    digest = hashlib.blake2b(key.id.encode("utf-8", "replace"), digest_size=20).hexdigest()
    return CommitMetadata(author=author, message=message, key=digest, fingerprint=key.fingerprint)
