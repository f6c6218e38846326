from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import Any

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from tests.rpc.echo_service import Echo, nested
from wonder.v1 import coordinator_service_pb2, run_pb2
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.schema import payloads
from wonder_server.rpc.server.decode_errors import decode_error
from wonder_server.rpc.shared.payload import (
    MAX_DEPTH,
    MAX_INCOMING_NUMBER,
    MAX_VALUES,
    check_request,
    dict_to_struct,
    json_to_value,
    struct_to_dict,
    value_to_json,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INCOMING_NUMBER, MAX_INCOMING_NUMBER)
    | st.floats(-1e15, 1e15, allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=10,
)


def at(levels: int, value: object) -> object:
    for _ in range(levels):
        value = [value]
    return value


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON))
def test_a_struct_survives_a_round_trip(values: dict[str, object]) -> None:
    assert struct_to_dict(dict_to_struct(values)) == values


@pytest.mark.parametrize("value", [{}, [], {"a": {}}, [[]], None, "", 0, False])
def test_empty_values_survive(value: object) -> None:
    assert value_to_json(json_to_value(value)) == value


def test_whole_numbers_come_out_as_integers() -> None:
    out = struct_to_dict(dict_to_struct({"n": 3.0, "x": 2.5, "b": True}))
    assert [type(out[key]) for key in ("n", "x", "b")] == [int, float, bool]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 2**53, 2**53 + 1, -(2**53), 1e300])
def test_an_incoming_number_that_may_be_rounded_is_refused_with_its_field(number: float) -> None:
    struct = struct_pb2.Struct()
    struct.fields["a"].list_value.values.add().number_value = number
    with pytest.raises(WonderError) as refused:
        struct_to_dict(struct, "input")
    assert (refused.value.fault.reason, refused.value.fault.field) == (
        Reason.NUMBER_OUT_OF_RANGE,
        "input.a[0]",
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (2**53 + 1, "9007199254740993"),
        (-(10**400), "-1" + "0" * 400),
    ],
)
def test_an_outgoing_number_beyond_a_double_is_text(number: float, text: str) -> None:
    assert struct_to_dict(dict_to_struct({"a": [{"b": number}], "c": 1})) == {"a": [{"b": text}], "c": 1}


@pytest.mark.parametrize("number", [2**53, 1e300, -1e300])
def test_every_payload_that_core_accepts_can_be_sent(number: float) -> None:
    assert payloads.check({"a": number}) is None
    assert dict_to_struct({"a": number}).fields["a"].number_value == number


def deep(levels: int, *, lists: bool) -> object:
    """Return a text nested in ``levels`` lists or objects."""
    value: object = "é"
    for _ in range(levels):
        value = [value] if lists else {"a": value}
    return value


def inside(value: object, levels: int) -> object:
    for _ in range(levels):
        value = value[0] if isinstance(value, list) else value["a"]
    return value


def widest(struct: struct_pb2.Struct) -> coordinator_service_pb2.WatchRunResponse:
    """Return the response that nests a payload deepest: an event of a run in a stream."""
    gate = run_pb2.Gate(resolution=run_pb2.GateResolution(answer=struct))
    return coordinator_service_pb2.WatchRunResponse(event=run_pb2.RunEvent(gate_resolved=gate))


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("levels", range(28, 41))
def test_a_value_below_the_depth_limit_is_sent_as_json_text(levels: int, lists: bool) -> None:
    value = {"a": deep(levels - 1, lists=lists), "beside": [1, {}]}

    answer = widest(dict_to_struct(value))

    read = coordinator_service_pb2.WatchRunResponse.FromString(answer.SerializeToString())
    received = struct_to_dict(read.event.gate_resolved.resolution.answer)
    if levels <= MAX_DEPTH:
        assert received == value
    else:
        assert received["beside"] == [1, {}]
        text = inside(received, MAX_DEPTH)
        assert json.loads(text) == deep(levels - MAX_DEPTH, lists=lists) and "é" in text


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("levels", range(28, 41))
def test_a_single_value_has_the_same_depth_limit(levels: int, lists: bool) -> None:
    received = value_to_json(json_to_value(deep(levels, lists=lists)))
    if levels <= MAX_DEPTH:
        assert received == deep(levels, lists=lists)
    else:
        assert json.loads(inside(received, MAX_DEPTH)) == deep(levels - MAX_DEPTH, lists=lists)


