"""Errors of calls, as one tree of exceptions.

::

    WonderError
     ├ InvalidArgumentError       a field is invalid: see ``field`` and ``violations``
     │  └ RequestError            the SDK rejected it before sending; also a TypeError and a ValueError
     ├ NotFoundError              the conversation, agent, definition … does not exist
     ├ AlreadyExistsError         the name is taken
     ├ AbortedError               a concurrent change: read again, then retry
     ├ FailedPreconditionError    the resource's state does not allow it
     ├ ResourceExhaustedError     a limit or budget is used up
     ├ UnauthenticatedError       the token is missing or unknown
     ├ PermissionDeniedError      the token lacks a scope
     ├ OutOfRangeError            a cursor is beyond the last event
     ├ CallCancelledError         the call was cancelled
     ├ DeadlineExceededError      the deadline has passed
     ├ UnavailableError           the server, a store or a model is not reachable now
     ├ UnimplementedError         this server does not have the feature
     ├ InternalError              an error of the server, or an invalid answer
     └ TurnFailedError            a turn failed; also an instance of the class of its reason
        └ TurnCancelledError      a turn was cancelled by another client

Branch by class or by ``reason``, never by message. The same errors come from a call's status (its one
``google.rpc.ErrorInfo``) and from a ``v1.Fault`` inside a stream, a turn or a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypedDict

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from wonder_sdk._proto.wonder import v1

CONNECT_SECONDS = 10.0
"""Time to wait for a connection that is neither made nor refused; a busy server can be slow to accept."""

_DETAILS = "grpc-status-details-bin"
_DOMAIN = "wonder.v1"
# With one of these keys in its metadata, STORAGE_UNAVAILABLE names what is damaged.
_DAMAGED = frozenset({"record", "object"})
# First words of gRPC's messages for a missing connection; the rest is for developers of gRPC.
_TIMED_OUT_TEXTS = ("imeout", "timed out", "FD Shutdown", "FD shutdown", "DEADLINE_EXCEEDED")
_CLOSED_TEXTS = ("Socket closed", "onnection reset", "handshake failed", "SSL")
_TLS_TEXTS = {
    "Hostname Verification Check failed": (
        "The certificate of {target} is for another name. Connect by a name or address that the "
        "certificate has."
    ),
    "CERTIFICATE_VERIFY_FAILED": (
        "The certificate of {target} is not signed by the certificate authority that WONDER_CA or tls_root "
        "names; without them, by none that this machine trusts."
    ),
    "Failed to create security handshaker": (
        "The certificate authority for {target} cannot be used. Check the PEM file that WONDER_CA or "
        "tls_root names."
    ),
}
_NOT_CONNECTED_TEXT = ("failed to connect to all addresses", "DNS resolution failed")
# The server's gRPC rejects a message above twice the server's limit before the server sees the request.
_TOO_LARGE = re.compile(r"^SERVER: .*message larger than max \((\d+) vs\. (\d+)\)")


@dataclass(frozen=True, slots=True)
class Violation:
    """A fault of one field: its path, and a sentence."""

    field: str
    description: str


class WonderError(Exception):
    """A call was rejected or has failed. ``str()`` is a sentence for users.

    ``reason`` is UNSPECIFIED for an error that is not from the server (a lost connection, a proxy), and for a
    reason that this SDK does not know. ``violations`` lists every fault of a request; ``field`` is that of
    the first. ``metadata`` has the keys that the reason documents. ``retry_after_ms`` is None if the delay is
    unknown. ``retriable`` is True if the same call may succeed when repeated.
    """

    status: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        reason: v1.ErrorReason = v1.ErrorReason.UNSPECIFIED,
        violations: Sequence[Violation] = (),
        metadata: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.violations = tuple(violations)
        self.metadata = dict(metadata or {})
        self.retry_after_ms = retry_after_ms

    @property
    def field(self) -> str:
        """Path of the invalid field; "" if no single field is at fault."""
        return self.violations[0].field if self.violations else ""

    @property
    def reason_name(self) -> str:
        """Name of the reason in the contract, such as ``AGENT_NOT_FOUND``; "" if unknown."""
        return self.reason.name if self.reason else ""

    @property
    def reports_damage(self) -> bool:
        """True if the metadata names a damaged record or object: to repeat the call does not help."""
        return self.reason is v1.ErrorReason.STORAGE_UNAVAILABLE and not _DAMAGED.isdisjoint(self.metadata)

    @property
    def retriable(self) -> bool:
        if self.reports_damage:
            return False
        return isinstance(self, UnavailableError | AbortedError) or self.retry_after_ms is not None


class InvalidArgumentError(WonderError):
    status = grpc.StatusCode.INVALID_ARGUMENT


class RequestError(InvalidArgumentError, TypeError, ValueError):
    """A value that a field of the contract cannot hold, rejected before sending. ``field`` is its path."""

    def __init__(self, message: str, field: str) -> None:
        violations = [Violation(field, message)] if field else []
        super().__init__(message, reason=v1.ErrorReason.FIELD_INVALID, violations=violations)


class NotFoundError(WonderError):
    status = grpc.StatusCode.NOT_FOUND


class AlreadyExistsError(WonderError):
    status = grpc.StatusCode.ALREADY_EXISTS


class AbortedError(WonderError):
    status = grpc.StatusCode.ABORTED


class FailedPreconditionError(WonderError):
    status = grpc.StatusCode.FAILED_PRECONDITION


class ResourceExhaustedError(WonderError):
    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnauthenticatedError(WonderError):
    status = grpc.StatusCode.UNAUTHENTICATED


class PermissionDeniedError(WonderError):
    status = grpc.StatusCode.PERMISSION_DENIED


class OutOfRangeError(WonderError):
    status = grpc.StatusCode.OUT_OF_RANGE


class CallCancelledError(WonderError):
    status = grpc.StatusCode.CANCELLED


class DeadlineExceededError(WonderError):
    status = grpc.StatusCode.DEADLINE_EXCEEDED


class UnavailableError(WonderError):
    """The server is not available.

    ``not_connected``: no connection was made, so the call had no effect. ``timed_out``: the server did not
    answer in time. ``connection_closed``: the server closed the connection at once, as happens if only one
    side uses TLS. ``is_untrusted``: a server listens, but its certificate was not accepted.
    """

    status = grpc.StatusCode.UNAVAILABLE
    not_connected = False
    timed_out = False
    connection_closed = False
    is_untrusted = False


class TurnFailedError(WonderError):
    """A turn has ended without completing. Raised after its last item.

    ``turn`` is the turn as it ended, ``turn_id`` its id. The error is also an instance of the class of its
    ``reason``: for an exhausted budget it is a ResourceExhaustedError too.
    """

    turn: v1.Turn
    turn_id = ""


class TurnCancelledError(TurnFailedError):
    """A turn was cancelled, and not by this client's `Reply.cancel`, `Reply.give_up` or `Chat.cancel`."""


