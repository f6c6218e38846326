"""Idempotent requests (feature B13): origin and key of a request, and the check against an earlier one.

A principal repeats a request under the same ``request_id``. The first execution stores its answer in the
transaction of its effect; a repetition returns that answer. A different request under the same id is refused.
Ids of two principals never meet: the stored key begins with the principal's name.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.core.identity import SERVER, AuditedCall, Principal


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a request: the principal, and the id with which the principal can repeat the request.

    ``request_id`` is "" for a request that cannot be repeated. ``fingerprint`` is a hash of principal, method
    and content; "" without a request id. ``call`` is what the audit says about the call; None if it says
    nothing.
    """

    principal: Principal
    request_id: str = ""
    fingerprint: str = ""
    call: AuditedCall | None = None


SERVER_ORIGIN: Final = Origin(SERVER)
"""Origin of the server's own work."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Key of an idempotent request: principal and request id, with a fingerprint of the request's content.

    ``scope`` is the range in which the id is unique: an actor's id, or a collection (``conversations``) for
    creations; "" for a whole store. ``caller`` is `Principal.caller`.
    """

    caller: str
    request_id: str
    fingerprint: str
    scope: str = ""
    sent: str = ""
    """`Origin.fingerprint` of the message as it was sent, "" if unknown. The same message repeats a request,
    also if a name in it now means something else, or nothing."""

    @property
    def id(self) -> str:
        """The stored id: ``caller/request_id``, and the id alone if the server cannot tell callers apart."""
        return self.qualified_id if self.caller else self.request_id

    @property
    def qualified_id(self) -> str:
        """The stored id in the catalog and the memory store: ``caller/request_id`` for every caller."""
        # A name has no line break, so the first "/" ends it: "a/b" with "c" differs from "a" with "b/c".
        return f"{self.caller.replace('/', chr(10))}/{self.request_id}"

    @property
    def earlier_id(self) -> str | None:
        """The id under which earlier versions stored a key of `own_key`, always with an empty fingerprint.
        None for the key of a client."""
        return self.qualified_id.removeprefix(_OWN) if self.caller.startswith(_OWN) else None


@dataclass(frozen=True, slots=True)
class CompletedRequest:
    """A completed request: the fingerprint of its content, and its answer."""

    fingerprint: str
    answer: dict[str, str]


SENT: Final = "sent"
"""Field of a stored answer of an actor: the fingerprint of the message, see `IdempotencyKey.sent`."""
_OWN: Final = "\r"
"""First character of the caller of the server's own work. The name of a token is part of one line, so it
contains no line break."""


def own_key(part: str, request_id: str) -> IdempotencyKey:
    """Return the key of work of the server's own ``part``, which differs from the keys of all clients. The id
    alone decides whether two requests are the same."""
    return IdempotencyKey(f"{_OWN}{part}", request_id, "")


def message_key(origin: Origin) -> IdempotencyKey | None:
    """Return the key of a request with the fingerprint of its whole message; None without a request id."""
    if not origin.request_id:
        return None
    return IdempotencyKey(origin.principal.caller, origin.request_id, origin.fingerprint)


def content_key(scope: str, origin: Origin, **content: object) -> IdempotencyKey | None:
    """Return the key of a request to an actor; None without a request id.

    ``content`` is the content that two requests with one id must share.
    """
    if not origin.request_id:
        return None
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return IdempotencyKey(origin.principal.caller, origin.request_id, digest, scope, origin.fingerprint)


def sent_key(scope: str, origin: Origin) -> IdempotencyKey | None:
    """Return a key that finds a request to an actor by its whole message, before anything is resolved; None
    without a request id or the message's fingerprint. Stores never keep it."""
    if not origin.request_id or not origin.fingerprint:
        return None
    return IdempotencyKey(origin.principal.caller, origin.request_id, "", scope, origin.fingerprint)


def check_replay(earlier: CompletedRequest | None, key: IdempotencyKey) -> dict[str, str] | None:
    """Return the stored answer of an earlier request with this key, or None. Raises REQUEST_ID_REUSED."""
    if earlier is None:
        return None
    if not is_same_message(earlier, key):
        check_fingerprint(earlier.fingerprint, key)
    return earlier.answer


def is_same_message(earlier: CompletedRequest, key: IdempotencyKey) -> bool:
    """Return True if the earlier request was sent as the same message. Answers of earlier versions do not
    know their messages."""
    return bool(key.sent) and earlier.answer.get(SENT) == key.sent


def with_sent(answer: dict[str, str], key: IdempotencyKey) -> dict[str, str]:
    """Return the answer as it is stored, with the fingerprint of its message if that is known."""
    return {**answer, SENT: key.sent} if key.sent else answer


def check_fingerprint(earlier: str, key: IdempotencyKey) -> None:
    """Raise REQUEST_ID_REUSED unless ``earlier`` is the fingerprint of this request."""
    if earlier != key.fingerprint:
        raise request_id_reused(key.request_id)


def request_id_reused(request_id: str = "") -> WonderError:
    """Return the error for a ``request_id`` that was used for a different request.

    ``request_id`` is the client's id if it is known. Stores know only the stored id.
    """
    subject = f"request_id '{request_id}'" if request_id else "This request_id"
    message = f"{subject} was used for a different request. Choose a new one."
    if request_id:
        return error(Reason.REQUEST_ID_REUSED, message, field="request_id", request_id=request_id)
    return error(Reason.REQUEST_ID_REUSED, message, field="request_id")
