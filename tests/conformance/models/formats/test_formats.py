"""Accumulators with streams of real providers, and with invalid streams."""

from __future__ import annotations

import pytest

from wonder_server.adapters.models.common.tool_arguments import clean_text, parse_arguments
from wonder_server.adapters.models.formats import accumulator, feed, finish
from wonder_server.adapters.models.formats.anthropic_messages import AnthropicMessages
from wonder_server.adapters.models.formats.gemini import Gemini
from wonder_server.adapters.models.formats.openai_chat import OpenAIChat
from wonder_server.adapters.models.formats.openai_responses import OpenAIResponses
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult


def chat(*deltas: JsonDict, finish_reason: str = "tool_calls") -> ModelResult:
    gathered = OpenAIChat()
    for delta in deltas:
        gathered.feed({"choices": [{"index": 0, "delta": delta}]})
    gathered.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]})
    return gathered.result()


def piece(arguments: str, **fields: JsonValue) -> JsonDict:
    name = fields.pop("name", None)
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"tool_calls": [{**fields, "function": function}]}


def calls(result: ModelResult) -> list[tuple[str, str, JsonValue]]:
    return [(call.id, call.name, call.arguments) for call in result.tool_calls]


def test_parallel_calls_that_all_claim_index_0_are_kept_apart_by_id() -> None:
    result = chat(
        piece('{"n":', index=0, id="a", name="one"),
        piece("1}", index=0, id="a"),
        piece('{"n":2', index=0, id="b", name="two"),
        piece("}", index=0),
    )

    assert calls(result) == [("a", "one", {"n": 1}), ("b", "two", {"n": 2})]


def test_calls_without_an_index_are_distinguished_by_id_and_order() -> None:
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
    assert chat(piece("", index=0, id="a"), finish_reason="stop").stop_reason == "tool_calls"


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", "end"), ("length", "length"), ("content_filter", "refusal"), ("novelty", "other")],
)
def test_openai_stop_reasons_are_translated(finish: str, stop: str) -> None:
    assert chat({"content": "x"}, finish_reason=finish).stop_reason == stop


def test_a_refusal_delta_is_text_and_the_raw_message_says_that_it_was_one() -> None:
    result = chat({"refusal": "I will "}, {"refusal": "not."}, finish_reason="stop")

    assert (result.text, result.stop_reason) == ("I will not.", "refusal")
    assert result.raw == {"role": "assistant", "content": None, "refusal": "I will not."}


def test_malformed_arguments_go_back_to_the_provider_as_an_empty_object() -> None:
    result = chat(piece('{"city": "Par', index=0, id="a", name="weather"))

    assert result.tool_calls[0].malformed == '{"city": "Par'
    assert result.raw["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_stream_without_a_finish_reason_is_not_complete() -> None:
    gathered = OpenAIChat()
    gathered.feed({"choices": [{"index": 0, "delta": {"content": "x"}}]})

    assert gathered.has_started
    assert not gathered.complete


def test_the_opening_chunk_of_a_stream_is_not_yet_an_answer() -> None:
    gathered = OpenAIChat()
    gathered.feed({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})

    assert not gathered.has_started


def anthropic(*events: JsonDict, stop: str = "end_turn") -> ModelResult:
    gathered = AnthropicMessages()
    for event in events:
        gathered.feed(event)
    gathered.feed({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}})
    return gathered.result()


def block(index: int, content: JsonDict, *deltas: JsonDict) -> list[JsonDict]:
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


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(WonderError) as raised:
        accumulator("morse")
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


# --- OpenAI responses -----------------------------------------------------------------------------


def responses(*events: JsonDict, status: str = "completed", **response: JsonValue) -> ModelResult:
    gathered = OpenAIResponses()
    for event in events:
        gathered.feed(event)
    gathered.feed({"type": f"response.{status}", "response": {"status": status, **response}})
    return finish(gathered)


def said(delta: str, index: int = 0) -> JsonDict:
    return {"type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": delta}


