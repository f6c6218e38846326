"""Conversion of server errors to SDK exceptions."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from wonder_sdk import (
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    Violation,
    v1,
)
from wonder_sdk.errors import BY_STATUS, class_of, from_fault, from_rpc
from wonder_sdk.transport.reconnect import is_transient
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.rpc.server.error_codes import STATUS, to_rpc_status


def answered(problem: WonderError) -> grpc.aio.AioRpcError:
    """Return the grpc.aio error that a client raises for ``problem``."""
    output = to_rpc_status(problem)
    return grpc.aio.AioRpcError(
        output.code, grpc.aio.Metadata(), grpc.aio.Metadata(*output.trailers), output.message
    )


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_has_its_status_in_calls_and_streams(reason: Reason) -> None:
    by_call = from_rpc(answered(WonderError(Fault(reason=reason, message="No."))))
    number = v1.ErrorReason[reason.value]
    by_stream = from_fault(v1.Fault(reason=number, message="No."))

    assert by_call.status is by_stream.status is STATUS[reason]
    assert by_call.reason is by_stream.reason is number
    assert by_call.reason_name == reason.value
    assert str(by_call) == str(by_stream) == "No."


def test_every_status_that_the_server_uses_has_a_class() -> None:
    assert set(STATUS.values()) <= BY_STATUS.keys()


def test_fields_metadata_and_retry_delays_are_kept() -> None:
    faults = (
        Fault(
            reason=Reason.FIELD_INVALID,
            message="Too long.",
            field="content",
            metadata={"limit": "5"},
            retry_after_ms=1500,
        ),
        Fault(reason=Reason.FIELD_INVALID, message="Not text.", field="title"),
    )
    problem = from_rpc(answered(WonderError(faults[0], faults=faults)))

    assert isinstance(problem, InvalidArgumentError)
    assert problem.field == "content"
    assert problem.violations == (Violation("content", "Too long."), Violation("title", "Not text."))
    assert problem.metadata == {"limit": "5"}
    assert problem.retry_after_ms == 1500


def test_a_fault_without_violations_names_its_field() -> None:
    problem = from_fault(
        v1.Fault(reason=v1.ErrorReason.AGENT_NOT_FOUND, message="Who?", field="agent_id", retry_after_ms=5)
    )
    assert isinstance(problem, NotFoundError)
    assert (problem.field, problem.retry_after_ms) == ("agent_id", 5)


def test_an_unknown_reason_is_an_internal_error() -> None:
    assert class_of(v1.ErrorReason(9_999)) is InternalError
    assert from_fault(v1.Fault(reason=v1.ErrorReason(9_999))).reason is v1.ErrorReason.UNSPECIFIED


@pytest.mark.parametrize("trailer", [b"", b"\xff\xff", b"\x1a\x02\x0a\x00"])
def test_invalid_details_are_ignored(trailer: bytes) -> None:
    raw = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(("grpc-status-details-bin", trailer)),
        "gone",
    )
    problem = from_rpc(raw)
    assert isinstance(problem, UnavailableError)
    assert problem.reason is v1.ErrorReason.UNSPECIFIED
    assert is_transient(problem)


@pytest.mark.parametrize(
    ("reason", "passing"),
    [
        (Reason.SLOW_READER, True),
        (Reason.SERVER_DRAINING, True),
        (Reason.STORAGE_UNAVAILABLE, True),
        (Reason.INTERNAL, False),
        (Reason.CONVERSATION_NOT_FOUND, False),
        (Reason.CURSOR_OUT_OF_RANGE, False),
        (Reason.UNAUTHENTICATED, False),
        (Reason.LIMIT_EXCEEDED, False),
    ],
)
def test_streams_reconnect_only_after_retryable_errors(reason: Reason, passing: bool) -> None:
    assert is_transient(from_rpc(answered(WonderError(Fault(reason=reason, message="No."))))) is passing


@pytest.mark.parametrize("names", [{"store": "shards/00.db", "record": "conv_1/4"}, {"object": "ab12"}])
def test_damage_is_not_retried(names: dict[str, str]) -> None:
    fault = Fault(reason=Reason.STORAGE_UNAVAILABLE, message="The record is damaged.", metadata=names)
    problem = from_rpc(answered(WonderError(fault)))
    assert not is_transient(problem)
    assert not problem.retriable
    assert not from_fault(v1.Fault(reason=v1.ErrorReason.STORAGE_UNAVAILABLE, metadata=names)).retriable
