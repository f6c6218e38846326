"""The table of the gRPC status code of each `Reason`, and the details of a status.

Every error has one ``ErrorInfo``, a ``BadRequest`` if it names fields, and a ``RetryInfo`` if the client can
retry after a delay (AIP-193). Messages are written for clients: a status never contains the text of an
unexpected exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode

from wonder_server.core.errors import Fault, Reason, WonderError

DOMAIN: Final = "wonder.v1"
DETAILS_KEY: Final = "grpc-status-details-bin"

# Trailing metadata is limited to 8 KiB, base64 adds a third, and the message is sent twice. Above the limit
# a client would see a broken call instead of the error.
_MESSAGE_BYTES: Final = 600
_DETAILS_BYTES: Final = 3_000

STATUS: Final[dict[Reason, StatusCode]] = {
    Reason.MALFORMED_REQUEST: StatusCode.INVALID_ARGUMENT,
    Reason.FIELD_INVALID: StatusCode.INVALID_ARGUMENT,
    Reason.FIELD_MASK_UNSUPPORTED: StatusCode.INVALID_ARGUMENT,
    Reason.PAGE_TOKEN_INVALID: StatusCode.INVALID_ARGUMENT,
    Reason.PAYLOAD_TOO_DEEP: StatusCode.INVALID_ARGUMENT,
    Reason.NUMBER_OUT_OF_RANGE: StatusCode.INVALID_ARGUMENT,
    Reason.REQUEST_ID_REUSED: StatusCode.INVALID_ARGUMENT,
    Reason.DEFINITION_INVALID: StatusCode.INVALID_ARGUMENT,
    Reason.INPUT_INVALID: StatusCode.INVALID_ARGUMENT,
    Reason.CONVERSATION_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.TURN_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.MESSAGE_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.AGENT_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.PROJECT_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.LIBRARY_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.DEFINITION_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.MEMORY_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.RUN_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.GATE_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.ARTIFACT_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.FILE_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.TENANT_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.PRINCIPAL_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.KEY_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.ROLE_BINDING_NOT_FOUND: StatusCode.NOT_FOUND,
    Reason.ALREADY_EXISTS: StatusCode.ALREADY_EXISTS,
    Reason.ETAG_MISMATCH: StatusCode.ABORTED,
    Reason.MERGE_CONFLICT: StatusCode.ABORTED,
    Reason.CONVERSATION_NOT_ACTIVE: StatusCode.FAILED_PRECONDITION,
    Reason.TURN_NOT_ACTIVE: StatusCode.FAILED_PRECONDITION,
    Reason.RUN_NOT_ACTIVE: StatusCode.FAILED_PRECONDITION,
    Reason.NOT_ATTACHED: StatusCode.FAILED_PRECONDITION,
    Reason.NO_AGENT: StatusCode.FAILED_PRECONDITION,
    Reason.RESOURCE_IN_USE: StatusCode.FAILED_PRECONDITION,
    Reason.GATE_RESOLVED: StatusCode.FAILED_PRECONDITION,
    Reason.SANDBOX_UNAVAILABLE: StatusCode.FAILED_PRECONDITION,
    Reason.LIMIT_EXCEEDED: StatusCode.RESOURCE_EXHAUSTED,
    Reason.PAYLOAD_TOO_LARGE: StatusCode.RESOURCE_EXHAUSTED,
    Reason.SLOW_READER: StatusCode.RESOURCE_EXHAUSTED,
    Reason.MAX_MOVES_REACHED: StatusCode.RESOURCE_EXHAUSTED,
    Reason.BUDGET_EXHAUSTED: StatusCode.RESOURCE_EXHAUSTED,
    Reason.COST_UNKNOWN: StatusCode.RESOURCE_EXHAUSTED,
    Reason.UNAUTHENTICATED: StatusCode.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: StatusCode.PERMISSION_DENIED,
    Reason.CURSOR_OUT_OF_RANGE: StatusCode.OUT_OF_RANGE,
    Reason.CANCELLED: StatusCode.CANCELLED,
    Reason.TIMEOUT: StatusCode.DEADLINE_EXCEEDED,
    Reason.CONTEXT_ASSEMBLY_FAILED: StatusCode.FAILED_PRECONDITION,
    Reason.MEMORY_EXTRACTION_FAILED: StatusCode.FAILED_PRECONDITION,
    Reason.AGENT_DECLINED: StatusCode.FAILED_PRECONDITION,
    Reason.MODEL_FAILED: StatusCode.FAILED_PRECONDITION,
    Reason.TASK_FAILED: StatusCode.FAILED_PRECONDITION,
    Reason.RUN_FAILED: StatusCode.FAILED_PRECONDITION,
    Reason.ASSERTION_FAILED: StatusCode.FAILED_PRECONDITION,
    Reason.EXPRESSION_FAILED: StatusCode.FAILED_PRECONDITION,
    Reason.OUTPUT_INVALID: StatusCode.FAILED_PRECONDITION,
    # The effect may have happened: the caller must check before it tries again.
    Reason.OUTCOME_UNKNOWN: StatusCode.ABORTED,
    Reason.SERVER_DRAINING: StatusCode.UNAVAILABLE,
    Reason.OWNER_MOVED: StatusCode.UNAVAILABLE,
    Reason.STORAGE_UNAVAILABLE: StatusCode.UNAVAILABLE,
    Reason.MODEL_UNAVAILABLE: StatusCode.UNAVAILABLE,
    Reason.NOT_IMPLEMENTED: StatusCode.UNIMPLEMENTED,
    Reason.INTERNAL: StatusCode.INTERNAL,
}


@dataclass(frozen=True, slots=True)
class RpcStatus:
    """A fault as a gRPC status: code, message, and the serialized ``google.rpc.Status``."""

    code: StatusCode
    message: str
    details: bytes

    @property
    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        """The trailing metadata that carries the details."""
        return ((DETAILS_KEY, self.details),)


def to_rpc_status(problem: WonderError) -> RpcStatus:
    """Return the status for ``problem``, with as many of its violations as fit."""
    fault = problem.fault
    code = STATUS[fault.reason]
    message = _clip(fault.message, _MESSAGE_BYTES)
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in _details(fault, problem.faults):
        if status.ByteSize() + detail.ByteSize() > _DETAILS_BYTES:
            continue
        status.details.append(_pack(detail))
    return RpcStatus(code, message, status.SerializeToString())


def _details(fault: Fault, faults: Sequence[Fault]) -> list[Message]:
    remaining_bytes = _DETAILS_BYTES - 1_200  # The message and the ErrorInfo take up to 1,200 bytes.
    details: list[Message] = [_error_info(fault)]
    violations = []
    for each in faults:
        if each.field and remaining_bytes > 0:
            violation = error_details_pb2.BadRequest.FieldViolation(
                field=_clip(each.field, 300),
                description=_clip(each.message, 300),
                reason=each.reason.value,
            )
            remaining_bytes -= violation.ByteSize() + 4
            violations.append(violation)
    if violations and remaining_bytes <= 0 and len(violations) > 1:
        violations.pop()
    if violations:
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    if fault.retry_after_ms is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(fault.retry_after_ms)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return details


def _error_info(fault: Fault) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo(reason=fault.reason.value, domain=DOMAIN)
    for key, value in fault.metadata.items():
        if info.ByteSize() < 400:
            info.metadata[_clip(key, 64)] = _clip(value, 128)
    return info


def _pack(detail: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _clip(text: str, limit: int) -> str:
    """Return ``text`` in at most ``limit`` bytes of valid UTF-8."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: limit - 3].decode("utf-8", "ignore") + "…"
