"""A conversation over connections that break: no event is repeated or missing."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.sdk.fake_server import (
    CONVERSATION,
    TEXTS,
    TURN,
    FakeConversation,
    Response,
    StopStream,
    a_turn,
    completed,
    event,
    message_event,
    serving,
)
from wonder.v1 import conversation_service_pb2 as service
from wonder.v1 import errors_pb2 as errors
from wonder_sdk import (
    CallCancelledError,
    Client,
    FailedPreconditionError,
    Item,
    MessageRestarted,
    NotFoundError,
    ReconnectPolicy,
    TextDelta,
    UnavailableError,
    WonderError,
    v1,
)
from wonder_server.core.errors import Fault, Reason
from wonder_server.core.errors import WonderError as ServerError
from wonder_server.rpc.server.error_codes import to_rpc_status

NO_BACKOFF = ReconnectPolicy(initial_ms=0, max_ms=0, timeout_ms=600_000)
# Everything that one connection that never breaks brings: attached, the first event, caught_up, sent,
# the script.
WHOLE = 4 + len(a_turn())


def client(address: str) -> Client:
    return Client(address, reconnect=NO_BACKOFF)


class Transcript:
    """The items that a consumer received, in order."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.texts: dict[str, str] = {}
        self.finals: dict[str, str] = {}

    def take(self, item: Item | v1.CaughtUp) -> None:
        match item:
            case TextDelta(message_id=message_id, text=text):
                assert message_id not in self.finals, "text after the message was complete"
                self.texts[message_id] = self.texts.get(message_id, "") + text
            case MessageRestarted(message_id=message_id):
                self.texts[message_id] = ""
            case v1.Event(message_appended=v1.Message(role=v1.MessageRole.AGENT) as message):
                assert self.texts[message.id] == message.content
                self.finals[message.id] = message.content
                self.sequences.append(item.sequence)
            case v1.Event():
                self.sequences.append(item.sequence)
            case _:
                pass


async def transcript(items: AsyncIterator[Item]) -> Transcript:
    seen = Transcript()
    async for item in items:
        seen.take(item)
    return seen


async def test_a_turn_is_streamed_until_it_has_ended() -> None:
    fake = FakeConversation()
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        reply = chat.send("What is my cat called?")
        seen = await transcript(reply)

    assert seen.sequences == [2, 3, 4, 5, 6, 7, 8, 9]
    assert seen.finals == TEXTS
    assert reply.turn_id == TURN
    assert reply.turn is not None and reply.turn.status is v1.TurnStatus.COMPLETED


@pytest.mark.parametrize("while_away", [0, 1, 2, 100])
@pytest.mark.parametrize("cut", range(1, WHOLE))
async def test_a_cut_after_any_message_repeats_and_loses_no_event(cut: int, while_away: int) -> None:
    fake = FakeConversation(hang_up_after=[cut], while_away=while_away)
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        everything = chat.events()
        seen = await transcript(chat.send("What is my cat called?"))
        whole = Transcript()
        async for item in everything:
            whole.take(item)
            if isinstance(item, v1.Event) and item.sequence == 10:
                break

    assert seen.sequences == [2, 3, 4, 5, 6, 7, 8, 9]
    assert whole.sequences == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert seen.finals == whole.finals == TEXTS
    assert len(fake.started) == 1


@pytest.mark.parametrize("cut", range(3, 9))
async def test_repeated_cuts_deliver_the_whole_turn(cut: int) -> None:
    fake = FakeConversation(hang_up_after=[cut] * 50, while_away=1)
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        seen = await transcript(chat.send("What is my cat called?"))

    assert seen.sequences == [2, 3, 4, 5, 6, 7, 8, 9]
    assert seen.finals == TEXTS
    assert fake.connections > 2


@pytest.mark.parametrize("together", [2, 3, 100])
@pytest.mark.parametrize("cut", range(3, 9))
async def test_grouped_events_are_yielded_one_by_one(cut: int, together: int) -> None:
    fake = FakeConversation(hang_up_after=[cut] * 3, while_away=4, together=together)
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        seen = await transcript(chat.send("What is my cat called?"))
        past = Transcript()
        async for item in wonder.subscribe(CONVERSATION):
            past.take(item)
            if isinstance(item, v1.Event) and item.sequence == 9:
                break

    assert fake.requests[0].attach.group_events
    assert seen.sequences == [2, 3, 4, 5, 6, 7, 8, 9]
    assert past.sequences == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert seen.finals == past.finals == TEXTS


@pytest.mark.parametrize("cut", range(1, len(a_turn())))
async def test_a_disconnected_subscriber_misses_no_event(cut: int) -> None:
    fake = FakeConversation(hang_up_after=[cut, 3, 4], while_away=1, started=["elsewhere"])
    seen = Transcript()
    async with serving(fake) as address, client(address) as wonder:
        async for item in wonder.subscribe(CONVERSATION):
            seen.take(item)
            if isinstance(item, v1.Event) and item.sequence == 10:
                break

    assert seen.sequences == list(range(1, 11))
    assert seen.finals == TEXTS


