"""The rules of the offline model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.conformance.models.subjects import WEATHER_SCHEMA, ask, collect, with_results
from wonder_server.adapters.models.offline.model import INTRODUCTION, OfflineModel
from wonder_server.core.conversation.context.dialects import DIALECTS
from wonder_server.core.definitions.specs import ModelProfile
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.model import ModelResult

TEXT = {"type": "object", "properties": {"limit": {"type": "integer"}, "content": {"type": "string"}}}
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
MEMORIES = "You are kind.\n\nMemories:\n- The user's dog is called Bo\n- The user lives in Łódź\n\nBe brief."


async def say(request_format: str, text: str, *, system: str = "", **tools: JsonDict) -> ModelResult:
    profile = ModelProfile(provider="offline", format=request_format)
    _, result = await collect(OfflineModel(), profile, ask(request_format, text, system=system, **tools))
    return result


def called(result: ModelResult) -> list[tuple[str, JsonValue]]:
    return [(call.name, call.arguments) for call in result.tool_calls]


async def test_it_says_what_it_is(request_format: str) -> None:
    for text in ("Who are you?", "hello", "Hello there!", "hi there", "What can you do?", ""):
        assert (await say(request_format, text)).text == INTRODUCTION


async def test_it_repeats_what_it_has_no_rule_for(request_format: str) -> None:
    result = await say(request_format, "The sky is green.", remember=TEXT)

    assert "The sky is green." in result.text
    assert "remember" in result.text


@pytest.mark.parametrize(
    "text", ["Remember that I like tea.", "please remember: I like tea", "remember I like tea"]
)
async def test_asked_to_remember_it_calls_remember(request_format: str, text: str) -> None:
    assert called(await say(request_format, text, remember=TEXT)) == [("remember", {"content": "I like tea"})]


@pytest.mark.parametrize(
    "text", ["What is my dog called?", "do you remember my dog?", "What do you know about dogs?"]
)
async def test_what_is_remembered_answers_the_question(request_format: str, text: str) -> None:
    result = await say(request_format, text, system=MEMORIES, recall=QUERY)

    assert "Bo" in result.text
    assert "Łódź" not in result.text
    assert result.tool_calls == ()


async def test_asked_for_everything_it_tells_every_memory(request_format: str) -> None:
    result = await say(request_format, "What do you remember about me?", system=MEMORIES)

    assert "Bo" in result.text and "Łódź" in result.text


async def test_a_question_without_a_matching_memory_calls_recall(request_format: str) -> None:
    result = await say(request_format, "What is my cat called?", system=MEMORIES, memory_recall=QUERY)

    assert called(result) == [("memory_recall", {"query": "What is my cat called?"})]


async def test_a_file_after_the_question_does_not_make_the_query_too_long(request_format: str) -> None:
    text = f"What is my cat called?\n{'licence ' * 500}"
    result = await say(request_format, text, system=MEMORIES, memory_recall=QUERY)

    assert called(result) == [("memory_recall", {"query": text[:1000]})]


async def test_without_memories_and_tools_it_still_answers(request_format: str) -> None:
    assert (await say(request_format, "What is my cat called?")).text


async def test_an_offered_tool_is_called_by_name_with_json_or_words(request_format: str) -> None:
    text = 'run weather {"city": "Oslo"}\nask researcher to find bees\nrun nonsense {"a": 1}'

    result = await say(request_format, text, weather=QUERY, researcher=QUERY)

    assert called(result) == [("weather", {"city": "Oslo"}), ("researcher", {"query": "find bees"})]
    assert len({call.id for call in result.tool_calls}) == 2


@pytest.mark.parametrize(
    "context", ["", "[Context, added by the platform]\nIt is 2026-11-23 09:05 UTC.\n\n[Message]\n"]
)
@pytest.mark.parametrize(
    "label", ["[user bob] ", "[user Mia (usr_1)] ", "[agent researcher] ", "[user bob]\n "]
)
async def test_the_label_of_a_speaker_is_no_part_of_the_words(
    request_format: str, context: str, label: str
) -> None:
    before = context + label
    assert (await say(request_format, before + "hello")).text == INTRODUCTION
    result = await say(request_format, before + 'use the tool weather with {"city": "Oslo"}', weather=QUERY)
    assert called(result) == [("weather", {"city": "Oslo"})]


async def test_other_words_in_brackets_are_words(request_format: str) -> None:
    assert "“[todo] hello”" in (await say(request_format, "[todo] hello")).text


async def test_tool_results_are_reported_in_words(request_format: str) -> None:
    request = ask(request_format, 'run weather {"city": "Oslo"}', weather=QUERY)
    profile = ModelProfile(provider="offline", format=request_format)
    _, first = await collect(OfflineModel(), profile, request)

    _, answer = await collect(OfflineModel(), profile, with_results(request_format, request, first))

    assert answer.text == "The tool weather answered: weather is fine."


async def test_a_failed_tool_is_reported_with_one_full_stop(request_format: str) -> None:
    profile = ModelProfile(provider="offline", format=request_format)
    request = ask(request_format, "run weather", weather=WEATHER_SCHEMA)
    _, first = await collect(OfflineModel(), profile, request)
    error = json.dumps({"error": {"message": "Call the tool again with a valid one."}})
    failed = json.dumps(with_results(request_format, request, first))
    failed = failed.replace('"weather is fine"', json.dumps(error))

    _, result = await collect(OfflineModel(), profile, json.loads(failed))

    assert result.text == "The tool weather failed: Call the tool again with a valid one."


async def test_keep_using_repeats_the_call_until_tools_are_forbidden(request_format: str) -> None:
    request = ask(request_format, "keep using the tool weather with {}", weather=QUERY)
    profile = ModelProfile(provider="offline", format=request_format)
    _, first = await collect(OfflineModel(), profile, request)
    after = with_results(request_format, request, first)

    _, again = await collect(OfflineModel(), profile, after)
    _, last = await collect(OfflineModel(), profile, DIALECTS[request_format].wrap_up(after, "Stop."))

    assert [call.name for call in again.tool_calls] == ["weather"]
    assert again.tool_calls[0].id != first.tool_calls[0].id
    assert (last.tool_calls, last.stop_reason) == ((), "end")


async def test_the_same_request_always_gets_the_same_answer(request_format: str) -> None:
    once = await say(request_format, "run weather {}", weather=QUERY)

    assert await say(request_format, "run weather {}", weather=QUERY) == once


async def test_it_says_the_requested_number_of_words(request_format: str) -> None:
    result = await say(request_format, "say 7 words")

    assert len(result.text.split()) == 7
    assert result.usage.output_tokens == 7


async def test_it_reads_requests_of_an_unexpected_shape() -> None:
    strange: list[JsonDict] = [
        {},
        {"messages": None, "tools": None},
        {"messages": ["text", {"role": "user"}, {"role": "user", "content": [1, {"type": "text"}]}]},
        {"messages": [{"role": "tool", "content": "x"}], "max_tokens": "many"},
    ]
    for request in strange:
        for request_format in ("openai_chat", "anthropic_messages"):
            profile = ModelProfile(provider="offline", format=request_format)
            _, result = await collect(OfflineModel(), profile, request)
            assert result.text


async def test_a_format_that_it_does_not_read_is_refused() -> None:
    with pytest.raises(WonderError) as raised:
        await collect(OfflineModel(), ModelProfile(provider="offline", format="morse"), {})
    assert raised.value.fault.reason is Reason.NOT_IMPLEMENTED


async def test_the_pause_between_tokens_changes_nothing_else() -> None:
    quick = ModelProfile(provider="offline")
    slow = replace(quick, parameters={"token_delay_ms": 0.1})
    request = ask("openai_chat", "say 3 words")

    said_at_once, result = await collect(OfflineModel(), quick, request)
    said_slowly, same = await collect(OfflineModel(), slow, request)

    assert result == same
    assert (said_at_once, said_slowly) == (["word1 word2 word3"], ["word1 ", "word2 ", "word3"])


async def test_a_long_answer_without_pauses_leaves_others_their_turn() -> None:
    texts, result = await collect(
        OfflineModel(), ModelProfile(provider="offline"), ask("openai_chat", "say 150 words")
    )

    assert [len(text.split()) for text in texts] == [64, 64, 22]
    assert "".join(texts) == result.text


async def test_asked_to_think_it_reasons_before_it_answers(request_format: str) -> None:
    result = await say(request_format, "think about what my dog is called. Where is Bo?", system=MEMORIES)
    assert result.reasoning.startswith("The message is: “what my dog is called. Where is Bo?”.")
    assert "Bo" in result.text and "think" not in result.text
    assert result.usage.reasoning_tokens == len(result.reasoning.split())
    assert result.usage.output_tokens == len(f"{result.reasoning} {result.text}".split())
    assert (await say(request_format, "say 2 words")).reasoning == ""


async def test_the_words_after_answer_with_are_the_answer(request_format: str) -> None:
    result = await say(request_format, 'answer with {"remember": 3}\nWhere?', remember=TEXT, recall=QUERY)
    assert (result.text, result.tool_calls) == ('{"remember": 3}\nWhere?', ())
