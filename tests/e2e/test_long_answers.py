"""Long answers of a model: bounded before they enter a conversation, without loss of text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from grpc import aio

from tests.e2e.archived import AHEAD, is_away
from tests.e2e.client import Client, View
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_archive import until
from tests.fakes.provider import Provider, Script
from tests.fakes.provider_formats import Call
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = ("漢字ü🙂" * 1_000 + " ") * 450
"""More than 5 MiB, in few words: each is a piece of the stream."""


async def read(client: Client, conv: str, message_id: str, offset: int = 0) -> tuple[str, int]:
    """Return a message's text from an offset on, and its size."""
    text, size = "", 0
    request = pb.ReadMessageRequest(conversation_id=conv, message_id=message_id, offset=offset)
    async for piece in client.conversations.ReadMessage(request):
        assert piece.offset == offset + len(text.encode())
        text, size = text + piece.content, piece.size_bytes
    return text, size


async def test_a_long_answer_is_cut_for_a_default_client_and_read_whole(
    provider: Provider, data: Path
) -> None:
    """The stream, which is checked against the record, lists, and out of the archive the whole text."""
    environment = {
        "OPENAI_API_KEY": "sk-test",
        "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1",
        "WONDER_CONVERSATION_TTL_SECONDS": "3600",
    }
    async with serving(data, environment=environment) as server:
        async with aio.insecure_channel(server.address) as channel:
            client = Client(channel)
            agent = await Scripted(client, provider, "openai").agent(Script(text=LONG), Script(text="Yes."))
            conv = await client.open(agent)
            turn, view = await client.turn(conv, "Tell me everything")
            assert turn.status == conversation.TURN_STATUS_COMPLETED
            (message,) = (m for m in view.messages.values() if m.role == conversation.MESSAGE_ROLE_AGENT)
            assert len(message.content.encode()) <= 1 << 20
            assert (
                "bytes are left out here. ReadMessage (`wonder message`) has the whole.]" in message.content
            )
            assert message.whole_bytes == len(LONG.encode())
            (move,) = await client.moves(turn.id, conv)
            assert move.raw.fields["content"].string_value == message.content
            turn, _ = await client.turn(conv, "Is that all?")
            assert turn.status == conversation.TURN_STATUS_COMPLETED
    async with serving(data, environment={**environment, "CLOCK_AHEAD_S": AHEAD}) as server:
        async with aio.insecure_channel(server.address) as channel:
            client = Client(channel)
            await until(lambda: is_away(client, conv))
            assert await read(client, conv, message.id) == (LONG, message.whole_bytes)
            rest, _ = await read(client, conv, message.id, 3_000_000)
            assert LONG.endswith(rest) and len(rest.encode()) == message.whole_bytes - 3_000_000
            view = View()
            async with client.listening(conv, view) as listener:
                await listener.until(lambda v: v.words and v.words[-1].HasField("caught_up"))


async def test_a_call_with_long_arguments_is_refused_and_the_model_receives_the_error(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    call = Call(name="remember", arguments=json.dumps({"content": "x" * 300_000}))
    agent = await scripted.agent(Script(calls=(call,)), Script(text="I see."))
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Remember it")
    assert turn.status == conversation.TURN_STATUS_COMPLETED and view.text() == "I see."
    first, _ = await client.moves(turn.id, conv)
    assert first.tool_results[0].error.code == conversation.TOOL_ERROR_CODE_INVALID_INPUT
    assert "longer than this server takes" in first.tool_results[0].error.message
    assert len(json.dumps(scripted.requests[-1])) < 50_000


async def test_a_short_message_is_read_whole_too(client: Client) -> None:
    conv = await client.open()
    await client.turn(conv, "say 3 words")
    for message in await client.messages(conv):
        assert message.whole_bytes == 0
        assert await read(client, conv, message.id) == (message.content, len(message.content.encode()))
