"""Settings of one message: model profile, tool choice and instructions for its turn and for no other."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.client import Client
from tests.e2e.journals import assert_replays
from tests.e2e.launch import PATH
from tests.e2e.process import Server, serving
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.e2e.test_call_agent import asked
from tests.fakes.provider import Call, Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

FACT = Call(name="remember", arguments='{"fact": "Seven."}')
FIRST_WORDS = "Speak like a pirate."


async def other_profile(client: Client, speaks: str, model: str) -> str:
    provider, format_name = PROVIDERS[speaks]
    profile = {"provider": provider, "model": model, "format": format_name}
    document = {"name": f"profile-{model}", "model_profile": profile}
    await client.apply("e2e/overrides", json.dumps(document))
    return f"e2e/overrides/profile-{model}"


async def said(
    client: Client, conversation_id: str, text: str, request_id: str = "", **overrides: object
) -> conversation.Turn:
    """Send a message with ``overrides`` and return its turn as it ended."""
    send = pb.ConverseSend(
        content=text, request_id=request_id, overrides=conversation.TurnOverrides(**overrides)
    )
    async with client.listening(conversation_id) as listener:
        request = pb.SendMessageRequest(conversation_id=conversation_id, send=send)
        answer = await client.conversations.SendMessage(request)
        await listener.until(lambda view: view.settled(answer.turn.id))
    return (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=answer.turn.id))).turn


@pytest.mark.parametrize("speaks", ["openai", "responses", "anthropic", "gemini"])
async def test_one_message_has_another_model_and_further_instructions(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    conv = await client.open(await scripted.agent(Script(text="Mine.")))
    model = f"other-of-{speaks}"
    provider.script(model, Script(text="Arr."))
    reference = await other_profile(client, speaks, model)
    turn = await said(
        client, conv, "Hello?", model_profile_id=reference, instructions=[FIRST_WORDS], tool_choice="none"
    )
    assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
    assert turn.overrides.model_profile_id == f"{reference}@1"
    assert list(turn.overrides.instructions) == [FIRST_WORDS] and turn.overrides.tool_choice == "none"
    [seen] = [each for each in provider.requests if each.model == model]
    assert FIRST_WORDS in json.dumps(seen.body)
    turn = await said(client, conv, "And now?")
    assert not turn.HasField("overrides")
    assert FIRST_WORDS not in json.dumps(scripted.requests[-1])
    moves = await client.conversations.ListMoves(pb.ListMovesRequest(conversation_id=conv))
    assert [each.model_profile for each in moves.moves].count(f"{reference}@1") == 1


FORCED = {
    "openai": ("tool_choice", {"type": "function", "function": {"name": "remember"}}, "auto"),
    "responses": ("tool_choice", {"type": "function", "name": "remember"}, "auto"),
    "anthropic": ("tool_choice", {"type": "tool", "name": "remember"}, {"type": "auto"}),
    "gemini": (
        "toolConfig",
        {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["remember"]}},
        {"functionCallingConfig": {"mode": "AUTO"}},
    ),
}


@pytest.mark.parametrize("speaks", FORCED)
async def test_a_named_tool_is_called_first_and_then_the_model_decides(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    conv = await client.open(await scripted.agent(Script(calls=(FACT,)), Script(text="Noted.")))
    turn = await said(client, conv, "Seven.", tool_choice="remember")
    assert turn.status == conversation.TURN_STATUS_COMPLETED, turn.error
    field, forced, free = FORCED[speaks]
    assert [body.get(field) for body in scripted.requests] == [forced, free]


async def test_a_choice_leaves_the_profile_to_say_that_calls_come_one_by_one(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "anthropic")
    one_by_one = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    agent = await scripted.agent(Script(calls=(FACT,)), Script(text="Noted."), parameters=one_by_one)
    await said(client, await client.open(agent), "Seven.", tool_choice="required")
    assert [body["tool_choice"] for body in scripted.requests] == [
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "auto", "disable_parallel_tool_use": True},
    ]


async def test_a_repeated_request_has_the_same_overrides(client: Client, provider: Provider) -> None:
    conv = await client.open(await Scripted(client, provider, "openai").agent(Script(text="Yes.")))
    first = await said(client, conv, "Hello?", "override-1", instructions=["Be brief."])
    send = pb.ConverseSend(
        content="Hello?",
        request_id="override-1",
        overrides=conversation.TurnOverrides(instructions=["Be brief."]),
    )
    request = pb.SendMessageRequest(conversation_id=conv, send=send)
    assert (await client.conversations.SendMessage(request)).turn.id == first.id
    for other in (conversation.TurnOverrides(instructions=["Be long."]), None):
        changed = pb.ConverseSend(content="Hello?", request_id="override-1", overrides=other)
        request = pb.SendMessageRequest(conversation_id=conv, send=changed)
        assert (await rejected(client.conversations.SendMessage(request)))[0] == "REQUEST_ID_REUSED"


INVALID, MISSING = "FIELD_INVALID", "DEFINITION_NOT_FOUND"


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"model_profile_id": "e2e/nowhere/at-all"}, MISSING),
        ({"model_profile_id": "no reference"}, MISSING),
        ({"model_profile_id": "wonder/std/recall"}, MISSING),
        ({"tool_choice": "recal"}, INVALID),
        ({"tool_choice": "x" * 100_000}, INVALID),
        ({"instructions": [" "]}, INVALID),
        ({"instructions": ["x" * 8_193]}, INVALID),
        ({"instructions": ["x"] * 21}, INVALID),
    ],
)
async def test_overrides_that_cannot_be_followed_start_nothing(
    client: Client, provider: Provider, overrides: dict[str, object], reason: str
) -> None:
    agent = await Scripted(client, provider, "openai").agent(Script(text="never"))
    conv = await client.open(agent)
    given = conversation.TurnOverrides(**overrides)
    send = pb.SendMessageRequest(
        conversation_id=conv, send=pb.ConverseSend(content="Hello?", overrides=given)
    )
    assert (await rejected(client.conversations.SendMessage(send)))[0] == reason
    call = asked(agent, overrides=given)
    assert (await rejected(client.conversations.CallAgent(call)))[0] == reason
    turns = await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conv))
    assert not turns.turns


async def test_a_tool_is_required_of_an_agent_that_has_some(client: Client, provider: Provider) -> None:
    conv = await client.open(await Scripted(client, provider, "openai").agent(Script(text="x"), tools=()))
    send = pb.ConverseSend(content="Hi", overrides=conversation.TurnOverrides(tool_choice="required"))
    request = pb.SendMessageRequest(conversation_id=conv, send=send)
    assert (await rejected(client.conversations.SendMessage(request)))[0] == INVALID


async def test_a_service_overrides_the_settings_of_its_call(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "anthropic")
    agent = await scripted.agent(Script(text="Done."))
    call = asked(agent, overrides=conversation.TurnOverrides(instructions=[FIRST_WORDS]))
    answer = await client.conversations.CallAgent(call)
    assert answer.turn.status == conversation.TURN_STATUS_COMPLETED, answer.turn.error
    assert list(answer.turn.overrides.instructions) == [FIRST_WORDS]
    assert FIRST_WORDS in json.dumps(scripted.requests[0])


async def test_the_chat_command_takes_a_model_and_its_journal_replays(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as server:
        async with server.client() as client:
            document = {"name": "slow", "model_profile": {"provider": "offline", "max_attempts": 2}}
            await client.apply("e2e/overrides", json.dumps(document))
        assert await chat(server, "--model", "e2e/overrides/slow") == (0, "")
        code, problem = await chat(server, "--model", "e2e/overrides/fast")
        assert code == 1 and "e2e/overrides/fast" in problem
        await server.stop()
    assert await assert_replays(tmp_path / "data")


async def chat(
    server: Server, *flags: str, command: Sequence[str] = ("chat", "-m", "Hello")
) -> tuple[int, str]:
    """Run ``wonder chat`` with one message; return its exit code and what it reports of an error."""
    order = [sys.executable, "-m", "wonder_sdk.cli", *command, *flags]
    process = await asyncio.create_subprocess_exec(
        *order,
        env={**os.environ, "PYTHONPATH": PATH, "WONDER_SERVER": server.address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, problem = await process.communicate()
    return process.returncode or 0, problem.decode() if process.returncode else ""


async def test_a_message_without_a_turn_has_no_settings(client: Client) -> None:
    conv = await client.open()
    send = pb.ConverseSend(content="x", start_turn=False, overrides={"tool_choice": "none"})
    request = pb.SendMessageRequest(conversation_id=conv, send=send)
    assert await rejected(client.conversations.SendMessage(request)) == ("FIELD_INVALID", ["overrides"])
    assert not (
        await client.conversations.ListMessages(pb.ListMessagesRequest(conversation_id=conv))
    ).messages
