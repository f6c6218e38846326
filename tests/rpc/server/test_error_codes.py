from __future__ import annotations

import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode

from wonder_server.core.errors import Fault, Reason, WonderError, error
from wonder_server.rpc.server.error_codes import DOMAIN, STATUS, to_rpc_status


def unpack(problem: WonderError) -> tuple[status_pb2.Status, dict[str, Message]]:
    status = status_pb2.Status.FromString(to_rpc_status(problem).details)
    found: dict[str, Message] = {}
    for detail in status.details:
        name = detail.type_url.rpartition(".")[2]
        assert name not in found, "one detail of a kind"
        message = getattr(error_details_pb2, name)()
        detail.Unpack(message)
        found[name] = message
    return status, found


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_status_that_is_an_error(reason: Reason) -> None:
    assert STATUS[reason] not in (StatusCode.OK, StatusCode.UNKNOWN, StatusCode.DATA_LOSS)


def test_reasons_are_those_of_the_contract() -> None:
    errors_pb2 = pytest.importorskip("wonder.v1.errors_pb2", reason="generated code is not there yet")
    names = {name.removeprefix("ERROR_REASON_") for name in errors_pb2.ErrorReason.keys()}
    assert names - {"UNSPECIFIED"} == {reason.value for reason in Reason}


def test_an_error_has_exactly_one_error_info_with_reason_domain_and_metadata() -> None:
    status, found = unpack(error(Reason.TURN_NOT_FOUND, "There is no such turn.", turn="turn_1"))
    assert status.code == StatusCode.NOT_FOUND.value[0]
    assert status.message == "There is no such turn."
    info = found.pop("ErrorInfo")
    assert isinstance(info, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain, dict(info.metadata)) == ("TURN_NOT_FOUND", DOMAIN, {"turn": "turn_1"})
    assert not found


def test_every_violation_is_listed_with_its_own_reason() -> None:
    faults = tuple(
        Fault(reason=Reason.FIELD_INVALID, message=f"Wrong {name}.", field=name) for name in ("a", "b[1].c")
    )
    _, found = unpack(WonderError(faults[0], faults=faults))
    bad = found["BadRequest"]
    assert isinstance(bad, error_details_pb2.BadRequest)
    assert [(v.field, v.description, v.reason) for v in bad.field_violations] == [
        ("a", "Wrong a.", "FIELD_INVALID"),
        ("b[1].c", "Wrong b[1].c.", "FIELD_INVALID"),
    ]


def test_a_retryable_fault_has_a_retry_delay() -> None:
    _, found = unpack(error(Reason.MODEL_UNAVAILABLE, "Busy.", transient=True, retry_after_ms=1500))
    retry = found["RetryInfo"]
    assert isinstance(retry, error_details_pb2.RetryInfo)
    assert retry.retry_delay.ToMilliseconds() == 1500


def test_details_always_fit_into_the_call_metadata() -> None:
    faults = tuple(
        Fault(
            reason=Reason.DEFINITION_INVALID,
            message="ü" * 5_000,
            field=f"spec.nodes[{i}]." + "x" * 1_000,
            metadata={f"k{n}": "v" * 1_000 for n in range(50)},
            retry_after_ms=1,
        )
        for i in range(500)
    )
    answer = to_rpc_status(WonderError(faults[0], faults=faults))
    percent_encoded = 3 * len(answer.message.encode())
    assert percent_encoded + len(answer.details) * 4 / 3 < 7_000
    _, found = unpack(WonderError(faults[0], faults=faults))
    assert set(found) == {"ErrorInfo", "BadRequest", "RetryInfo"}


def test_half_a_surrogate_pair_in_a_message_does_not_break_the_response() -> None:
    status, _ = unpack(error(Reason.FIELD_INVALID, "bad \ud800", field="\udfff", key="\ud800"))
    assert status.message == "bad ?"
