"""Tests of requests that are longer than the model's context window."""

from __future__ import annotations

import pytest

from tests.core.conversation.conversation_kit import Driven, agent
from tests.replacing import replace
from wonder_server.core.conversation.context.fitting import fit_request
from wonder_server.core.conversation.context.window import TrimmedRequest
from wonder_server.core.definitions.specs import ContextWindow
from wonder_server.core.json_types import JsonDict, JsonValue
from wonder_server.core.request_formats import FORMATS
from wonder_server.core.token_estimates import json_tokens

CALL = {"id": "c1", "name": "read", "arguments": {}}


def neutral(*lengths: int, result: int = 0) -> list[JsonDict]:
    """Return a talk whose messages have these lengths, and a tool's result after the last one."""
    talk: list[JsonDict] = [
        {"role": "assistant" if place % 2 else "user", "content": str(place) + "x" * length}
        for place, length in enumerate(lengths)
    ]
    if result:
        talk.append({"role": "assistant", "content": "", "tool_calls": [CALL]})
        talk.append({"role": "tool", "tool_call_id": "c1", "name": "read", "content": "z" * result})
    return talk


def request(name: str, messages: list[JsonDict], system: str = "Be brief.") -> JsonDict:
    written = FORMATS[name].write_messages(messages)
    match name:
        case "openai_chat":
            return {"messages": [{"role": "system", "content": system}, *written]}
        case "openai_responses":
            return {"instructions": system, "input": written}
        case "anthropic_messages":
            return {"system": system, "messages": written}
    return {"systemInstruction": {"parts": [{"text": system}]}, "contents": written}


def fit(name: str, body: JsonDict, limit: int, keep: int = 0) -> TrimmedRequest | None:
    driven, made = Driven(), agent(dialect=name)
    persona = replace(made.persona, context_window=ContextWindow(keep_recent_messages=keep))
    return fit_request(driven.state, driven.turn, replace(made, persona=persona), body, limit)


@pytest.mark.parametrize("name", FORMATS)
def test_a_request_that_fits_stays(name: str) -> None:
    assert fit(name, request(name, neutral(100, 100, 100)), 1000) is None
    assert fit(name, request(name, neutral(9999)), 0) is None


@pytest.mark.parametrize("name", FORMATS)
def test_the_oldest_messages_go_down_to_a_share_of_the_limit(name: str) -> None:
    smaller = fit(name, request(name, neutral(*[400] * 21)), 1000)
    assert smaller is not None and 500 <= smaller.tokens_after <= 800
    left = smaller.body[FORMATS[name].messages]
    assert f"[Note: {smaller.omitted_messages} older messages are left out.]" in str(smaller.body)
    assert str(left[-1]).count("20x") == 1


@pytest.mark.parametrize("name", FORMATS)
def test_a_request_has_one_notice(name: str) -> None:
    """A notice of the assembly and one of a later move become one with the sum."""
    system = "A [Note: 1 older messages are left out.]\n\n[Note: 40 older messages are left out.]"
    body = request(name, neutral(*[400] * 21), system)
    smaller = fit(name, body, 1000)
    assert smaller is not None
    text, count = str(smaller.body), 40 + smaller.omitted_messages
    assert f"[Note: {count} older messages are left out.]" in text
    assert text.count("[Note: ") == 2 and "[Note: 1 older" in text and len(smaller.body) == len(body)


@pytest.mark.parametrize("name", FORMATS)
def test_the_newest_messages_stay_and_are_cut(name: str) -> None:
    smaller = fit(name, request(name, neutral(*[4000] * 7)), 1000, keep=4)
    assert smaller is not None and smaller.omitted_messages == 2 and smaller.tokens_after <= 1000
    assert str(smaller.body).count("bytes are left out here") == 5


@pytest.mark.parametrize(
    ("name", "size"), [*((name, 1 << 20) for name in FORMATS), ("openai_chat", 50_000_000)]
)
def test_a_message_or_a_result_larger_than_the_window_is_cut(name: str, size: int) -> None:
    for messages in (neutral(size), neutral(10, result=size)):
        smaller = fit(name, request(name, messages), 4000)
        assert smaller is not None and smaller.tokens_after <= 4000 and not smaller.omitted_messages
        assert json_tokens(smaller.body) > 500
        assert "bytes are left out here" in str(smaller.body)


def test_structured_results_and_several_blocks_are_cut_too() -> None:
    many = [{"text": "z" * 9000}, {"note": ["y" * 9000, 1]}]
    response = {"functionResponse": {"name": "f", "response": {"output": many}}}
    for body, name in (
        (
            {"contents": [{"role": "user", "parts": [{"text": "x"}]}, {"role": "user", "parts": [response]}]},
            "gemini",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "z" * 9000}, {"type": "image"}]}
                ]
            },
            "openai_chat",
        ),
    ):
        smaller = fit(name, body, 800)
        assert smaller is not None and smaller.tokens_after <= 800


def test_parts_that_providers_require_unchanged_are_not_cut() -> None:
    kept: list[JsonValue] = [
        {"type": "thinking", "thinking": "t" * 9000, "signature": "s"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"text": "i" * 9000}},
    ]
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r" * 90_000}],
    }
    body = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": kept}, result]}
    smaller = fit("anthropic_messages", body, 6000)
    assert smaller is not None and smaller.tokens_after <= 6000
    assert smaller.body["messages"][1]["content"] is kept


@pytest.mark.parametrize("body", [{}, {"messages": "none"}, {"messages": [3, None, []]}])
def test_a_request_without_texts_stays_as_it_is(body: JsonDict) -> None:
    assert fit("openai_chat", {**body, "long": "x" * 9000}, 10) is None
