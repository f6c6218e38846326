"""Every call of a model that its provider answered is charged: to its turn, its conversation, its agent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.conformance.models.subjects import KEY
from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import common_pb2 as common
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED, FAILED = conversation.TURN_STATUS_COMPLETED, conversation.TURN_STATUS_FAILED
PRICED = "gpt-4o-mini"
"""A model that the price table has."""
SAID = "one two three four five six seven eight"

ASKING_TWICE = """
name: ask_model
task:
  steps:
    - id: ask
      action: {kind: llm, max_attempts: 2, backoff_ms: 1}
      input_mapping:
        model_profile: '{"provider": "openai", "model": "MODEL", "format": "openai_chat"}'
        request: '{"model": "MODEL", "messages": [{"role": "user", "content": "And?"}]}'
      output_mapping: {output.text: result.text}
---
name: ask_model_tool
tool: {target_type: task, target_id: ask_model, description: Asks a model, input_schema: {type: object}}
"""


async def spent(client: Client, turn_id: str) -> common.Usage:
    request = pb.GetTurnRequest(turn_id=turn_id)
    return (await client.conversations.GetTurn(request)).turn.usage


async def charged_everywhere(client: Client, conv: str, turn_id: str, agent: str) -> common.Usage:
    """The turn's usage, which its conversation and its agent, that have no other turn, have too."""
    usage = await spent(client, turn_id)
    whole = (
        await client.conversations.GetConversation(pb.GetConversationRequest(conversation_id=conv))
    ).conversation
    assert whole.usage == usage
    found = (await client.library.GetAgent(library.GetAgentRequest(agent_id=agent))).agent.usage
    counted = (
        "input_tokens",
        "output_tokens",
        "model_calls",
        "cached_input_tokens",
        "cache_write_input_tokens",
        "reasoning_tokens",
    )
    assert [getattr(found, name) for name in counted] == [getattr(usage, name) for name in counted]
    return usage


@pytest.mark.parametrize("speaks", ["openai", "anthropic", "responses", "gemini"])
@pytest.mark.parametrize(
    ("answer", "remembered", "failed"),
    [
        ("There is nothing to keep, I think.", [], True),
        (
            'Sure!\n```json\n[{"content": "Ann likes tea.", "significance": 0.7,},]\n```\nDone.',
            ["Ann likes tea."],
            False,
        ),
        ('{"facts": [{"content": "Ann has a dog."}]}', ["Ann has a dog."], False),
        ("", [], True),
    ],
)
async def test_an_extraction_is_charged_whatever_the_model_makes_of_it(
    client: Client, provider: Provider, speaks: str, answer: str, remembered: list[str], failed: bool
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(Script(text="I see."), Script(text=answer), extraction="")
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "My name is Ann, and I like tea.")
    assert turn.status == COMPLETED
    ended = "memory_extraction.failed" if failed else "memory_extraction.completed"
    assert view.of_turn(turn.id)[-1] == ended
    assert await client.memories(agent) == remembered
    usage = await charged_everywhere(client, conv, turn.id, agent)
    assert usage.model_calls == len(scripted.requests) == 2
    (move,) = await client.moves(turn.id, conv)
    # The provider counts both requests the same.
    assert usage.input_tokens == 2 * move.usage.input_tokens > 0
    assert usage.output_tokens == 2 * move.usage.output_tokens > 0
    assert usage.cached_input_tokens == 2 * move.usage.cached_input_tokens > 0
    assert usage.reasoning_tokens == 2 * move.usage.reasoning_tokens > 0
    assert usage.cache_write_input_tokens == 2 * move.usage.cache_write_input_tokens
    assert bool(usage.cache_write_input_tokens) is (speaks == "anthropic")


async def charged_usage(client: Client, conv: str, turn_id: str) -> common.Usage:
    """Return the turn's usage once it is charged, which follows the end of a cancelled turn."""
    while not (usage := await spent(client, turn_id)).output_tokens:  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0.01)
    return usage


