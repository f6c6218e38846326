"""Codec of faults inside streams and of failed resources.

A rejected call carries its fault as a gRPC status instead; see `rpc.server.error_codes`.
"""

from __future__ import annotations

from wonder.v1 import errors_pb2
from wonder_server.core.errors import Fault, Reason

_PREFIX = "ERROR_REASON_"


def fault_to_proto(fault: Fault) -> errors_pb2.Fault:
    """Encode a fault."""
    message = errors_pb2.Fault(
        reason=f"{_PREFIX}{fault.reason.value}",
        message=_sendable(fault.message),
        field=_sendable(fault.field),
        metadata={_sendable(key): _sendable(value) for key, value in fault.metadata.items()},
        retriable=fault.transient,
    )
    if fault.retry_after_ms is not None:
        message.retry_after_ms = fault.retry_after_ms
    return message


def fault_from_proto(message: errors_pb2.Fault) -> Fault:
    """Decode the fault that a client or worker reports.

    A reason that this server does not know becomes INTERNAL, as the contract requires of every reader.
    """
    return Fault(
        reason=_reason(message.reason),
        message=message.message,
        field=message.field,
        metadata=dict(message.metadata),
        transient=message.retriable,
        retry_after_ms=message.retry_after_ms if message.HasField("retry_after_ms") else None,
    )


def _reason(number: int) -> Reason:
    value = errors_pb2.ErrorReason.DESCRIPTOR.values_by_number.get(number)
    name = value.name.removeprefix(_PREFIX) if value is not None else ""
    return Reason[name] if name in Reason.__members__ else Reason.INTERNAL


def _sendable(text: str) -> str:
    """Replace the characters of ``text`` that UTF-8 cannot encode: a fault must always be deliverable."""
    return text.encode("utf-8", "replace").decode()
