from __future__ import annotations

import math

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from tests.rpc.echo import Echo, nested
from wonder_server.core import payloads
from wonder_server.core.errors import Reason, WonderError
from wonder_server.rpc.payload import (
    MAX_DEPTH,
    MAX_INCOMING,
    check,
    dict_to_struct,
    json_to_value,
    struct_to_dict,
    value_to_json,
)
from wonder_server.rpc.wire import explain

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INCOMING, MAX_INCOMING)
    | st.floats(-1e15, 1e15, allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON))
def test_what_goes_into_a_struct_comes_out_the_same(values: dict[str, object]) -> None:
    assert struct_to_dict(dict_to_struct(values)) == values


@pytest.mark.parametrize("value", [{}, [], {"a": {}}, [[]], None, "", 0, False])
def test_empty_values_survive(value: object) -> None:
    assert value_to_json(json_to_value(value)) == value


def test_whole_numbers_come_out_as_integers() -> None:
    out = struct_to_dict(dict_to_struct({"n": 3.0, "x": 2.5, "b": True}))
    assert [type(out[key]) for key in ("n", "x", "b")] == [int, float, bool]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 2**53, 2**53 + 1, -(2**53), 1e300])
def test_an_incoming_number_that_may_have_been_rounded_is_refused_where_it_stands(number: float) -> None:
    struct = struct_pb2.Struct()
    struct.fields["a"].list_value.values.add().number_value = number
    with pytest.raises(WonderError) as refused:
        struct_to_dict(struct, "input")
    assert (refused.value.fault.reason, refused.value.fault.field) == (
        Reason.NUMBER_OUT_OF_RANGE,
        "input.a[0]",
    )


@pytest.mark.parametrize("number", [math.nan, math.inf, 2**53 + 1, 10**400])
def test_an_outgoing_number_that_a_double_cannot_hold_is_refused_where_it_stands(number: float) -> None:
    with pytest.raises(WonderError) as refused:
        dict_to_struct({"a": [{"b": number}]}, "output")
    assert refused.value.fault.field == "output.a[0].b"


@pytest.mark.parametrize("number", [2**53, 1e300, -1e300])
def test_whatever_core_accepts_as_a_payload_can_be_sent(number: float) -> None:
    assert payloads.check({"a": number}) is None
    assert dict_to_struct({"a": number}).fields["a"].number_value == number


def test_the_deepest_allowed_payload_can_be_sent_and_one_deeper_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(MAX_DEPTH - 1):
        deep = {"a": deep}
    assert Echo.FromString(Echo(payload=dict_to_struct(deep)).SerializeToString())
    with pytest.raises(WonderError) as refused:
        dict_to_struct({"a": deep}, "input")
    assert (refused.value.fault.reason, refused.value.fault.field) == (Reason.PAYLOAD_TOO_DEEP, "input")


@pytest.mark.parametrize("value", [{1: 2}, {"a": object()}, {"a": "\ud800"}, {"\ud800": 1}, {"a": b"x"}])
def test_what_json_cannot_say_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(WonderError) as refused:
        dict_to_struct(value, "output")
    assert refused.value.fault.reason is Reason.FIELD_INVALID


@pytest.mark.parametrize("levels", [31, 32, 33])
def test_check_refuses_a_payload_that_decodes_but_could_not_be_sent_on(levels: int) -> None:
    with pytest.raises(WonderError) as refused:
        check(Echo.FromString(nested(levels)))
    assert (refused.value.fault.reason, refused.value.fault.field) == (Reason.PAYLOAD_TOO_DEEP, "payload")


def test_check_finds_what_is_wrong_inside_repeated_messages() -> None:
    request = Echo(parts=[Echo(), Echo(value=struct_pb2.Value(number_value=math.nan))])
    with pytest.raises(WonderError) as refused:
        check(request)
    assert refused.value.fault.field == "parts[1].value"


def test_check_refuses_an_enum_number_that_the_contract_does_not_know() -> None:
    check(Echo(mood=1))
    with pytest.raises(WonderError) as refused:
        check(Echo(parts=[Echo(mood=7)]))
    assert (refused.value.fault.reason, refused.value.fault.field) == (Reason.FIELD_INVALID, "parts[0].mood")


@pytest.mark.parametrize("levels", [40, 100, 1_000])
def test_bytes_too_deep_to_decode_are_explained_by_field(levels: int) -> None:
    found = explain(nested(levels), Echo.DESCRIPTOR).fault
    assert (found.reason, found.field) == (Reason.PAYLOAD_TOO_DEEP, "payload")


def test_text_that_is_not_utf8_is_explained_by_field() -> None:
    part = b"\x0a\x02\xff\xfe"
    request = b"\x22\x00" + b"\x22" + bytes([len(part)]) + part
    found = explain(request, Echo.DESCRIPTOR).fault
    assert (found.reason, found.field) == (Reason.MALFORMED_REQUEST, "parts[1].text")


@given(st.binary(max_size=200))
def test_any_bytes_get_an_answer_without_class_names(data: bytes) -> None:
    message = explain(data, Echo.DESCRIPTOR).fault.message
    assert "Echo" not in message and "google" not in message
