"""The limit of the nesting of JSON texts, and decisions that do not depend on the stack."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from wonder_server.core import expressions
from wonder_server.core.conversation.model.inputs import ModelAnswered
from wonder_server.core.conversation.model.usage import reported_usage
from wonder_server.core.conversation.planning.output_checks import read_output
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.expressions import ExpressionError
from wonder_server.core.model import ModelResult
from wonder_server.core.request_formats.parts import json_object
from wonder_server.core.schema.json_nesting import MAX_LEVELS, check_nesting, deep_parts_as_text


@pytest.mark.parametrize("levels", [0, 1, 2, 3, 4])
def test_parts_below_a_level_are_text(levels: int) -> None:
    value = {"a": [{"b": {"c": 1}}, "x", None], "d": 2.5}
    shown = [
        '{"a":[{"b":{"c":1}},"x",null],"d":2.5}',
        {"a": '[{"b":{"c":1}},"x",null]', "d": 2.5},
        {"a": ['{"b":{"c":1}}', "x", None], "d": 2.5},
        {"a": [{"b": '{"c":1}'}, "x", None], "d": 2.5},
        value,
    ]
    assert deep_parts_as_text(value, levels) == shown[levels]  # type: ignore[arg-type]


def lists(levels: int) -> str:
    return "[" * levels + "]" * levels


def is_refused(text: str, start: int = 0) -> bool:
    try:
        check_nesting(text, start)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    "text",
    [
        lists(MAX_LEVELS),
        "[" + ",".join([lists(MAX_LEVELS - 1)] * 3) + "]",
        json.dumps({"[" * 600: "]{[" * 600}),
        json.dumps(['\\"[' * 600, "\\" * 3, "[" * 600]),
        '"' + "[" * 600,
        '["\\',
        lists(2) + "[" * 600,
        "]" + "[" * 400,
        "",
    ],
    ids=lambda text: text[:20],
)
def test_brackets_count_only_around_a_value(text: str) -> None:
    assert not is_refused(text)


@pytest.mark.parametrize(
    "text",
    [
        lists(MAX_LEVELS + 1),
        " \n" + '{"a":[' * 251,
        '["]]]]",' * (MAX_LEVELS + 1),
        '{"\\"}":' * (MAX_LEVELS + 1),
        "[[],[]," + "[" * MAX_LEVELS,
    ],
    ids=lambda text: text[:20],
)
def test_a_value_with_more_levels_is_refused(text: str) -> None:
    assert is_refused(text)


def test_a_value_within_a_text_is_measured_alone() -> None:
    text = "[" * 300 + lists(MAX_LEVELS) + "[" * 300
    assert is_refused(text)
    assert not is_refused(text, 300)
    assert is_refused(text, 299)


def parsed(source: str, text: str) -> object:
    try:
        return expressions.evaluate(source, {"text": text})
    except ExpressionError as fault:
        return str(fault)


def usage_in_fault(text: str) -> object:
    metadata = {"usage": f'{{"input_tokens":1,"more":{text}}}'}
    return reported_usage(None, Fault(reason=Reason.INTERNAL, message="No.", metadata=metadata))


DECODERS: dict[str, Callable[[str], object]] = {
    "parse_json": lambda text: parsed("parse_json(text)", text),
    "find_json": lambda text: parsed("find_json(text, 'none')", text),
    "find_json, with a comma to ignore": lambda text: parsed("find_json(text, 'none')", text + ",]"),
    "output": lambda text: read_output({}, ModelAnswered(operation_id="op", result=ModelResult(text=text))),
    "usage": usage_in_fault,
    "arguments": lambda text: json_object(f'{{"a":{text}}}'),
}


def above(frames: int, decode: Callable[[str], object], text: str) -> object:
    """Decode a text above this number of frames of the stack."""
    return decode(text) if frames == 0 else above(frames - 1, decode, text)


@pytest.mark.parametrize("decoder", DECODERS)
def test_decoding_gives_the_same_result_at_every_depth_of_the_stack(decoder: str) -> None:
    decode = DECODERS[decoder]
    for levels in (40, MAX_LEVELS - 1, MAX_LEVELS + 1, 750, 900, 2_000):
        text = lists(levels)
        assert above(0, decode, text) == above(200, decode, text), levels
