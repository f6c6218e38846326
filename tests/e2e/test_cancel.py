"""Cancel: the model's request is closed within a second, the record says so, and what was said stays (B9)."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.client import Client, Listener, View
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import errors_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDLESS = Script(text=" ".join(f"word{n}" for n in range(30_000)), delay_ms=20)


def cancel(conv: str, turn_id: str, request_id: str = "") -> pb.CancelTurnRequest:
    return pb.CancelTurnRequest(conversation_id=conv, turn_id=turn_id, request_id=request_id)


@pytest.mark.parametrize("speaks", PROVIDERS)
async def test_cancel_closes_the_request_to_the_provider(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    conv = await client.open(await scripted.agent(ENDLESS))
    async with client.listening(conv) as listener:
        said = await client.say(conv, "Speak without end.")
        await listener.until(lambda v: any(text.count(" ") > 3 for text in v.texts.values()))
        answer = await client.conversations.CancelTurn(cancel(conv, said.turn.id, "stop"))
        # Cancelled when the answer comes; the provider is hung up on soon after.
        assert answer.turn.status == conversation.TURN_STATUS_CANCELLED
        assert answer.turn.error.reason == errors_pb2.ERROR_REASON_CANCELLED
        async with asyncio.timeout(60):
            await scripted.until_closed_early()
        # By itself the answer would have gone on.
        assert not provider.requests[-1].finished
        shown = next(iter(listener.view.texts.values()))
        view = await listener.until(lambda v: v.settled(said.turn.id))
    *_, message = view.messages.values()
    assert message.partial and message.content.startswith(shown[:10])
    assert view.of_turn(said.turn.id)[-2:] == ["message.appended", "turn.cancelled"]
    assert (await client.messages(conv))[-1] == message
    assert not answer.turn.operations
    assert len(scripted.requests) == 1
    # Again, with and without the same request id.
    repeated = await client.conversations.CancelTurn(cancel(conv, said.turn.id, "stop"))
    for each in (answer, repeated):  # The call that was cut off is charged once it has ended.
        each.turn.ClearField("usage")
    assert repeated == answer
    again = client.conversations.CancelTurn(cancel(conv, said.turn.id))
    assert await rejected(again) == ("TURN_NOT_ACTIVE", [])
    # The conversation goes on.
    provider.script(scripted.model, Script(text="Quiet again."))
    turn, _ = await client.turn(conv, "And now?")
    assert turn.status == conversation.TURN_STATUS_COMPLETED


async def test_cancel_before_the_first_token_keeps_no_message(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    conv = await client.open(await scripted.agent(Script(stall="headers")))
    said = await client.say(conv, "Say nothing.")
    async with asyncio.timeout(60):
        await provider.wait_until(lambda: scripted.requests)
        await client.conversations.CancelTurn(cancel(conv, said.turn.id))
        await scripted.until_closed_early()
    assert [m.role for m in await client.messages(conv)] == [conversation.MESSAGE_ROLE_USER]


@pytest.mark.parametrize("speaks", PROVIDERS)
@pytest.mark.parametrize("stall", ["headers", "first_token", "chunks"])
async def test_cancel_hangs_up_on_a_provider_that_has_fallen_silent(
    client: Client, provider: Provider, speaks: str, stall: str
) -> None:
    """After it was busy once, so that it is another attempt's request that is closed."""
    scripted = Scripted(client, provider, speaks)
    busy, silent = Script(status=503), Script(text="one two three four", stall=stall)
    conv = await client.open(await scripted.agent(busy, silent))
    async with client.listening(conv) as listener:
        said = await client.say(conv, "Speak.")
        async with asyncio.timeout(60):
            await provider.wait_until(lambda: len(scripted.requests) == 2)
        if stall == "chunks":
            await listener.until(lambda v: "one two " in v.texts.values())
        answer = await client.conversations.CancelTurn(cancel(conv, said.turn.id))
        async with asyncio.timeout(60):
            await scripted.until_closed_early()
        view = await listener.until(lambda v: v.settled(said.turn.id))
    assert answer.turn.status == conversation.TURN_STATUS_CANCELLED and answer.turn.usage.model_calls == 2
    contents = [m.content for m in view.messages.values() if m.role == conversation.MESSAGE_ROLE_AGENT]
    assert contents == (["one two "] if stall == "chunks" else [])


