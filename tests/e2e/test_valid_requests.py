"""Requests are valid whatever was said before and whatever parameters a profile has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.client import Client
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_pb2 as conversation

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED = conversation.TURN_STATUS_COMPLETED

PARAMETERS: dict[str, dict[str, Any]] = {
    "openai": {
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "response_format": {"type": "json_object"},
        "max_completion_tokens": 300,
        "stop": ["END"],
        "n": 2,
    },
    "responses": {"parallel_tool_calls": False, "tool_choice": "auto", "max_output_tokens": 300},
    "anthropic": {
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["END"],
    },
    "gemini": {
        "generationConfig": {"maxOutputTokens": 300, "stopSequences": ["END"]},
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    },
}


@pytest.mark.parametrize("speaks", PROVIDERS)
@pytest.mark.parametrize("blank", ["\n\n", " "])
async def test_an_answer_of_white_space_does_not_wedge_the_conversation(
    client: Client, provider: Provider, speaks: str, blank: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    conv = await client.open(await scripted.agent(Script(text=blank), Script(text="Still here.")))
    first, _ = await client.turn(conv, "Say nothing.")
    second, view = await client.turn(conv, "Are you there?")
    third, _ = await client.turn(conv, "And now?")
    assert [each.status for each in (first, second, third)] == [COMPLETED] * 3
    assert "Still here." in view.text()
    assert provider.rejections == []


@pytest.mark.parametrize("speaks", PROVIDERS)
async def test_the_model_receives_the_failure_of_calls_with_invalid_tool_names(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    calls = tuple(Call(name=name, arguments="{}") for name in ("9 lives", "é", "x" * 90))
    conv = await client.open(await scripted.agent(Script(calls=calls), Script(text="Done.")))
    turn, _ = await client.turn(conv, "Call.")
    assert turn.status == COMPLETED and turn.move_count == 2
    assert len(scripted.requests) == 2


@pytest.mark.parametrize("speaks", PARAMETERS)
async def test_extraction_and_summaries_hold_whatever_the_profile_says(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        Script(text="word " * 300),
        Script(text="[]"),
        Script(text="Yes."),
        Script(text="[]"),
        Script(text="They spoke of words."),
        Script(text="I see."),
        Script(text='[{"content": "Ann likes tea."}]'),
        tools=(),
        extraction="",
        window={"strategy": "summarize", "threshold": 0.4, "keep_recent_messages": 1},
        context_window_tokens=1200,
        parameters=PARAMETERS[speaks],
    )
    conv = await client.open(agent)
    first, _ = await client.turn(conv, "Speak at length. " + "more " * 200)
    # A summary replaces whole turns, and the newest one stays.
    second, _ = await client.turn(conv, "Is that all?")
    third, view = await client.turn(conv, "I like tea. " + "and " * 100)
    turns = (first, second, third)
    assert [turn.status for turn in turns] == [COMPLETED] * 3
    assert "memory_extraction.failed" not in [event.name for event in await client.events(conv)]
    [reduced] = [event.context_reduced for event in view.events if event.name == "context.reduced"]
    assert reduced.summarized and reduced.messages_left_out == 2
    assert await client.memories(agent) == ["Ann likes tea."]
    assert len(scripted.requests) == 7 == sum(turn.usage.model_calls for turn in turns)