def done(index: int, **item: JsonValue) -> JsonDict:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "clock"}


def test_the_items_of_a_response_come_back_in_order_as_they_came() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "x", "summary": []}
    message = {**MESSAGE, "content": [{"type": "output_text", "text": "Hm."}]}
    call = {**CALL, "arguments": '{"zone": "UTC"}'}

    result = responses(done(0, **thought), said("Hm.", 1), done(1, **message), done(2, **call))

    assert result.raw == {"output": [thought, message, call]}
    assert (result.text, calls(result)) == ("Hm.", [("c1", "clock", {"zone": "UTC"})])
    assert result.stop_reason == "tool_calls"


def test_a_message_without_deltas_is_part_of_the_text() -> None:
    gathered = OpenAIResponses()
    message = {**MESSAGE, "content": [{"type": "output_text", "text": "All at once."}]}

    assert gathered.feed(done(0, **message)) == "All at once."
    assert gathered.feed({"type": "response.completed", "response": {"output": [message]}}) == ""
    assert finish(gathered).text == "All at once."


def test_a_response_of_nothing_but_deltas_has_a_message_to_go_back() -> None:
    content = [{"type": "output_text", "text": "Hi.", "annotations": []}]

    assert responses(said("Hi.")).raw == {
        "output": [{"type": "message", "role": "assistant", "content": content}]
    }


def test_arguments_are_taken_from_the_deltas_where_the_item_does_not_repeat_them() -> None:
    opened = {"type": "response.output_item.added", "output_index": 0, "item": CALL}
    pieces = [
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": piece}
        for piece in ('{"zone"', ': "UTC"}')
    ]

    assert calls(responses(opened, *pieces)) == [("c1", "clock", {"zone": "UTC"})]


@pytest.mark.parametrize(
    ("reason", "stop"), [("max_output_tokens", "length"), ("content_filter", "refusal"), (None, "other")]
)
def test_an_incomplete_response_says_why(reason: str | None, stop: str) -> None:
    details = {"incomplete_details": {"reason": reason}}

    assert responses(said("x"), status="incomplete", **details).stop_reason == stop


def test_a_call_in_a_cut_response_whose_arguments_never_came_is_malformed() -> None:
    result = responses(done(0, **CALL, arguments=""), status="incomplete")

    assert result.tool_calls[0].arguments is None
    assert result.raw["output"][0]["arguments"] == "{}"


def test_a_failed_response_is_a_fault() -> None:
    event = {
        "type": "response.failed",
        "response": {"error": {"code": "rate_limit_exceeded", "message": "Slow."}},
    }

    with pytest.raises(WonderError, match="busy"):
        OpenAIResponses().feed(event)


# --- Gemini ------------------------------------------------------------------------------------------


def gemini(*parts: JsonDict, finish_reason: str = "STOP") -> ModelResult:
    gathered = Gemini()
    for part in parts:
        gathered.feed({"candidates": [{"content": {"role": "model", "parts": [part]}}]})
    gathered.feed({"candidates": [{"finishReason": finish_reason}]})
    return finish(gathered)


def test_geminis_text_is_joined_and_parts_with_signatures_stay_as_they_are() -> None:
    signed = {"text": "c", "thoughtSignature": "s"}
    call = {"functionCall": {"name": "clock", "args": {}}, "thoughtSignature": "t"}

    thoughts = [{"text": "Hm", "thought": True}, {"text": "m.", "thought": True}]

    result = gemini(*thoughts, {"text": "a"}, {"text": "b"}, signed, {"text": "d"}, call)

    assert (result.text, result.reasoning) == ("abcd", "Hmm.")
    assert result.raw["parts"] == [
        {"text": "Hmm.", "thought": True}, {"text": "ab"}, signed, {"text": "d"}, call,
    ]  # fmt: skip