@pytest.mark.parametrize("speaks", PROVIDERS)
async def test_cancel_between_two_attempts_leaves_nothing_to_close(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    conv = await client.open(await scripted.agent(Script(status=429, retry_after="60")))
    said = await client.say(conv, "Speak.")
    request, attempt = pb.GetTurnRequest(turn_id=said.turn.id), 0
    async with asyncio.timeout(60):
        await provider.wait_until(lambda: scripted.requests)
        while attempt < 2:  # Which it is when the refusal has been written down.
            waiting = (await client.conversations.GetTurn(request)).turn
            attempt = waiting.operations[0].attempt
    answer = await client.conversations.CancelTurn(cancel(conv, said.turn.id))
    assert answer.turn.usage.model_calls == 1 and not answer.turn.operations
    assert len(scripted.requests) == 1


async def test_cancel_on_the_stream_is_answered_there(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    conv = await client.open(await scripted.agent(ENDLESS))
    call = client.conversations.Converse()
    await call.write(pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=conv)))
    await call.write(pb.ConverseRequest(send=pb.ConverseSend(content="Speak.", request_id="speak")))
    listener = Listener(call, View())
    await listener.until(lambda v: any(v.texts.values()) and any(w.HasField("sent") for w in v.words))
    sent = next(w.sent for w in listener.view.words if w.HasField("sent"))
    for _ in range(2):
        before = len(listener.view.words)
        await call.write(
            pb.ConverseRequest(cancel=pb.ConverseCancel(turn_id=sent.turn_id, request_id="stop"))
        )
        view = await listener.until(
            lambda v, b=before: any(w.HasField("cancelled") for w in v.words[b:]) and v.settled(sent.turn_id)
        )
        answer = next(w.cancelled for w in view.words[before:] if w.HasField("cancelled"))
        assert (answer.turn_id, answer.request_id) == (sent.turn_id, "stop")
        assert view.events[answer.sequence - 1].name == "turn.cancelled"
    await call.write(pb.ConverseRequest(cancel=pb.ConverseCancel(turn_id=sent.turn_id, request_id="other")))
    await listener.until(lambda v: any(w.HasField("refused") for w in v.words))
    refusal = next(w.refused for w in listener.view.words if w.HasField("refused"))
    assert refusal.error.reason == errors_pb2.ERROR_REASON_TURN_NOT_ACTIVE
    call.cancel()


async def test_what_cannot_be_cancelled_is_refused(client: Client) -> None:
    conv, other = await client.open(), await client.open()
    turn, _ = await client.turn(conv, "say 2 words")
    cancelling = client.conversations.CancelTurn
    assert await rejected(cancelling(cancel(conv, turn.id))) == ("TURN_NOT_ACTIVE", [])
    assert await rejected(cancelling(cancel("", turn.id))) == ("TURN_NOT_ACTIVE", [])
    for conv_id, turn_id in (
        (other, turn.id), (conv, "turn_01M80B4FQSR67S4TVYMV1BGX37"), (conv, "nonsense"),
    ):  # fmt: skip
        assert (await rejected(cancelling(cancel(conv_id, turn_id))))[0] == "TURN_NOT_FOUND"
    for conv_id in (conv, ""):
        assert await rejected(cancelling(cancel(conv_id, ""))) == ("FIELD_INVALID", ["turn_id"])
    missing = cancelling(cancel("conv_01M80B4FQSR67S4TVYMV1BGX37", turn.id))
    assert (await rejected(missing))[0] == "CONVERSATION_NOT_FOUND"
    assert (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn.id))).turn == turn


async def test_a_message_after_the_cancel_of_a_waiting_turn_is_answered(client: Client) -> None:
    """Cancelled again and again while other turns run: none of them is disturbed."""
    conv = await client.open()
    turns = [(await client.say(conv, "say 5000 words")).turn for _ in range(4)]
    for turn in turns[::2]:
        try:
            await client.conversations.CancelTurn(cancel(conv, turn.id))
        except Exception as late:
            assert "already completed" in str(late)
    async with client.listening(conv) as listener:
        for turn in turns:
            await listener.until(lambda v, t=turn: v.settled(t.id))
    names = listener.view.names
    assert names.count("turn.completed") + names.count("turn.cancelled") == 4