def test_any_depth_and_any_digits_can_be_sent() -> None:
    received = value_to_json(json_to_value([deep(100_000, lists=True)]))
    assert inside(received, MAX_DEPTH) == value_to_json(json_to_value(10**5000)) == "(too much to be shown)"


def test_members_of_any_mapping_are_in_the_text() -> None:
    frozen = MappingProxyType({"b": MappingProxyType({"c": (1, 2**60)})})
    received = value_to_json(json_to_value([deep(MAX_DEPTH - 1, lists=True), at(MAX_DEPTH - 1, frozen)]))
    assert json.loads(inside(received[1], MAX_DEPTH - 1)) == {"b": {"c": [1, 2**60]}}


def test_a_lone_surrogate_is_replaced() -> None:
    received = struct_to_dict(dict_to_struct({"\ud800k": "\ud83d\ude00 \ud800"}))
    assert received == {"\ufffdk": "\U0001f600 \ufffd"}
    text = inside(value_to_json(json_to_value(at(MAX_DEPTH + 1, "\ud800"))), MAX_DEPTH)
    assert text == '["\ufffd"]'


@pytest.mark.parametrize("levels", [31, 32, 33])
def test_check_refuses_a_payload_that_decodes_but_cannot_be_forwarded(levels: int) -> None:
    with pytest.raises(WonderError) as refused:
        check_request(Echo.FromString(nested(levels)), 0)
    assert (refused.value.fault.reason, refused.value.fault.field) == (Reason.PAYLOAD_TOO_DEEP, "payload")


def test_check_finds_faults_inside_repeated_messages() -> None:
    request = Echo(parts=[Echo(), Echo(value=struct_pb2.Value(number_value=math.nan))])
    with pytest.raises(WonderError) as refused:
        check_request(request, 0)
    assert refused.value.fault.field == "parts[1].value"


def test_check_refuses_an_enum_number_that_the_contract_does_not_know() -> None:
    check_request(Echo(mood=1), 0)
    with pytest.raises(WonderError) as refused:
        check_request(Echo(parts=[Echo(mood=7)]), 0)
    assert (refused.value.fault.reason, refused.value.fault.field) == (Reason.FIELD_INVALID, "parts[0].mood")


@pytest.mark.parametrize("levels", [40, 100, 1_000])
def test_bytes_too_deep_to_decode_are_explained_by_field(levels: int) -> None:
    found = decode_error(nested(levels), Echo.DESCRIPTOR).fault
    assert (found.reason, found.field) == (Reason.PAYLOAD_TOO_DEEP, "payload")


def test_text_that_is_not_utf8_is_explained_by_field() -> None:
    part = b"\x0a\x02\xff\xfe"
    request = b"\x22\x00" + b"\x22" + bytes([len(part)]) + part
    found = decode_error(request, Echo.DESCRIPTOR).fault
    assert (found.reason, found.field) == (Reason.MALFORMED_REQUEST, "parts[1].text")


@given(st.binary(max_size=200))
def test_invalid_bytes_get_an_error_without_class_names(data: bytes) -> None:
    message = decode_error(data, Echo.DESCRIPTOR).fault.message
    assert "Echo" not in message and "google" not in message


def test_the_number_of_values_in_all_payloads_is_limited() -> None:
    def asked(values: int) -> Any:
        half = [{"a": None} for _ in range(values // 4)]
        return Echo(payload={"x": half}, parts=[Echo(value=json_to_value(half))])

    # Each payload has its list as one value more, and the value of the part is one itself.
    fine, over = asked(MAX_VALUES - 4), asked(MAX_VALUES + 4)
    check_request(fine, fine.ByteSize())
    with pytest.raises(WonderError) as problem:
        check_request(over, over.ByteSize())
    assert problem.value.fault.reason == Reason.PAYLOAD_TOO_LARGE
