"""Which JSON values may travel."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from wonder_server.core.errors import Reason
from wonder_server.core.payloads import MAX_DEPTH, check


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
def test_anything_else_is_a_fault_with_its_place(value: Any, reason: Reason, place: str) -> None:
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
    assert check(doubled) is not None


def test_size_is_that_of_the_text_in_utf8() -> None:
    assert check("é" * 400, max_bytes=810) is None
    assert check("é" * 404, max_bytes=810) is not None
