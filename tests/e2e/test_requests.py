"""A repeated ``request_id`` starts nothing new and gets the first answer, also after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import Client, Listener, View, all_of, struct
from tests.e2e.process import serving
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def conversing(client: Client, conv: str) -> AsyncIterator[Listener]:
    call = client.conversations.Converse()
    await call.write(pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=conv)))
    try:
        yield Listener(call, View())
    finally:
        call.cancel()


async def sent(listener: Listener, text: str, request_id: str) -> pb.ConverseSent:
    """Send a message on the stream; return the answer."""
    before = len(listener.view.words)
    await listener.send(pb.ConverseRequest(send=pb.ConverseSend(content=text, request_id=request_id)))
    view = await listener.until(lambda v: any(w.HasField("sent") for w in v.words[before:]))
    return next(w.sent for w in view.words[before:] if w.HasField("sent"))


async def reused(call: Awaitable[Any]) -> None:
    assert await rejected(call) == ("REQUEST_ID_REUSED", ["request_id"])


async def test_a_message_sent_again_by_call_and_stream_starts_one_turn(client: Client) -> None:
    conv = await client.open()
    first = await client.say(conv, "say 3 words", "hello")
    again = await client.say(conv, "say 3 words", "hello")
    assert (again.turn.id, again.message, again.sequence) == (first.turn.id, first.message, first.sequence)
    async with conversing(client, conv) as stream:
        for _ in range(2):
            answer = await sent(stream, "say 3 words", "hello")
            assert (answer.turn_id, answer.message_id) == (first.turn.id, first.message.id)
            assert (answer.request_id, answer.sequence) == ("hello", first.sequence)
        # The other way round: first on the stream, then by a call.
        on_stream = await sent(stream, "say 2 words", "second")
        assert (await client.say(conv, "say 2 words", "second")).turn.id == on_stream.turn_id
        await stream.until(lambda v: v.settled(first.turn.id) and v.settled(on_stream.turn_id))
    assert (await client.say(conv, "say 3 words", "hello")).sequence == first.sequence
    assert [e.name for e in await client.events(conv)].count("conversation_turn") == 2


async def test_twenty_at_once_start_one(client: Client) -> None:
    conv = await client.open()
    answers = await all_of(client.say(conv, "say 2 words", "twenty") for _ in range(20))
    assert len({(a.turn.id, a.message.id, a.sequence) for a in answers}) == 1
    convs = await all_of(client.open(request_id="twenty conversations", title="one") for _ in range(20))
    assert len(set(convs)) == 1
    start = runs.StartRunRequest(
        workflow_id="wonder/std/extract_memory", request_id="twenty runs", input=extraction()
    )
    started = await all_of(client.coordinator.StartRun(start) for _ in range(20))
    assert len({answer.run.id for answer in started}) == 1
    await client.settled(conv, answers[0].turn.id)
    turns = await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conv))
    assert len(turns.turns) == 1


def extraction() -> Any:
    """Input of a workflow that ends at once."""
    profile = {"provider": "offline", "model": "offline", "format": "openai_chat", "parameters": {}}
    return struct(user_message="My cat is called Ada.", answer="", transcript=[], model_profile=profile)


async def test_the_same_id_for_something_else_is_refused(client: Client) -> None:
    conv = await client.open(request_id="conversation", title="first")
    await client.say(conv, "say 1 word", "used")
    await reused(client.say(conv, "say 2 words", "used"))
    await reused(client.open(request_id="conversation", title="second"))
    await reused(client.conversations.CancelTurn(cancel(conv, "turn_01M80B4FQSR67S4TVYMV1BGX37", "used")))
    send = pb.ConverseSend(content="say 1 word", request_id="used", metadata=struct(mood="other"))
    await reused(client.conversations.SendMessage(pb.SendMessageRequest(conversation_id=conv, send=send)))
    start = runs.StartRunRequest(
        workflow_id="wonder/std/extract_memory", request_id="run", input=extraction()
    )
    await client.coordinator.StartRun(start)
    start.input["user_message"] = "Something else."
    await reused(client.coordinator.StartRun(start))
    async with conversing(client, conv) as stream:
        await stream.send(pb.ConverseRequest(send=pb.ConverseSend(content="other", request_id="used")))
        view = await stream.until(lambda v: any(w.HasField("refused") for w in v.words))
    refusal = next(w.refused for w in view.words if w.HasField("refused"))
    assert refusal.request_id == "used"
    assert refusal.error.reason == errors_pb2.ERROR_REASON_REQUEST_ID_REUSED
    turns = await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conv))
    assert len(turns.turns) == 1


def cancel(conv: str, turn_id: str, request_id: str = "") -> pb.CancelTurnRequest:
    return pb.CancelTurnRequest(conversation_id=conv, turn_id=turn_id, request_id=request_id)


async def test_answers_are_remembered_over_a_restart(data: Path) -> None:
    async with serving(data) as server, server.client() as client:
        conv = await client.open(request_id="conversation", title="kept")
        said = await client.say(conv, "say 3 words", "say")
        await client.settled(conv, said.turn.id)
        start = runs.StartRunRequest(
            workflow_id="wonder/std/extract_memory", request_id="run", input=extraction()
        )
        run = (await client.coordinator.StartRun(start)).run
        view = await client.settled(conv, said.turn.id)
        await server.kill()
    async with serving(data) as again, again.client() as client:
        assert await client.open(request_id="conversation", title="kept") == conv
        answer = await client.say(conv, "say 3 words", "say")
        assert (answer.turn.id, answer.sequence) == (said.turn.id, said.sequence)
        assert (await client.coordinator.StartRun(start)).run.id == run.id
        await reused(client.say(conv, "say 4 words", "say"))
        await reused(client.open(request_id="conversation", title="other"))
        assert await client.events(conv) == view.events


async def test_a_repeated_creation_answers_as_the_first_did(client: Client) -> None:
    request = pb.CreateConversationRequest(request_id="as the first", conversation={"title": "same"})
    first = await client.conversations.CreateConversation(request)
    assert await client.conversations.CreateConversation(request) == first and not first.existed


async def test_without_a_request_id_everything_is_new(client: Client) -> None:
    conv = await client.open()
    assert conv != await client.open()
    turns = [(await client.say(conv, "say 1 word")).turn for _ in range(2)]
    assert turns[0].id != turns[1].id
    assert turns[0].status == conversation.TURN_STATUS_ACTIVE
    for turn in turns:
        await client.settled(conv, turn.id)
