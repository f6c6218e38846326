"""`BoundedModel`: the streamed text equals the stored text, and the complete answer follows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from wonder_server.adapters.models.bounded import BoundedModel, Bounds
from wonder_server.adapters.models.formats import message
from wonder_server.core.conversation.context.dialects import DIALECTS
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import ModelResult, ToolCall, Usage
from wonder_server.core.schema.truncation import is_notice
from wonder_server.ports.model import Chunk, Finished, TextDelta, UsageUpdate

BOUNDS = Bounds(text=2_000, arguments=1_000, raw=4_000, answer=50_000)
PROFILE = ModelProfile(provider="openai", model="m", format="openai_chat")


class ScriptedModel:
    """A model that streams pieces and ends with an answer; without an answer it never ends."""

    def __init__(self, *pieces: str, result: ModelResult | None = None) -> None:
        self.pieces = pieces
        self.result = result
        self.said = 0
        self.closed = False

    async def stream(self, profile: ModelProfile, request: JsonDict) -> AsyncIterator[Chunk]:
        try:
            yield UsageUpdate(Usage(input_tokens=7), 0)
            while True:
                for piece in self.pieces:
                    self.said += 1
                    yield TextDelta(piece)
                if self.result is not None:
                    yield Finished(self.result)
                    return
        finally:
            self.closed = True

    async def close(self) -> None:
        pass


async def streamed_text(speaker: ScriptedModel, profile: ModelProfile = PROFILE) -> tuple[str, Finished]:
    """Return the streamed text and the last chunk."""
    text, last = "", None
    async for chunk in BoundedModel(speaker, BOUNDS).stream(profile, {"messages": []}):
        assert last is None, "the end is last"
        if isinstance(chunk, TextDelta):
            text += chunk.text
        elif isinstance(chunk, Finished):
            last = chunk
    assert last is not None and speaker.closed
    return text, last


def answer(text: str, *calls: ToolCall, format_name: str = "openai_chat", **fields: Any) -> ModelResult:
    raw = message(format_name, text, calls)
    return ModelResult(text=text, tool_calls=calls, **{"raw": raw, **fields})


@pytest.mark.parametrize("size", [0, 1, 1_800, 2_000])
async def test_an_answer_within_bounds_is_left_alone(size: int) -> None:
    result = answer("x" * size)
    text, last = await streamed_text(ScriptedModel(*("x" * size), result=result))
    assert text == result.text
    assert last.result is result and last.untruncated is None


@pytest.mark.parametrize("piece", ["x", "ü", "漢字", "🙂", "a🙂" * 700])
async def test_a_long_text_is_cut_and_what_was_streamed_is_what_is_kept(piece: str) -> None:
    pieces = [piece] * (9_000 // len(piece.encode()))
    result = answer("".join(pieces))
    text, last = await streamed_text(ScriptedModel(*pieces, result=result))
    assert text == last.result.text
    assert len(text.encode()) <= BOUNDS.text
    begins, _, notice = text.rpartition("\n[Cut: ")
    assert result.text.startswith(begins) and len(begins.encode()) > 1_500
    size = len(result.text.encode())
    assert notice.startswith(f"{size - len(begins.encode())} of {size} bytes are left out here.")
    assert last.untruncated is result
    assert last.result.raw == {"role": "assistant", "content": text}


@pytest.mark.parametrize("format_name", DIALECTS)
async def test_arguments_that_are_too_long_are_left_out_and_the_message_stays_one_of_its_format(
    format_name: str,
) -> None:
    small = ToolCall(id="c1", name="note", arguments={"text": "short"})
    large = ToolCall(id="c2", name="note", arguments={"text": "漢" * 400})
    garbage = ToolCall(id="c3", name="note", arguments=None, malformed="{" * 2_000)
    result = answer("Hello", small, large, format_name=format_name)
    result = ModelResult(text="Hello", tool_calls=(small, large, garbage), raw=result.raw)
    profile = ModelProfile(provider="p", model="m", format=format_name)
    _, last = await streamed_text(ScriptedModel("Hello", result=result), profile)
    kept = last.result.tool_calls
    assert kept[0] == small
    assert [call.arguments for call in kept[1:]] == [None, None]
    assert "bytes are left out here" in kept[1].malformed
    empty = [ToolCall(id=call.id, name=call.name, arguments={}) for call in kept[1:]]
    assert last.result.raw == message(format_name, "Hello", [small, *empty])


async def test_all_arguments_together_have_a_limit_too() -> None:
    calls = tuple(ToolCall(id=f"c{n}", name="t", arguments={"text": "x" * 900}) for n in range(10))
    _, last = await streamed_text(ScriptedModel(result=answer("", *calls)))
    assert [call.arguments is None for call in last.result.tool_calls] == [False] * 4 + [True] * 6


async def test_a_raw_answer_that_is_too_large_is_written_anew() -> None:
    raw = {"role": "assistant", "content": "Hi", "reasoning_details": ["x" * 5_000]}
    _, last = await streamed_text(ScriptedModel("Hi", result=answer("Hi", raw=raw)))
    assert last.result.raw == {"role": "assistant", "content": "Hi"}
    assert last.untruncated is not None and last.untruncated.raw == raw


async def test_a_model_that_does_not_end_is_left_and_what_it_used_is_counted() -> None:
    speaker = ScriptedModel("word " * 100)
    text, last = await streamed_text(speaker)
    assert speaker.said == 101, "500 bytes each, 50,000 are read"
    assert len(text.encode()) <= BOUNDS.text
    assert last.result.stop_reason == "length"
    assert last.untruncated is not None and len(last.untruncated.text) == 50_500
    usage = last.result.usage
    assert usage.input_tokens == 7 and (usage.output_tokens or 0) > 5_000 and usage.estimated


@pytest.mark.parametrize("format_name", list(DIALECTS))
async def test_a_call_with_an_endless_name_or_id_is_refused_under_a_short_one(format_name: str) -> None:
    calls = [
        ToolCall(id="i" * 3_000_000, name="recall", arguments={"a": 1}),
        ToolCall(id="b", name="ü n" * 1_000_000, arguments={"a": 2}),
        ToolCall(id="c", name="recall", arguments={"a": 3}),
    ]
    profile = ModelProfile(provider="openai", model="m", format=format_name)
    result = answer("said", *calls, format_name=format_name)
    _, last = await streamed_text(ScriptedModel("said", result=result), profile)
    first, second, third = last.result.tool_calls
    assert first.id.startswith("call_") and len(first.id) == 37 and first.arguments == {"a": 1}
    assert second.id == "b" and second.name.startswith("__n__n") and second.name.endswith("_cut_off")
    assert len(second.name) <= 64 and second.arguments is None
    assert is_notice(second.malformed)
    assert third == calls[2]
    assert len(str(last.result.raw)) < 2_000 and last.untruncated is result


async def test_ids_of_many_calls_stay_within_the_bound_of_the_answer_too() -> None:
    calls = [ToolCall(id=f"{n}" * 1_500, name="t", arguments={}) for n in range(1, 10)]
    _, last = await streamed_text(ScriptedModel(result=answer("", *calls)))
    ids = [call.id for call in last.result.tool_calls]
    assert [len(each) for each in ids] == [1_500] * 2 + [37] * 7 and len(set(ids)) == 9
    assert all(call.arguments == {} for call in last.result.tool_calls)
