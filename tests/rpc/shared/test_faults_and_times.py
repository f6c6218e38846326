"""Conversion of times and faults between the core and the contract."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from wonder.v1 import errors_pb2
from wonder_server.core.errors import Fault, Reason, WonderError
from wonder_server.rpc.shared.faults import fault_from_proto, fault_to_proto
from wonder_server.rpc.shared.times import from_timestamp, to_timestamp


@pytest.mark.parametrize("ms", [1, 999, 1_000, 1_700_000_000_123, -1, -1_001])
def test_a_time_survives_a_round_trip(ms: int) -> None:
    made = to_timestamp(ms)
    assert made is not None and 0 <= made.nanos < 1_000_000_000
    assert from_timestamp(made) == ms


def test_never_is_an_unset_field() -> None:
    assert to_timestamp(0) is None
    assert from_timestamp(Timestamp()) == 0


@pytest.mark.parametrize(
    "timestamp",
    [
        Timestamp(seconds=253_402_300_800),
        Timestamp(seconds=-62_135_596_801),
        Timestamp(nanos=-1),
        Timestamp(nanos=1_000_000_000),
        Timestamp(seconds=2**62),
    ],
)
def test_an_invalid_time_is_refused_with_its_field(timestamp: Timestamp) -> None:
    with pytest.raises(WonderError) as problem:
        from_timestamp(timestamp, "filter.start_time")
    assert (problem.value.fault.reason, problem.value.fault.field) == (
        Reason.FIELD_INVALID,
        "filter.start_time",
    )


@pytest.mark.parametrize("reason", Reason)
def test_a_fault_survives_a_round_trip(reason: Reason) -> None:
    fault = Fault(
        reason=reason, message="Why.", field="a.b", metadata={"k": "v"}, transient=True, retry_after_ms=0
    )
    assert fault_from_proto(fault_to_proto(fault)) == fault
    assert not fault_to_proto(Fault(reason=reason, message="")).HasField("retry_after_ms")


@pytest.mark.parametrize("number", [0, 19, 9_999])
def test_an_unknown_reason_is_internal(number: int) -> None:
    message = errors_pb2.Fault(message="?")
    message.MergeFromString(bytes([0x08, number & 0x7F | 0x80, number >> 7]))
    assert fault_from_proto(message).reason is Reason.INTERNAL


def test_a_lone_surrogate_does_not_prevent_the_encoding_of_a_fault() -> None:
    fault = Fault(reason=Reason.TASK_FAILED, message="bad \ud800 text", metadata={"k": "\ud800"})
    assert fault_to_proto(fault).message == "bad ? text"