async def test_the_turn_may_start_before_the_message_is_acknowledged() -> None:
    fake = FakeConversation(sent_delay=len(a_turn()))
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        seen = await transcript(chat.send("What is my cat called?"))

    assert seen.sequences == [2, 3, 4, 5, 6, 7, 8, 9]


async def test_tail_only_yields_only_new_events() -> None:
    fake = FakeConversation(hang_up_after=[6])
    async with (
        serving(fake) as address,
        client(address) as wonder,
        wonder.converse(CONVERSATION, tail_only=True) as chat,
    ):
        everything = chat.events()
        await chat.send("Hello").text()
        first = [await anext(everything), await anext(everything)]

    assert isinstance(first[0], v1.CaughtUp)
    assert isinstance(first[1], v1.Event) and first[1].sequence == 2


async def test_a_refused_message_raises_and_the_chat_continues() -> None:
    fault = errors.Fault(
        reason=errors.ERROR_REASON_NO_AGENT, message="No agent is here.", metadata={"id": CONVERSATION}
    )
    fake = FakeConversation(refuse={"r-1": fault})
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        with pytest.raises(FailedPreconditionError, match="No agent is here") as refusal:
            await chat.send("Hello?", request_id="r-1").text()
        text = await chat.send("Hello!").text()

    assert refusal.value.reason is v1.ErrorReason.NO_AGENT
    assert refusal.value.metadata == {"id": CONVERSATION}
    assert text == "Let me look … \n\nYour cät 🐈 is Mia."


async def test_an_interrupted_consumer_can_resume_without_effect_on_others() -> None:
    fake = FakeConversation()
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        everything = chat.events()
        reply = chat.send("Hello")
        seen = Transcript()
        async for item in reply:
            seen.take(item)
            if isinstance(item, TextDelta):
                break
        async for item in reply:
            seen.take(item)
        whole = [await anext(everything) for _ in range(12)]

    assert seen.sequences == [2, 3, 4, 5, 6, 7, 8, 9]
    assert len(whole) == 12


async def test_a_dropped_reply_is_released() -> None:
    fake = FakeConversation()
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        await anext(chat.send("Hello"))
        gc.collect()
        async for item in chat.events():
            if isinstance(item, v1.Event) and item.sequence == 10:
                break
        assert not chat._replies and not chat._by_turn and not chat._unclaimed


async def test_a_message_is_sent_without_awaiting_its_reply() -> None:
    fake = FakeConversation()
    async with serving(fake) as address, client(address) as wonder:
        async with wonder.converse(CONVERSATION) as chat:
            chat.send("Hello", request_id="r-1")

    assert fake.started == ["r-1"]
    assert fake.requests[-1].HasField("detach")


async def test_an_old_request_id_shows_the_turn_that_it_started() -> None:
    fake = FakeConversation(started=["r-1"])
    fake.past += fake.script
    async with serving(fake) as address, client(address) as wonder:
        async with wonder.converse(CONVERSATION, after_sequence=10) as chat:
            seen = await transcript(chat.send("Hello", request_id="r-1"))

    assert seen.sequences == [2, 3, 4, 5, 6, 7, 8, 9]
    assert seen.finals == TEXTS
    assert fake.started == ["r-1"]


async def test_cancel_waits_for_the_response_of_the_server() -> None:
    fake = FakeConversation()
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        reply = chat.send("Hello")
        await reply.cancel()

    assert [each.cancel.turn_id for each in fake.requests if each.HasField("cancel")] == [TURN]


async def test_cancel_of_an_ended_turn_returns_and_other_refusals_are_raised() -> None:
    ended = errors.Fault(reason=errors.ERROR_REASON_TURN_NOT_ACTIVE, message="It is completed.")
    fake = FakeConversation(refuse={TURN: ended})
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        await chat.send("Hello").cancel()
        await chat.cancel(TURN)
        fake.refuse[TURN] = errors.Fault(reason=errors.ERROR_REASON_TURN_NOT_FOUND, message="None.")
        with pytest.raises(NotFoundError):
            await chat.cancel(TURN)


async def test_closing_the_chat_cancels_no_turn() -> None:
    # The turn has no end: one that arrived before the closing would end the reply.
    fake = FakeConversation(script=a_turn()[:-1])
    async with serving(fake) as address, client(address) as wonder:
        async with wonder.converse(CONVERSATION) as chat:
            reply = chat.send("Hello")
            await reply.started()
        with pytest.raises(CallCancelledError):
            await transcript(reply)
        with pytest.raises(RuntimeError):
            chat.send("Too late")

    assert [each.WhichOneof("intent") for each in fake.requests] == ["attach", "send", "detach"]


