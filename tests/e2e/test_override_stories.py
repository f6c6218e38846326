"""Settings of one message over a kill, a queue, a stream, a delegate and a fallback; and in previews."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.conformance.models.subjects import KEY
from tests.e2e.background import asking
from tests.e2e.client import PATIENCE_S, Client, View
from tests.e2e.process import Server, serving
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.e2e.test_concurrent_turns import POLICIES, turns_of
from tests.e2e.test_turn_overrides import FIRST_WORDS, chat, other_profile, said
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED = conversation.TURN_STATUS_COMPLETED
WORDS = {
    "openai": ("tool_choice", "none", "required"),
    "responses": ("tool_choice", "none", "required"),
    "anthropic": ("tool_choice", {"type": "none"}, {"type": "any"}),
    "gemini": (
        "toolConfig",
        {"functionCallingConfig": {"mode": "NONE"}},
        {"functionCallingConfig": {"mode": "ANY"}},
    ),
}
FACT = Call(name="remember", arguments='{"fact": "Seven."}')


@pytest.mark.parametrize("speaks", WORDS)
async def test_tools_are_forbidden_or_required_in_the_words_of_each_format(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    scripts = Script(text="No."), Script(calls=(FACT,)), Script(text="Noted.")
    conv = await client.open(await scripted.agent(*scripts))
    for choice in ("none", "required"):
        turn = await said(client, conv, f"With {choice}.", tool_choice=choice)
        assert turn.status == COMPLETED, turn.error
    field, none, required = WORDS[speaks]
    assert [each[field] for each in scripted.requests[:2]] == [none, required]


async def test_a_queued_message_keeps_its_settings_over_a_kill(provider: Provider, data: Path) -> None:
    environment = {"OPENAI_API_KEY": KEY, "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1"}
    async with asyncio.timeout(PATIENCE_S):
        async with serving(data, environment=environment) as server, server.client() as client:
            scripted = Scripted(client, provider, "openai")
            agent = await scripted.agent(Script(stall="headers"), tools=())
            reference = await other_profile(client, "openai", "model-of-the-queue")
            conv = await client.open(agent, concurrent_turns=POLICIES["queue"])
            await client.say(conv, "first")
            overrides = {"model_profile_id": reference, "instructions": [FIRST_WORDS]}
            send = pb.ConverseSend(content="second", request_id="q-1", overrides=overrides)
            request = pb.SendMessageRequest(conversation_id=conv, send=send)
            queued = (await client.conversations.SendMessage(request)).turn
            assert queued.status == conversation.TURN_STATUS_QUEUED
            await provider.wait_until(lambda: bool(scripted.requests))
            # What the name of the profile means later is of no matter: it is pinned.
            other = {"name": "profile-model-of-the-queue", "model_profile": {"provider": "offline"}}
            await client.apply("e2e/overrides", json.dumps(other))
            await server.kill()
        provider.script(scripted.model, Script(text="One."))
        provider.script("model-of-the-queue", Script(text="Arr."))
        async with serving(data, environment=environment) as server, server.client() as client:
            assert (await client.conversations.SendMessage(request)).turn.id == queued.id
            async with client.listening(conv, View()) as listener:
                await listener.until(lambda view: view.settled(queued.id))
            turns = await turns_of(client, conv)
            assert [turn.status for turn in turns] == [COMPLETED] * 2
            assert turns[1].overrides.model_profile_id == f"{reference}@1"
            assert not turns[0].HasField("overrides")
    [asked] = [each for each in provider.requests if each.model == "model-of-the-queue"]
    assert FIRST_WORDS in json.dumps(asked.body)
    assert FIRST_WORDS not in json.dumps(scripted.requests)


async def test_a_streamed_turn_has_settings_and_a_repeated_request_the_same(
    client: Client, provider: Provider
) -> None:
    conv = await client.open(await Scripted(client, provider, "openai").agent(Script(text="No."), tools=()))
    provider.script("model-of-the-stream", Script(text="Arr."))
    reference = await other_profile(client, "openai", "model-of-the-stream")
    overrides = {"model_profile_id": reference}
    send = pb.ConverseSend(content="Hello?", request_id="s-1", overrides=overrides)
    request = pb.StreamTurnRequest(conversation_id=conv, send=send)
    turns = []
    for _ in range(2):
        last = [each async for each in client.conversations.StreamTurn(request)][-1]
        turns.append(last.turn)
    assert turns[0].id == turns[1].id and turns[0].overrides.model_profile_id == f"{reference}@1"
    assert len([each for each in provider.requests if each.model == "model-of-the-stream"]) == 1


async def test_a_delegate_does_not_inherit_the_settings(client: Client, provider: Provider) -> None:
    guest, host = Scripted(client, provider, "openai"), Scripted(client, provider, "openai")
    tool, name = await asking(client, await guest.agent(Script(text="I am the guest."), tools=()))
    agent = await host.agent(tools=(tool,))
    ask = Call(name=name, arguments='{"message": "Well?"}')
    provider.script("model-of-the-host", Script(calls=(ask,)), Script(text="Done."))
    reference = await other_profile(client, "openai", "model-of-the-host")
    conv = await client.open(agent)
    turn = await said(client, conv, "Ask.", model_profile_id=reference, instructions=[FIRST_WORDS])
    assert turn.status == COMPLETED, turn.error
    assert len(guest.requests) == 1 and FIRST_WORDS not in json.dumps(guest.requests)


async def test_the_fallback_of_the_overriding_profile_takes_over(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    conv = await client.open(await scripted.agent(Script(text="Never."), tools=()))
    provider.script("model-that-is-down", Script(status=503))
    provider.script("model-that-stands-in", Script(text="Arr."))
    other = PROVIDERS["openai"][0]
    profile = {
        "provider": other,
        "model": "model-that-is-down",
        "max_attempts": 1,
        "fallbacks": [{"provider": other, "model": "model-that-stands-in"}],
    }
    await client.apply("e2e/overrides-down", json.dumps({"name": "down", "model_profile": profile}))
    turn = await said(client, conv, "Hello?", model_profile_id="e2e/overrides-down/down")
    assert turn.status == COMPLETED, turn.error
    assert (await client.messages(conv))[-1].content == "Arr." and not scripted.requests


async def test_a_preview_shows_the_settings(client: Client, provider: Provider, server: Server) -> None:
    conv = await client.open(await Scripted(client, provider, "openai").agent(Script(text="x")))
    reference = await other_profile(client, "anthropic", "model-of-the-preview")
    overrides = {"model_profile_id": reference, "tool_choice": "required", "instructions": [FIRST_WORDS]}
    send = pb.ConverseSend(content="Hello?", overrides=overrides)
    request = pb.PreviewContextRequest(conversation_id=conv, send=send)
    shown = await client.conversations.PreviewContext(request)
    assert (shown.model, shown.format) == ("model-of-the-preview", "anthropic_messages")
    assert FIRST_WORDS in str(shown.request) and shown.request["tool_choice"]["type"] == "any"
    flags = "--model", reference, "--tool-choice", "required", "--instruction", FIRST_WORDS
    code, problem = await chat(server, *flags, command=("preview", conv, "Hello?"))
    assert (code, problem) == (0, "")
    code, problem = await chat(server, "--tool-choice", "no-such-tool")
    assert code == 1 and "no-such-tool" in problem