class UnimplementedError(WonderError):
    status = grpc.StatusCode.UNIMPLEMENTED


class InternalError(WonderError):
    status = grpc.StatusCode.INTERNAL


BY_STATUS: dict[grpc.StatusCode, type[WonderError]] = {
    kind.status: kind
    for kind in (
        InvalidArgumentError, NotFoundError, AlreadyExistsError, AbortedError, FailedPreconditionError,
        ResourceExhaustedError, UnauthenticatedError, PermissionDeniedError, OutOfRangeError,
        CallCancelledError, DeadlineExceededError, UnavailableError, UnimplementedError, InternalError,
    )
}  # fmt: skip

# The contract numbers its reasons in blocks, one for each status. First number of each block:
_BLOCKS: tuple[tuple[int, type[WonderError]], ...] = (
    (1, InvalidArgumentError),
    (20, NotFoundError),
    (40, AlreadyExistsError),
    (50, AbortedError),
    (60, FailedPreconditionError),
    (80, ResourceExhaustedError),
    (100, UnauthenticatedError),
    (101, PermissionDeniedError),
    (110, OutOfRangeError),
    (120, CallCancelledError),
    (121, DeadlineExceededError),
    (140, FailedPreconditionError),
    (147, AbortedError),
    (148, FailedPreconditionError),
    (160, UnavailableError),
    (180, UnimplementedError),
    (200, InternalError),
)


def class_of(reason: v1.ErrorReason) -> type[WonderError]:
    """Return the exception class of a reason; InternalError for a reason that this SDK does not know."""
    if not _is_known(reason):
        return InternalError
    kinds = [kind for first, kind in _BLOCKS if first <= reason]
    return kinds[-1] if kinds else InternalError


def from_fault(fault: v1.Fault) -> WonderError:
    """Return the exception for an error that was received as data."""
    violations = [Violation(each.field, each.description) for each in fault.violations]
    if not violations and fault.field:
        violations = [Violation(fault.field, fault.message)]
    return class_of(fault.reason)(
        fault.message or "The server gave no reason.",
        reason=fault.reason if _is_known(fault.reason) else v1.ErrorReason.UNSPECIFIED,
        violations=violations,
        metadata=fault.metadata,
        retry_after_ms=fault.retry_after_ms,
    )


