"""Origins and idempotency keys of the requests of the current call (AIP-155)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final, Protocol

from wonder_server.core.errors import Reason, error
from wonder_server.core.idempotency import IdempotencyKey, Origin, message_key
from wonder_server.core.identity import AuditedCall
from wonder_server.rpc.shared.call_context import CallContext
from wonder_server.rpc.shared.principal import current_caller, current_principal
from wonder_server.rpc.shared.trace_context import trace_from_metadata

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


def call_origin(request_id: str) -> Origin:
    """Return the origin of a request of the current call to an actor. Raises FIELD_INVALID if the id is too
    long."""
    return Origin(current_principal.get(), _checked(request_id))


def message_origin(request: IdempotentRequest) -> Origin:
    """Return the origin of a request whose whole message must be repeated under its id.

    The fingerprint covers the caller, the request's type and its content. Raises FIELD_INVALID if the id is
    too long.
    """
    principal = current_principal.get()
    if not _checked(request.request_id):
        return Origin(principal)
    digest = hashlib.blake2b(digest_size=16)
    for part in (principal.caller.encode(), request.DESCRIPTOR.full_name.encode()):
        digest.update(len(part).to_bytes(4, "big") + part)
    digest.update(request.SerializeToString(deterministic=True))
    return Origin(principal, request.request_id, digest.hexdigest())


def audited_origin(request: IdempotentRequest, method: str, context: CallContext) -> Origin:
    """Return `message_origin` with the facts about the call for the audit. ``method`` is its name."""
    return replace(message_origin(request), call=audited_call(method, context))


def audited_call(method: str, context: CallContext) -> AuditedCall:
    """Return the facts about a call for the audit."""
    caller = current_caller.get()
    key_id = caller.key.id if caller is not None and caller.key is not None else ""
    trace_id = trace_from_metadata(context)
    return AuditedCall(method=method, key_id=key_id, peer=context.peer(), trace_id=trace_id)


def idempotency_key(request: IdempotentRequest) -> IdempotencyKey | None:
    """Return the key of a request with a ``request_id``, or None without one; see `message_origin`."""
    return message_key(message_origin(request))


def _checked(request_id: str) -> str:
    size = len(request_id.encode("utf-8", "surrogatepass"))
    if size > MAX_REQUEST_ID_BYTES:
        raise error(
            Reason.FIELD_INVALID,
            f"request_id has {size} bytes; the maximum is {MAX_REQUEST_ID_BYTES}.",
            field="request_id",
        )
    return request_id