@pytest.mark.parametrize("speaks", PROVIDERS)
async def test_a_cancelled_stream_is_charged_with_what_was_streamed(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(Script(text=" ".join(f"word{n}" for n in range(2000)), delay_ms=20))
    conv = await client.open(agent)
    async with client.listening(conv) as listener:
        said = await client.say(conv, "Speak without end.")
        await listener.until(lambda v: any(text.count(" ") > 20 for text in v.texts.values()))
        await client.conversations.CancelTurn(
            pb.CancelTurnRequest(conversation_id=conv, turn_id=said.turn.id)
        )
        await listener.until(lambda v: v.settled(said.turn.id))
    async with asyncio.timeout(20):
        await charged_usage(client, conv, said.turn.id)
    usage = await charged_everywhere(client, conv, said.turn.id, agent)
    assert usage.model_calls == len(scripted.requests) == 1
    assert usage.input_tokens > 0 and usage.output_tokens > 20
    # An estimate is no known cost.
    assert not usage.HasField("cost_micros")


@pytest.mark.parametrize("speaks", PROVIDERS)
async def test_an_answer_that_broke_off_is_charged_beside_the_one_that_came(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(Script(text=SAID, break_off="abort"), Script(text=SAID))
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "Count.")
    assert turn.status == COMPLETED
    usage = await charged_everywhere(client, conv, turn.id, agent)
    assert usage.model_calls == len(scripted.requests) == 2
    (move,) = await client.moves(turn.id, conv)
    assert usage.input_tokens > move.usage.input_tokens
    assert usage.output_tokens > move.usage.output_tokens


async def test_an_answer_that_failed_for_good_is_charged(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text=SAID, error_event=400))
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "Count.")
    assert turn.status == FAILED
    usage = await charged_everywhere(client, conv, turn.id, agent)
    assert usage.model_calls == len(scripted.requests) == 1
    assert usage.input_tokens > 0 and usage.output_tokens > 0


async def test_a_tools_model_call_that_broke_off_is_charged(client: Client, provider: Provider) -> None:
    provider.script("asked-by-tool", Script(text=SAID, break_off="abort"), Script(text=SAID))
    await client.apply("e2e/money", ASKING_TWICE.replace("MODEL", "asked-by-tool"))
    scripted = Scripted(client, provider, "openai")
    call = Call(name="ask_model_tool", arguments="{}")
    agent = await scripted.agent(
        Script(calls=(call,)), Script(text="Done."), tools=("e2e/money/ask_model_tool",)
    )
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "Ask.")
    assert turn.status == COMPLETED
    usage = await charged_everywhere(client, conv, turn.id, agent)
    asked = provider.of("asked-by-tool")
    assert usage.model_calls == len(scripted.requests) + len(asked) == 4


async def test_the_usage_of_a_delegate_is_charged_to_its_caller_that_no_longer_waits(
    client: Client, provider: Provider
) -> None:
    expert = Scripted(client, provider, "openai")
    recall = Call(name="recall", arguments='{"query": "tea"}')
    endless = Script(text=" ".join(f"word{n}" for n in range(2000)), delay_ms=20)
    name = await expert.agent(Script(text=SAID, calls=(recall,)), endless)
    tool = {"target_type": "agent", "target_id": name, "description": "Asks the expert."}
    await client.apply("e2e/money", json.dumps({"name": f"ask_{name}", "tool": tool}))
    caller = Scripted(client, provider, "openai")
    ask = Call(name=f"ask_{name}", arguments='{"message": "What is it?"}')
    agent = await caller.agent(Script(calls=(ask,)), tools=(f"e2e/money/ask_{name}",))
    conv = await client.open(agent)
    said = await client.say(conv, "Ask.")
    async with asyncio.timeout(20):
        await provider.wait_until(lambda: len(provider.of(expert.model)) == 2)
        await client.conversations.CancelTurn(
            pb.CancelTurnRequest(conversation_id=conv, turn_id=said.turn.id)
        )
        while (usage := await spent(client, said.turn.id)).model_calls < 2:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)
    (own,) = await client.moves(said.turn.id, conv)
    assert usage.input_tokens > own.usage.input_tokens and usage.output_tokens > own.usage.output_tokens