def from_turn(turn: v1.Turn) -> TurnFailedError:
    """Return the exception for a turn that failed or was cancelled."""
    is_cancelled = turn.status is v1.TurnStatus.CANCELLED
    reason = v1.ErrorReason.CANCELLED if is_cancelled else v1.ErrorReason.UNSPECIFIED
    message = "The turn was cancelled." if is_cancelled else "The turn failed; the server gave no reason."
    facts = from_fault(turn.error or v1.Fault(reason=reason, message=message))
    kind = _turn_class(TurnCancelledError if is_cancelled else TurnFailedError, type(facts))
    problem = kind(
        facts.message,
        reason=facts.reason,
        violations=facts.violations,
        metadata=facts.metadata,
        retry_after_ms=facts.retry_after_ms,
    )
    problem.turn, problem.turn_id = turn, turn.id
    return problem


def _turn_class(first: type[TurnFailedError], kind: type[WonderError]) -> type[TurnFailedError]:
    found = _TURN_CLASSES.get((first, kind))
    if found is None:
        found = type(first.__name__, (first, kind), {"__doc__": first.__doc__, "status": kind.status})
        _TURN_CLASSES[first, kind] = found
    return found


_TURN_CLASSES: dict[tuple[type[TurnFailedError], type[WonderError]], type[TurnFailedError]] = {}


class _Facts(TypedDict, total=False):
    """Arguments of an error, from the details of a status."""

    reason: v1.ErrorReason
    violations: Sequence[Violation]
    metadata: Mapping[str, str]
    retry_after_ms: int


_Detail: TypeAlias = error_details_pb2.ErrorInfo | error_details_pb2.BadRequest | error_details_pb2.RetryInfo


def from_rpc(problem: grpc.aio.AioRpcError, target: str = "") -> WonderError:
    """Return the exception for a call to ``target``, with its status and details."""
    kind = BY_STATUS.get(problem.code(), InternalError)
    facts: _Facts = {}
    for detail in _details(problem):
        match detail:
            case error_details_pb2.ErrorInfo(domain=domain) if domain == _DOMAIN:
                facts["reason"] = _reason(detail.reason)
                facts["metadata"] = dict(detail.metadata)
            case error_details_pb2.BadRequest():
                facts["violations"] = [Violation(f.field, f.description) for f in detail.field_violations]
            case error_details_pb2.RetryInfo():
                facts["retry_after_ms"] = detail.retry_delay.ToMilliseconds()
            case _:
                pass
    message = problem.details() or f"The call failed: {problem.code().name}."
    if kind is UnavailableError and message.startswith(_NOT_CONNECTED_TEXT):
        return _not_connected(message, target, facts)
    if kind is ResourceExhaustedError and (sizes := _TOO_LARGE.match(message)):
        size, limit = int(sizes[1]), int(sizes[2]) // 2
        message = (
            f"The request has {size} bytes; the maximum is {limit}. Split it, or raise the server's"
            " max_request_bytes."
        )
        facts = {"reason": v1.ErrorReason.PAYLOAD_TOO_LARGE, "metadata": {"limit": str(limit)}}
    return kind(message, **facts)


def _not_connected(message: str, target: str, facts: _Facts) -> UnavailableError:
    """Return the error of a call without a connection. ``message`` is gRPC's."""
    untrusted = next((text for words, text in _TLS_TEXTS.items() if words in message), "")
    timed_out = not untrusted and any(word in message for word in _TIMED_OUT_TEXTS)
    closed = not untrusted and not timed_out and any(word in message for word in _CLOSED_TEXTS)
    what = f"no server answers at {target}; start one with: wonder serve"
    if untrusted:
        what = untrusted.format(target=target)
    elif timed_out:
        what = f"{target} did not answer within {CONNECT_SECONDS:g} s; it may be very busy, or be no server"
    elif closed:
        what = f"{target} hangs up at once; one side may encrypt while the other does not"
    unavailable = UnavailableError(what, **facts)
    unavailable.not_connected, unavailable.timed_out = True, timed_out
    unavailable.connection_closed, unavailable.is_untrusted = closed, bool(untrusted)
    return unavailable


def _is_known(reason: v1.ErrorReason) -> bool:
    # An unknown number still gives an enum value, without a name.
    return reason in v1.ErrorReason.__members__.values()


def _reason(name: str) -> v1.ErrorReason:
    try:
        return v1.ErrorReason[name]
    except KeyError:
        return v1.ErrorReason.UNSPECIFIED


def _details(problem: grpc.aio.AioRpcError) -> Iterator[_Detail]:
    for key, value in problem.trailing_metadata() or ():
        if key == _DETAILS and isinstance(value, bytes):
            try:
                yield from _unpacked(status_pb2.Status.FromString(value))
            except DecodeError:  # Unreadable details are ignored.
                return


def _unpacked(status: status_pb2.Status) -> Iterator[_Detail]:
    kinds = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
    for packed in status.details:
        for kind in kinds:
            detail = kind()
            if packed.Unpack(detail):
                yield detail
