"""What every adapter of the model port does, in every format that it speaks."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.conformance.models.subjects import Subject, collect, with_results
from wonder_server.ports.model import TextDelta

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_text_arrives_in_pieces_that_add_up_to_the_result(subject: Subject) -> None:
    texts, result = await collect(subject.model, *subject.case("words-50"))

    assert len(texts) == 50
    assert "".join(texts) == result.text
    assert result.stop_reason == "end"
    assert result.tool_calls == ()


async def test_the_raw_message_holds_the_text_in_the_format_of_the_request(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("text"))

    said = result.text if subject.format == "openai_chat" else [{"type": "text", "text": result.text}]
    assert result.raw == {"role": "assistant", "content": said}


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

    if subject.format == "openai_chat":
        repeated = [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in result.raw["tool_calls"]
        ]
    else:
        blocks = [block for block in result.raw["content"] if block["type"] == "tool_use"]
        repeated = [(block["id"], block["name"], block["input"]) for block in blocks]
    assert repeated == [(call.id, call.name, call.arguments) for call in result.tool_calls]


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


async def test_arguments_that_do_not_parse_are_told_apart_and_harm_no_other_call(subject: Subject) -> None:
    _, result = await collect(subject.model, *subject.case("bad-arguments"))

    broken, whole = result.tool_calls
    assert (broken.arguments, broken.malformed) == (None, '{"city": "Par')
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

    assert {len(texts) for texts, _ in answers} == {50}


async def test_a_stream_can_be_left_early(subject: Subject) -> None:
    chunks = subject.model.stream(*subject.case("slow"))

    first = await anext(chunks)
    await chunks.aclose()  # type: ignore[attr-defined]

    assert isinstance(first, TextDelta)
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)
