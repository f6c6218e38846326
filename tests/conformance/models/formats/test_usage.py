"""Usage in answers as providers send it."""

from __future__ import annotations

import pytest

from wonder_server.adapters.models.formats import accumulator, feed
from wonder_server.core.json_types import JsonDict
from wonder_server.core.model import Usage

CHUNK: JsonDict = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": []}


def usage_of(format_name: str, *events: JsonDict) -> Usage:
    gathered = accumulator(format_name)
    for event in events:
        feed(gathered, event)
    return gathered.usage_so_far


def chat(usage: JsonDict) -> Usage:
    return usage_of("openai_chat", {**CHUNK, "usage": usage})


CHAT = {"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306}


@pytest.mark.parametrize(
    ("reported", "read", "written"),
    [
        # OpenAI
        ({"prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0}}, 1920, None),
        # OpenRouter
        ({"prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 100}}, 5, 100),
        # LiteLLM, for Anthropic
        (
            {
                "prompt_tokens_details": {
                    "cached_tokens": 5,
                    "cache_creation_tokens": 90,
                    "text_tokens": None,
                },
                "cache_creation_input_tokens": 90,
                "cache_read_input_tokens": 5,
            },
            5,
            90,
        ),
        ({"cache_creation_input_tokens": 90, "cache_read_input_tokens": 5}, 5, 90),
        # DeepSeek
        ({"prompt_cache_hit_tokens": 1000, "prompt_cache_miss_tokens": 1006}, 1000, None),
        # Others
        ({"prompt_tokens_details": None}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": "many", "cache_write_tokens": -1}}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": 2**50}, "prompt_cache_hit_tokens": True}, None, None),
    ],
)
def test_chat_completions_report_caches_under_several_names(
    reported: JsonDict, read: int | None, written: int | None
) -> None:
    found = chat({**CHAT, "completion_tokens_details": {"reasoning_tokens": 256}, **reported})

    assert (found.input_tokens, found.output_tokens, found.reasoning_tokens) == (2006, 300, 256)
    assert (found.cached_input_tokens, found.cache_write_input_tokens) == (read, written)


def test_responses_report_cached_and_reasoning_tokens() -> None:
    usage = {
        "input_tokens": 328,
        "input_tokens_details": {"cached_tokens": 128},
        "output_tokens": 52,
        "output_tokens_details": {"reasoning_tokens": 40},
        "total_tokens": 380,
    }
    done = {"type": "response.completed", "response": {"status": "completed", "output": [], "usage": usage}}

    assert usage_of("openai_responses", done) == Usage(
        input_tokens=328, output_tokens=52, cached_input_tokens=128, reasoning_tokens=40
    )


def test_anthropic_counts_cached_tokens_beside_the_others() -> None:
    start = {
        "input_tokens": 50,
        "cache_creation_input_tokens": 248,
        "cache_read_input_tokens": 100_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100},
        "output_tokens": 1,
    }
    end = {"output_tokens": 503, "output_tokens_details": {"thinking_tokens": 400}}

    found = usage_of(
        "anthropic_messages",
        {"type": "message_start", "message": {"model": "m", "usage": start}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end},
    )

    assert found == Usage(
        input_tokens=100_298,
        output_tokens=503,
        cached_input_tokens=100_000,
        cache_write_input_tokens=248,
        hour_cache_write_tokens=100,
        reasoning_tokens=400,
    )


def test_gemini_reports_cached_tokens_and_thoughts() -> None:
    usage = {
        "promptTokenCount": 4000,
        "cachedContentTokenCount": 3500,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 180,
        "totalTokenCount": 4200,
    }

    assert usage_of("gemini", {"candidates": [], "usageMetadata": usage}) == Usage(
        input_tokens=4000, output_tokens=200, cached_input_tokens=3500, reasoning_tokens=180
    )
