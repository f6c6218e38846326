"""Streams that providers really send, and those that they should not."""

from __future__ import annotations

from typing import Any

import pytest

from wonder_server.adapters.models.arguments import clean_text, parse_arguments
from wonder_server.adapters.models.formats import AnthropicMessages, OpenAIChat, accumulator
from wonder_server.adapters.models.sse import Event, EventDecoder
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.model import ModelResult


def chat(*deltas: dict[str, Any], finish: str = "tool_calls") -> ModelResult:
    gathered = OpenAIChat()
    for delta in deltas:
        gathered.feed({"choices": [{"index": 0, "delta": delta}]})
    gathered.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return gathered.result()


def piece(arguments: str, **fields: Any) -> dict[str, Any]:
    name = fields.pop("name", None)
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"tool_calls": [{**fields, "function": function}]}


def calls(result: ModelResult) -> list[tuple[str, str, Any]]:
    return [(call.id, call.name, call.arguments) for call in result.tool_calls]


def test_parallel_calls_that_all_claim_index_0_are_kept_apart_by_id() -> None:
    result = chat(
        piece('{"n":', index=0, id="a", name="one"),
        piece("1}", index=0, id="a"),
        piece('{"n":2', index=0, id="b", name="two"),
        piece("}", index=0),
    )

    assert calls(result) == [("a", "one", {"n": 1}), ("b", "two", {"n": 2})]


def test_calls_without_an_index_are_told_apart_by_id_and_order() -> None:
    result = chat(
        piece('{"n":', id="a", name="one"), piece("1}"), piece('{"n":2', id="b", name="two"), piece("}")
    )

    assert calls(result) == [("a", "one", {"n": 1}), ("b", "two", {"n": 2})]


def test_a_name_that_is_repeated_in_each_delta_is_taken_once() -> None:
    result = chat(piece("{", index=0, id="a", name="one"), piece("}", index=0, id="a", name="one"))

    assert calls(result) == [("a", "one", {})]


def test_calls_without_ids_or_with_the_same_id_get_ids_of_their_own() -> None:
    assert [call.id for call in chat(piece("", index=0), piece("", index=1)).tool_calls] == [
        "call_0",
        "call_1",
    ]
    twins = chat(piece("", index=0, id="x", name="one"), piece("", index=1, id="x", name="two"))
    assert len({call.id for call in twins.tool_calls}) == 2


def test_a_finish_reason_of_stop_with_calls_means_tool_calls() -> None:
    assert chat(piece("", index=0, id="a"), finish="stop").stop_reason == "tool_calls"


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", "end"), ("length", "length"), ("content_filter", "refusal"), ("novelty", "other")],
)
def test_openai_stop_reasons_are_translated(finish: str, stop: str) -> None:
    assert chat({"content": "x"}, finish=finish).stop_reason == stop


def test_a_refusal_delta_is_text_and_the_raw_message_says_that_it_was_one() -> None:
    result = chat({"refusal": "I will "}, {"refusal": "not."}, finish="stop")

    assert (result.text, result.stop_reason) == ("I will not.", "refusal")
    assert result.raw == {"role": "assistant", "content": None, "refusal": "I will not."}


def test_malformed_arguments_go_back_to_the_provider_as_an_empty_object() -> None:
    result = chat(piece('{"city": "Par', index=0, id="a", name="weather"))

    assert result.tool_calls[0].malformed == '{"city": "Par'
    assert result.raw["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_stream_without_a_finish_reason_is_not_complete() -> None:
    gathered = OpenAIChat()
    gathered.feed({"choices": [{"index": 0, "delta": {"content": "x"}}]})

    assert gathered.begun
    assert not gathered.complete


def test_the_opening_chunk_of_a_stream_is_not_yet_an_answer() -> None:
    gathered = OpenAIChat()
    gathered.feed({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})

    assert not gathered.begun


def anthropic(*events: dict[str, Any], stop: str = "end_turn") -> ModelResult:
    gathered = AnthropicMessages()
    for event in events:
        gathered.feed(event)
    gathered.feed({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}})
    return gathered.result()


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
    ]


def test_thinking_goes_back_to_the_provider_with_its_signature_and_is_not_text() -> None:
    thought = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "s1"},
    )
    said = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Yes."})

    result = anthropic(*thought, *said)

    assert result.text == "Yes."
    assert result.raw["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "text", "text": "Yes."},
    ]


def test_empty_text_blocks_are_left_out_because_they_would_be_refused_when_sent_back() -> None:
    assert anthropic(*block(0, {"type": "text", "text": ""})).raw["content"] == []


def test_a_tool_call_whose_input_came_with_its_start_keeps_it() -> None:
    result = anthropic(
        *block(0, {"type": "tool_use", "id": "t", "name": "clock", "input": {"zone": "UTC"}}), stop="tool_use"
    )

    assert calls(result) == [("t", "clock", {"zone": "UTC"})]
    assert result.raw["content"][0]["input"] == {"zone": "UTC"}


def test_blocks_that_are_not_known_are_kept_as_they_came() -> None:
    unknown = {"type": "server_tool_result", "content": [1, {"a": None}]}

    assert anthropic(*block(0, unknown)).raw["content"] == [unknown]


def test_cached_input_tokens_are_counted_in() -> None:
    start = {
        "type": "message_start",
        "message": {"model": "m", "usage": {"input_tokens": 3, "cache_read_input_tokens": 40}},
    }

    usage = anthropic(start).usage

    assert (usage.input_tokens, usage.output_tokens) == (43, 5)


def test_an_error_inside_a_stream_is_a_fault() -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

    with pytest.raises(WonderError) as raised:
        AnthropicMessages().feed(event)

    assert raised.value.fault.reason is Reason.MODEL_UNAVAILABLE
    assert raised.value.fault.transient


def test_a_format_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(WonderError) as raised:
        accumulator("gemini")
    assert raised.value.fault.reason is Reason.NOT_IMPLEMENTED


@pytest.mark.parametrize(
    "written",
    [
        "[1]",
        '"text"',
        "null",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 9007199254740993}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a":' * 31 + "1" + "}" * 31,
        '{"a":' * 100_000,
        '{"a": "\\ud800"}',
        '{"\\ud800": 1}',
    ],
)
def test_arguments_that_the_platform_cannot_carry_do_not_parse(written: str) -> None:
    assert parse_arguments(written) is None


def test_arguments_at_the_limits_parse() -> None:
    assert parse_arguments('{"a": -9007199254740992, "b": true, "c": 1.5}') == {
        "a": -(2**53),
        "b": True,
        "c": 1.5,
    }
    assert parse_arguments('{"a":' * 30 + "1" + "}" * 30) is not None
    assert parse_arguments(" \n") == {}


def test_text_with_half_a_character_becomes_text_that_can_be_encoded() -> None:
    assert clean_text("a\ud83db") == "a\ufffdb"
    assert clean_text("\ud83d\ude00") == "😀"
    assert clean_text("Łódź") == "Łódź"


def test_events_are_decoded_wherever_the_bytes_are_cut() -> None:
    stream = 'event: a\r\ndata: {"x": "Łódź"}\r\n\r\n: comment\n\ndata: one\ndata: two\n\n'.encode()

    for size in range(1, len(stream) + 1):
        decoder = EventDecoder()
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        events = [event for received in pieces for event in decoder.feed(received)]
        assert events == [Event("a", '{"x": "Łódź"}'), Event("", "one\ntwo")]


def test_an_event_without_end_is_refused() -> None:
    decoder = EventDecoder()

    with pytest.raises(WonderError):
        for _ in range(20):
            list(decoder.feed(b"x" * 1_000_000))
