"""Reasoning and tool calls of every adapter of the model port while they stream."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from tests.conformance.models.subjects import RemoteSubject, Subject
from tests.fakes.provider import Call, Provider, Script
from wonder_server.adapters.models.formats import FORMATS, accumulator, feed, take_pieces
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult
from wonder_server.ports.model import ArgumentsDelta, Finished, ReasoningDelta, TextDelta

pytestmark = pytest.mark.asyncio(loop_scope="session")

Streamed = list[TextDelta | ReasoningDelta | ArgumentsDelta]

MIXED = Script(
    thought="They want the weather, so I ask twice: 漢字 🙂.",
    text="One moment, please.",
    calls=(Call(name="weather", arguments='{"city": "Łódź", "days": 3}'), Call(name="clock")),
)


async def stream(subject: Subject, case: str) -> tuple[Streamed, ModelResult]:
    """Return the pieces of an answer, and its result."""
    pieces: Streamed = []
    result: ModelResult | None = None
    async with aclosing(subject.model.stream(*subject.case(case))) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            if isinstance(chunk, Finished):
                result = chunk.result
            elif isinstance(chunk, TextDelta | ReasoningDelta | ArgumentsDelta):
                pieces.append(chunk)
    assert result is not None
    return pieces, result


def arguments(pieces: Streamed) -> dict[int, str]:
    written: dict[int, str] = {}
    for piece in pieces:
        if isinstance(piece, ArgumentsDelta):
            written[piece.index] = written.get(piece.index, "") + piece.text
    return written


async def test_reasoning_text_and_calls_stream_in_order(remote: RemoteSubject, provider: Provider) -> None:
    provider.script("mixed", MIXED)

    pieces, result = await stream(remote, "mixed")

    assert "".join(each.text for each in pieces if isinstance(each, ReasoningDelta)) == MIXED.thought
    assert "".join(each.text for each in pieces if isinstance(each, TextDelta)) == MIXED.text
    assert result.reasoning == MIXED.thought
    kinds = [type(each) for each in pieces]
    assert kinds == sorted(kinds, key=[ReasoningDelta, TextDelta, ArgumentsDelta].index)
    assert kinds.count(ReasoningDelta) > 1


async def test_the_arguments_of_each_call_stream_under_its_name_and_id(subject: Subject) -> None:
    pieces, result = await stream(subject, "parallel")

    found = {each.index: (each.call_id, each.name) for each in pieces if isinstance(each, ArgumentsDelta)}
    assert [name for _, name in found.values()] == ["weather", "clock"]
    for index, call in enumerate(result.tool_calls):
        # Gemini sends no ids; the server makes them when the answer is complete.
        assert found[index][0] in ("", call.id)
    first, second = arguments(pieces)[0], arguments(pieces)[1]
    assert '"Łódź"' in first and '"UTC"' in second


async def test_a_call_without_arguments_is_announced(subject: Subject) -> None:
    pieces, _ = await stream(subject, "no-arguments")

    assert next(each.name for each in pieces if isinstance(each, ArgumentsDelta)) == "clock"
    assert arguments(pieces)[0] in ("", "{}")


def fed(format_name: str, *events: JsonDict) -> Streamed:
    gathered = accumulator(format_name)
    return [piece for event in events for piece in take_pieces(gathered, feed(gathered, event))]


async def test_a_server_that_calls_reasoning_by_its_other_name_is_understood() -> None:
    pieces = fed("openai_chat", {"choices": [{"index": 0, "delta": {"reasoning": "Hm", "content": "Yes"}}]})

    assert pieces == [ReasoningDelta("Hm"), TextDelta("Yes")]


async def test_arguments_that_arrive_whole_are_streamed_once() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "clock", "arguments": '{"zone": 1}'}
    done = {"type": "response.output_item.done", "output_index": 0, "item": call}
    end = {"type": "response.completed", "response": {"status": "completed", "output": [call]}}
    assert arguments(fed("openai_responses", done, end)) == {0: '{"zone": 1}'}
    assert arguments(fed("openai_responses", end)) == {0: '{"zone": 1}'}

    block = {"type": "tool_use", "id": "c", "name": "clock", "input": {"zone": 1}}
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    stop = {"type": "content_block_stop", "index": 0}
    assert arguments(fed("anthropic_messages", start, stop)) == {0: '{"zone": 1}'}


async def test_calls_that_the_provider_executes_are_not_streamed() -> None:
    block = {"type": "server_tool_use", "id": "c", "name": "web_search", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"query"'}
    pieces = fed(
        "anthropic_messages",
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
    )
    assert pieces == []


async def test_half_a_character_is_no_text_for_a_client() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "clock", "arguments": "\ud83d"}}
    [piece] = fed("openai_chat", {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    assert piece.text == "�"


@pytest.mark.parametrize("format_name", FORMATS)
async def test_an_accumulator_keeps_no_piece_that_was_taken(format_name: str) -> None:
    gathered = accumulator(format_name)
    assert take_pieces(gathered, "") == [] and gathered.asides == []
