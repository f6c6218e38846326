"""Idempotent requests (feature B13): the identity of a request, and the check against an earlier one.

A client repeats a request under the same ``request_id``. The first execution stores its answer; a repetition
returns that answer. A different request under the same id is refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from wonder_server.core.errors import Reason, error


@dataclass(frozen=True, slots=True)
class Request:
    """A client's ``request_id`` and a fingerprint of the request's content.

    ``scope`` is the range in which the id is unique: an actor's id, or a collection (``conversations``) for
    creations.
    """

    scope: str
    id: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class CompletedRequest:
    """A completed request: the fingerprint of its content, and its answer."""

    fingerprint: str
    answer: dict[str, str]


def request_identity(scope: str, request_id: str, **content: object) -> Request | None:
    """Return the identity of a request; None if the client gave it no id.

    ``request_id`` is the key that rpc makes from the client's id and the caller's name. ``content`` is the
    content that two requests with one id must share.
    """
    if not request_id:
        return None
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Request(scope, request_id, digest)


def check_replay(earlier: CompletedRequest | None, request: Request) -> dict[str, str] | None:
    """Return the stored answer of an earlier request with this id, or None. Raises REQUEST_ID_REUSED."""
    if earlier is not None and earlier.fingerprint != request.fingerprint:
        raise error(
            Reason.REQUEST_ID_REUSED,
            "This request_id was used before for a different request. Use a new one.",
            field="request_id",
        )
    return None if earlier is None else earlier.answer