@pytest.mark.parametrize("speaks", ["openai", "responses", "gemini"])
@pytest.mark.parametrize(
    ("script", "end", "is_charged"),
    [
        (Script(stall="headers"), "cancel", True),
        (Script(stall="headers"), "timeout", True),
        (Script(text=SAID, stall="first_token"), "timeout", True),
        (Script(status=503), "refusal", False),
        (Script(text=SAID, break_off="begin"), "refusal", False),
    ],
)
async def test_a_call_without_an_answer_counts_its_request_unless_the_provider_refused_it(
    client: Client, provider: Provider, speaks: str, script: Script, end: str, is_charged: bool
) -> None:
    """A caller that gives up cannot know whether the provider works on the request, and charges for it."""
    scripted = Scripted(client, provider, speaks)
    patience = {"first_token_timeout_ms": 300} if end == "timeout" else {}
    models = {"gemini": "gemini-2.0-flash"}
    model = models.get(speaks, PRICED)
    agent = await scripted.agent(script, tools=(), model=model, max_attempts=1, **patience)
    before = len(scripted.requests)
    conv = await client.open(agent)
    turn = (await client.say(conv, "Hello there. " * 100)).turn.id
    await provider.wait_until(lambda: len(scripted.requests) > before)
    if end == "cancel":
        await client.conversations.CancelTurn(pb.CancelTurnRequest(conversation_id=conv, turn_id=turn))
    await client.settled(conv, turn)
    if is_charged:
        async with asyncio.timeout(60):
            while not (await spent(client, turn)).input_tokens:  # noqa: ASYNC110 - no event says so
                await asyncio.sleep(0.01)  # The charge follows the end of the turn.
    usage = await charged_everywhere(client, conv, turn, agent)
    assert usage.model_calls == 1 and usage.cost_unknown == is_charged and not usage.output_tokens
    assert usage.HasField("cost_micros") is not is_charged
    # 1,300 characters in the message, and some in the frame.
    assert 325 <= usage.input_tokens <= 450 if is_charged else not usage.input_tokens


NOTES = Script(text='[{"content": "Ann likes tea."}]')


@pytest.mark.parametrize(
    ("fault", "answered"),
    [
        (Script(status=500), False),
        (Script(text=SAID, break_off="abort"), True),
        (Script(text=SAID, error_event=503), True),
    ],
)
async def test_each_attempt_of_an_extraction_is_charged(
    client: Client, provider: Provider, fault: Script, answered: bool
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="I see."), fault, NOTES, extraction="", model=PRICED)
    before = len(scripted.requests)
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "My name is Ann, and I like tea.")
    usage = await charged_everywhere(client, conv, turn.id, agent)
    assert usage.model_calls == len(scripted.requests) - before == 3
    # An attempt that was not answered costs nothing; what was answered in part is an estimate.
    assert usage.HasField("cost_micros") is not answered
    assert await client.memories(agent) == ["Ann likes tea."]


async def test_an_extraction_that_never_gets_an_answer_is_charged_with_its_attempts(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="I see."), Script(status=500), extraction="")
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "My name is Ann, and I like tea.")
    assert view.of_turn(turn.id)[-1] == "memory_extraction.failed"
    usage = await charged_everywhere(client, conv, turn.id, agent)
    assert usage.model_calls == len(scripted.requests) > 2


async def test_a_tools_attempts_that_were_refused_are_charged(client: Client, provider: Provider) -> None:
    provider.script("refused-to-tool", Script(status=500))
    await client.apply("e2e/refused", ASKING_TWICE.replace("MODEL", "refused-to-tool"))
    scripted = Scripted(client, provider, "openai")
    call = Call(name="ask_model_tool", arguments="{}")
    agent = await scripted.agent(
        Script(calls=(call,)), Script(text="It failed."), tools=("e2e/refused/ask_model_tool",)
    )
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "Ask.")
    usage = await charged_everywhere(client, conv, turn.id, agent)
    asked = provider.of("refused-to-tool")
    assert len(asked) >= 2
    assert usage.model_calls == len(scripted.requests) + len(asked)


@pytest.mark.parametrize(
    "under_way", [Script(text=" ".join(["word"] * 2000), delay_ms=20), Script(stall="headers")]
)
async def test_a_kill_during_an_extraction_loses_no_call(
    provider: Provider, data: Path, under_way: Script
) -> None:
    environment = {"OPENAI_API_KEY": KEY, "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1"}
    async with serving(data, environment=environment) as first, first.client() as client:
        scripted = Scripted(client, provider, "openai")
        agent = await scripted.agent(Script(text="I see."), under_way, NOTES, extraction="", model=PRICED)
        before = len(scripted.requests)
        conv = await client.open(agent)
        said = await client.say(conv, "My name is Ann, and I like tea.")
        # At the very moment at which the provider has the request.
        await provider.wait_until(lambda: len(scripted.requests) - before == 2)
        await first.kill()
    async with serving(data, environment=environment) as second, second.client() as client:
        await client.settled(conv, said.turn.id)
        usage = await charged_everywhere(client, conv, said.turn.id, agent)
        assert usage.model_calls == len(scripted.requests) - before == 3
        # The cost of the interrupted call is unknown.
        assert not usage.HasField("cost_micros")
        assert await client.memories(agent) == ["Ann likes tea."]
