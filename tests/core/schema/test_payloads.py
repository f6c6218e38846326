"""JSON values that are valid as payloads, and the faults of others."""

from __future__ import annotations

import time
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wonder_server.core.errors import Reason
from wonder_server.core.schema import payloads
from wonder_server.core.schema.payloads import MAX_DEPTH, check


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "text é 😀",
        2**53,
        -(2**53),
        1.5,
        {"a": [1, {"b": None}], "": ()},
        MappingProxyType({"a": 1}),
        nested(MAX_DEPTH),
    ],
)
def test_plain_json_passes(value: Any) -> None:
    assert check(value) is None


@pytest.mark.parametrize(
    ("value", "reason", "place"),
    [
        ({"a": [0, {"b": 2**53 + 1}]}, Reason.NUMBER_OUT_OF_RANGE, "input.a[1].b"),
        ([-(2**53) - 1], Reason.NUMBER_OUT_OF_RANGE, "input[0]"),
        ({"a": float("nan")}, Reason.NUMBER_OUT_OF_RANGE, "input.a"),
        ({"a": float("inf")}, Reason.NUMBER_OUT_OF_RANGE, "input.a"),
        ({"a": b"bytes"}, Reason.INPUT_INVALID, "input.a"),
        ({1: "a"}, Reason.INPUT_INVALID, "input"),
        ({"a": "half \ud800"}, Reason.INPUT_INVALID, "input.a"),
        (nested(MAX_DEPTH + 1), Reason.PAYLOAD_TOO_DEEP, "input" + "[0]" * MAX_DEPTH),
    ],
)
def test_any_other_value_is_a_fault_with_its_path(value: Any, reason: Reason, place: str) -> None:
    fault = check(value, field="input")
    assert fault is not None
    assert (fault.reason, fault.field) == (reason, place)


def test_a_very_deep_value_is_refused_without_being_walked_to_its_end() -> None:
    fault = check(nested(100_000))
    assert fault is not None
    assert fault.reason is Reason.PAYLOAD_TOO_DEEP


def test_size_counts_what_is_shared_each_time_it_appears() -> None:
    assert check(["x" * 100] * 9, max_bytes=1_000) is None
    fault = check(["x" * 100] * 10, max_bytes=1_000)
    assert fault is not None
    assert (fault.reason, fault.message) == (
        Reason.PAYLOAD_TOO_LARGE,
        "a payload may have at most 1000 bytes",
    )
    doubled: Any = "x"
    for _ in range(28):
        doubled = [doubled, doubled]
    assert check(doubled, max_bytes=50_000) is not None


def test_a_list_that_is_known_counts_each_time_it_appears() -> None:
    known = ["x" * 100] * 8
    assert check({"a": known}, max_bytes=1_000) is None
    assert check({"a": known, "b": [known]}, max_bytes=2_000) is None
    fault = check({"a": known, "b": [known]}, max_bytes=1_500)
    assert fault is not None
    assert fault.reason is Reason.PAYLOAD_TOO_LARGE


def test_the_levels_of_a_known_list_count_where_it_is() -> None:
    known = [nested(MAX_DEPTH - 3)] * 8
    assert check([[known]]) is None
    assert check([[known]]) is None
    fault = check([[[known]]])
    assert fault is not None
    assert fault.reason is Reason.PAYLOAD_TOO_DEEP


def test_a_list_that_has_grown_is_checked_again() -> None:
    grown: list[Any] = [1] * 8
    assert check({"a": grown}) is None
    grown.append(2**60)
    fault = check({"a": grown})
    assert fault is not None
    assert (fault.reason, fault.field) == (Reason.NUMBER_OUT_OF_RANGE, "a[8]")


def test_long_lists_in_long_lists_are_refused_above_the_depth() -> None:
    value: Any = [1] * 8
    for _ in range(50_000):
        value = [value, *[1] * 7]
    fault = check(value)
    assert fault is not None
    assert fault.reason is Reason.PAYLOAD_TOO_DEEP


def test_a_large_text_that_appears_often_is_not_looked_at_each_time() -> None:
    began = time.thread_time()
    assert check(["é" * 1_000_000] * 100_000) is not None
    assert check({"a": ["é" * 1_000_000] * 100_000}) is not None
    assert time.thread_time() - began < 1


def test_size_is_that_of_the_text_in_utf8() -> None:
    assert check("é" * 400, max_bytes=810) is None
    assert check("é" * 404, max_bytes=810) is not None


class Kind(StrEnum):
    """A subclass of a text."""

    A = "a"


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**54), 2**54),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["x" * 100, "half \ud800", Kind.A, b"bytes"]),
)
KEYS = st.one_of(st.sampled_from(["a", "b", "é"]), st.sampled_from(["a", "half \ud800", Kind.A, 1]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, min_size=8, max_size=9),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(st.just("a"), inner).map(MappingProxyType),
    ),
    max_leaves=12,
)


@given(VALUES, st.integers(0, MAX_DEPTH), st.one_of(st.integers(0, 300), st.just(payloads.MAX_BYTES)))
def test_the_fast_check_accepts_only_valid_payloads(value: Any, levels: int, max_bytes: int) -> None:
    for _ in range(levels):
        value = {"a": value} if levels % 2 else [value]
    # A mapping or a tuple at the root is not checked by the fast path.
    slow = (
        MappingProxyType(value)
        if isinstance(value, dict)
        else tuple(value)
        if isinstance(value, list)
        else value
    )
    fault = check(slow, max_bytes=max_bytes)
    assert check(value, max_bytes=max_bytes) == fault
    assert check(value, max_bytes=max_bytes) == fault, "a second check gives the same"