def test_geminis_calls_without_ids_get_some_and_the_raw_content_stays_without() -> None:
    result = gemini(
        {"functionCall": {"name": "one", "args": {"n": 1}}}, {"functionCall": {"name": "two", "id": "x"}}
    )

    assert calls(result) == [("call_0", "one", {"n": 1}), ("x", "two", {})]
    assert "id" not in result.raw["parts"][0]["functionCall"]


def test_geminis_arguments_that_arrive_in_pieces_are_never_run() -> None:
    for piece in ({"partialArgs": [{"jsonPath": "$.n"}]}, {"willContinue": True}):
        result = gemini({"functionCall": {"name": "one", **piece}})
        assert result.tool_calls[0].arguments is None


def test_geminis_arguments_that_the_platform_cannot_carry_go_back_empty() -> None:
    result = gemini({"functionCall": {"name": "one", "args": {"n": 2**60}}})

    assert result.tool_calls[0].arguments is None and str(2**60) in result.tool_calls[0].malformed
    assert result.raw["parts"][0]["functionCall"]["args"] == {}


@pytest.mark.parametrize(
    ("finish", "stop"), [("STOP", "end"), ("MAX_TOKENS", "length"), ("SAFETY", "refusal"), ("NEW", "other")]
)
def test_geminis_finish_reasons_are_translated(finish: str, stop: str) -> None:
    assert gemini({"text": "x"}, finish_reason=finish).stop_reason == stop


def test_a_prompt_that_gemini_blocks_is_a_refusal() -> None:
    gathered = Gemini()
    gathered.feed({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})

    assert (finish(gathered).text, finish(gathered).stop_reason) == ("", "refusal")


def test_a_call_that_gemini_could_not_read_may_be_asked_for_again() -> None:
    with pytest.raises(WonderError) as raised:
        gemini({"text": "x"}, finish_reason="MALFORMED_FUNCTION_CALL")
    assert raised.value.fault.transient


# --- all of them ---------------------------------------------------------------------------------------

FORMATS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "event",
    [
        [], "text", 5, None, {"choices": 5}, {"choices": [{"delta": {"tool_calls": [5]}}]},
        {"type": "content_block_delta"}, {"type": "response.completed", "response": 5},
        {"type": "response.output_item.done", "output_index": {}, "item": {}},
        {"candidates": [{"content": {"parts": [5]}}]},
    ],
)  # fmt: skip
def test_events_of_unknown_shape_are_ignored_or_unreadable(name: str, event: JsonValue) -> None:
    try:
        feed(accumulator(name), event)
    except WonderError as problem:
        assert problem.fault.reason is Reason.MODEL_UNAVAILABLE and problem.fault.transient


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_stream_is_not_an_answer(name: str) -> None:
    with pytest.raises(WonderError, match="broke off"):
        finish(accumulator(name))


def test_a_call_in_a_cut_answer_whose_arguments_never_came_is_malformed() -> None:
    cut = chat(
        piece("", index=0, id="a", name="one"), piece("", index=1, id="b", name="two"), finish_reason="length"
    )

    assert [call.arguments for call in cut.tool_calls] == [{}, None]
    block_ = block(0, {"type": "tool_use", "id": "t", "name": "clock", "input": {}})
    assert anthropic(*block_, stop="max_tokens").tool_calls[0].arguments is None


def test_thinking_is_repeated_with_tool_calls_only() -> None:
    thought = {"reasoning_content": "Hm."}

    assert chat(thought, piece("", index=0, id="a")).raw["reasoning_content"] == "Hm."
    assert "reasoning_content" not in chat(thought, {"content": "Yes."}, finish_reason="stop").raw
    assert chat({"reasoning": "Hm."}, {"content": "Yes."}, finish_reason="stop").reasoning == "Hm."


@pytest.mark.parametrize("count", [-1, 1.5, "7", True, 2**60, None])
def test_invalid_counts_are_ignored(count: JsonValue) -> None:
    gathered = OpenAIChat()
    gathered.feed({"usage": {"prompt_tokens": count}, "choices": [{"finish_reason": "stop"}]})

    assert finish(gathered).usage.input_tokens is None
