"""The behavior of every adapter of the model port, in every format."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.conformance.models.subjects import Subject, collect, with_results
from wonder_server.adapters.models.offline.model import OfflineModel
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.ports.model import TextDelta, UsageUpdate

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_text_arrives_in_pieces_that_add_up_to_the_result(subject: Subject) -> None:
    texts, result = await collect(subject.model, *subject.case("words-50"))

    assert texts and all(texts)
    assert "".join(texts) == result.text
    assert len(result.text.split()) == 50
    assert result.stop_reason == "end"
    assert result.tool_calls == ()


async def test_text_arrives_as_it_is_said(subject: Subject) -> None:
    chunks = subject.model.stream(*subject.case("slow"))

    pieces = [await anext(chunks) for _ in range(6)]
    await chunks.aclose()  # type: ignore[attr-defined]

    # Some providers report input tokens before the answer.
    assert sum(isinstance(piece, TextDelta) for piece in pieces) >= 5
    assert all(isinstance(piece, TextDelta | UsageUpdate) for piece in pieces)
    assert sum(len(piece.text.split()) for piece in pieces if isinstance(piece, TextDelta)) < 50


async def test_the_raw_message_holds_the_text_in_the_format_of_the_request(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("text"))

    match subject.format:
        case "openai_chat":
            assert result.raw == {"role": "assistant", "content": result.text}
        case "anthropic_messages":
            said = [{"type": "text", "text": result.text}]
            assert result.raw == {"role": "assistant", "content": said}
        case "openai_responses":
            [item] = result.raw["output"]
            assert (item["type"], item["role"]) == ("message", "assistant")
            assert item["content"] == [{"type": "output_text", "text": result.text, "annotations": []}]
        case "gemini":
            assert result.raw == {"role": "model", "parts": [{"text": result.text}]}


async def test_usage_is_counted(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("text"))

    assert result.usage.input_tokens is not None and result.usage.input_tokens > 0
    assert result.usage.output_tokens is not None and result.usage.output_tokens > 0


async def test_a_tool_call_arrives_whole(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("tool"))

    [call] = result.tool_calls
    assert (call.name, call.arguments, call.malformed) == ("weather", {"city": "Łódź", "days": 3}, "")
    assert call.id
    assert result.stop_reason == "tool_calls"


async def test_parallel_tool_calls_keep_their_arguments_apart(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("parallel"))

    assert [(call.name, call.arguments) for call in result.tool_calls] == [
        ("weather", {"city": "Łódź", "days": 3}),
        ("clock", {"zone": "UTC"}),
    ]
    assert len({call.id for call in result.tool_calls}) == 2


async def test_the_raw_message_repeats_the_tool_calls(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("parallel"))

    repeated = repeated_calls(subject.format, result.raw)
    if subject.format == "gemini":  # Gemini matches calls by their order, so ids are optional.
        repeated = [
            (call_id or call.id, name, arguments)
            for (call_id, name, arguments), call in zip(repeated, result.tool_calls, strict=True)
        ]
    assert repeated == [(call.id, call.name, call.arguments) for call in result.tool_calls]


def repeated_calls(request_format: str, raw: JsonDict) -> list[tuple[str, str, JsonValue]]:
    """Return the tool calls of a model's own message: id, name, arguments."""
    match request_format:
        case "openai_chat":
            return [
                (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in raw["tool_calls"]
            ]
        case "openai_responses":
            items = [item for item in raw["output"] if item["type"] == "function_call"]
            return [(item["call_id"], item["name"], json.loads(item["arguments"])) for item in items]
        case "gemini":
            calls = [part["functionCall"] for part in raw["parts"] if "functionCall" in part]
            return [(call.get("id", ""), call["name"], call["args"]) for call in calls]
        case _:
            blocks = [block for block in raw["content"] if block["type"] == "tool_use"]
            return [(block["id"], block["name"], block["input"]) for block in blocks]


async def test_the_conversation_goes_on_with_the_raw_message_and_the_results(subject: Subject) -> None:
    profile, request = subject.case("tool")
    _, result = await collect(subject.model, profile, request)

    _, answer = await collect(subject.model, profile, with_results(subject.format, request, result))

    assert answer.text
    assert answer.tool_calls == ()
    assert answer.stop_reason == "end"


async def test_no_arguments_are_an_empty_object(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("no-arguments"))

    assert [call.arguments for call in result.tool_calls] == [{}]


async def test_malformed_arguments_are_marked_and_affect_no_other_call(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("bad-arguments"))

    broken, whole = result.tool_calls
    assert broken.arguments is None
    # Gemini's arguments are objects: what is not whole never arrives as text.
    whole_text = subject.format != "gemini" or isinstance(subject.model, OfflineModel)
    assert broken.malformed == ('{"city": "Par' if whole_text else "{")
    assert whole.arguments == {"zone": "UTC"}


@pytest.mark.parametrize("case", ["deep-arguments", "huge-number"])
async def test_arguments_that_no_struct_can_carry_are_malformed(subject: Subject, case: str) -> None:
    _, result = await collect(subject.model, *subject.case(case))

    [call] = result.tool_calls
    assert call.arguments is None
    assert call.malformed


async def test_an_answer_that_was_cut_says_so(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("length"))

    assert result.stop_reason == "length"


async def test_streams_run_side_by_side(subject: Subject) -> None:
    answers = await asyncio.gather(*(collect(subject.model, *subject.case("words-50")) for _ in range(20)))

    assert {len(result.text.split()) for _, result in answers} == {50}


async def test_a_stream_can_be_left_early(subject: Subject) -> None:
    chunks = subject.model.stream(*subject.case("slow"))

    first = await anext(chunks)
    await chunks.aclose()  # type: ignore[attr-defined]

    assert isinstance(first, TextDelta | UsageUpdate)
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)