async def test_two_concurrent_turns_are_kept_apart() -> None:
    class Two(FakeConversation):
        def _take(self, request_id: str, answers: object) -> None:
            turn_id = "turn_1" if request_id == "r-1" else "turn_2"
            self.started.append(request_id)
            answers.put_nowait(
                Response(sent=service.ConverseSent(request_id=request_id, turn_id=turn_id, sequence=2))
            )

    script = [
        event(2, "conversation_turn", "turn_1"),
        event(3, "conversation_turn", "turn_2"),
        message_event(4, "two", "msg_2", "turn_2"),
        message_event(5, "one", "msg_1", "turn_1"),
        completed(6, "turn_2"),
        completed(7, "turn_1"),
    ]
    fake = Two(script=script)
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        one, two = chat.send("1", request_id="r-1"), chat.send("2", request_id="r-2")
        texts = await asyncio.gather(one.text(), two.text())

    assert texts == ["one", "two"]


async def test_the_client_reconnects_to_a_draining_server_after_its_retry_delay() -> None:
    class Draining(FakeConversation):
        async def _hang_up(self, context: object) -> None:
            raise AssertionError("the stream ended before")

        async def _responses(self, attach: object, answers: object) -> AsyncIterator[Any]:
            first = self.connections == 1
            async for response in super()._responses(attach, answers):
                yield response
                if first and response.HasField("delta"):
                    yield Response(
                        draining=service.StreamDraining(reason="new version", reconnect_after_ms=1)
                    )
                    yield Response(end=service.StreamEnd(reason=service.STREAM_END_REASON_DRAINING))

    fake = Draining()
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        seen = await transcript(chat.send("Hello"))

    assert fake.connections == 2
    assert seen.finals == TEXTS


async def test_a_deleted_conversation_ends_the_chat_for_all_consumers() -> None:
    fake = FakeConversation(
        script=[Response(end=service.StreamEnd(reason=service.STREAM_END_REASON_DELETED))]
    )
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        with pytest.raises(NotFoundError, match="deleted"):
            await chat.send("Hello").text()
        with pytest.raises(NotFoundError, match="deleted"):
            chat.send("Hello?")


async def test_without_a_server_entering_fails_at_once() -> None:
    async with client("127.0.0.1:1") as wonder:
        with pytest.raises(UnavailableError):
            async with wonder.converse(CONVERSATION):
                raise AssertionError("not reached")


def _refusal(reason: Reason) -> tuple[grpc.StatusCode, str, Any]:
    output = to_rpc_status(ServerError(Fault(reason=reason, message="Attach again.")))
    return output.code, output.message, output.trailers


@pytest.mark.parametrize(
    "status",
    [
        _refusal(Reason.SLOW_READER),
        _refusal(Reason.SERVER_DRAINING),
        (grpc.StatusCode.OK, "the stream ends without a word", ()),
        (grpc.StatusCode.INTERNAL, "a proxy's opinion", ()),
        (grpc.StatusCode.CANCELLED, "the peer hung up", ()),
    ],
)
async def test_a_stream_reconnects_after_any_break(status: tuple[Any, str, Any]) -> None:
    async def hang_up(context: object) -> None:
        code, message, trailers = status
        if code is grpc.StatusCode.OK:
            raise StopStream
        await context.abort(code, message, trailers)

    fake = FakeConversation(hang_up_after=[7, 9], break_with=hang_up)
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        seen = await transcript(chat.send("Hello"))

    assert seen.sequences == [2, 3, 4, 5, 6, 7, 8, 9]
    assert seen.finals == TEXTS
    assert fake.connections == 3


async def test_a_permanent_refusal_is_not_retried() -> None:
    async def forbid(context: object) -> None:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not for you")

    fake = FakeConversation(hang_up_after=[5], break_with=forbid)
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        with pytest.raises(WonderError, match="not for you"):
            await chat.send("Hello").text()

    assert fake.connections == 1


async def test_the_client_gives_up_on_an_unavailable_server() -> None:
    fake = FakeConversation(hang_up_after=[5] + [0] * 1000)
    policy = ReconnectPolicy(initial_ms=0, max_ms=0, timeout_ms=0)
    async with serving(fake) as address, Client(address, reconnect=policy) as wonder:
        async with wonder.converse(CONVERSATION) as chat:
            with pytest.raises(UnavailableError, match="the line is cut"):
                await chat.send("Hello").text()


async def test_the_model_of_a_message_is_short_for_its_override() -> None:
    fake = FakeConversation()
    async with serving(fake) as address, client(address) as wonder, wonder.converse(CONVERSATION) as chat:
        with pytest.raises(ValueError, match="not both"):
            chat.send("Hello", model="fast", overrides=v1.TurnOverrides(model_profile_id="slow"))
        await chat.send("Hello", model="fast", overrides=v1.TurnOverrides(instructions=["Be brief."])).text()
    (sent,) = [
        each.send
        for each in fake.requests
        if isinstance(each, service.ConverseRequest) and each.HasField("send")
    ]
    assert sent.overrides.model_profile_id == "fast" and list(sent.overrides.instructions) == ["Be brief."]
