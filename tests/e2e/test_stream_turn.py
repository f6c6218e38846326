"""StreamTurn: one call that sends a message and streams its turn, and that resumes by its request id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from tests.e2e.client import Client, View
from tests.e2e.process import Server, serving
from tests.e2e.test_streams import SLOW
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder_sdk import Client as Wonder
from wonder_sdk import MessageRestarted, NotFoundError, TextDelta, sync, v1

pytestmark = pytest.mark.asyncio(loop_scope="session")

CANCEL = pb.ON_DISCONNECT_CANCEL
WORDS = " ".join(f"word{n}" for n in range(1, 61))


@pytest_asyncio.fixture(loop_scope="session")
async def slow(client: Client) -> str:
    """Return the name of an agent whose tokens come 2 ms apart."""
    await client.apply("e2e/streams", SLOW)
    try:
        await client.agent("slow_streams", "e2e/streams/unhurried_speaker")
    except aio.AioRpcError as problem:
        assert problem.code() is grpc.StatusCode.ALREADY_EXISTS
    return "slow_streams"


class Stream:
    """The responses of one turn that a client has seen over all its calls."""

    def __init__(self, client: Client, request: pb.StreamTurnRequest) -> None:
        self.client, self.request = client, request
        self.accepted: list[pb.TurnAccepted] = []
        self.turn: conversation.Turn | None = None
        self.view = View(gapless=False)

    async def responses(self) -> AsyncIterator[pb.StreamTurnResponse]:
        """Call once more, after what was seen."""
        self.request.after_sequence = self.view.cursor
        self.view.attached()
        call = self.client.conversations.StreamTurn(self.request)
        first = True
        try:
            async for response in call:
                assert response.HasField("accepted") == first and self.turn is None
                first = False
                if response.HasField("accepted"):
                    self.accepted.append(response.accepted)
                elif response.HasField("turn"):
                    self.turn = response.turn
                else:
                    self.view.take(response)
                yield response
        finally:
            call.cancel()

    async def read(self) -> Stream:
        async for _ in self.responses():
            pass
        return self

    @property
    def seqs(self) -> list[int]:
        return [event.sequence for event in self.view.events]


def rejected(problem: aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """Return the ErrorInfo of a status."""
    trailers = dict(problem.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


def to(conversation_id: str, text: str, request_id: str = "", **fields: object) -> pb.StreamTurnRequest:
    send = pb.ConverseSend(content=text, request_id=request_id)
    return pb.StreamTurnRequest(conversation_id=conversation_id, send=send, **fields)


async def turns_of(client: Client, conversation_id: str) -> list[conversation.Turn]:
    answer = await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conversation_id))
    return [*answer.turns]


async def recorded(client: Client, conversation_id: str, turn_id: str) -> list[int]:
    """Return the sequences of the turn's events up to its end."""
    found = [event for event in await client.events(conversation_id) if event.turn_id == turn_id]
    ends = [n for n, e in enumerate(found) if e.name in ("turn.completed", "turn.failed", "turn.cancelled")]
    return [event.sequence for event in found[: ends[0] + 1]]


async def test_one_call_creates_a_conversation_and_streams_the_answer(client: Client) -> None:
    request = pb.StreamTurnRequest(
        new_conversation=conversation.Conversation(title="One call"),
        send=pb.ConverseSend(content="say 60 words", agent_id="assistant", user_id="mia"),
        group_events=True,
    )
    seen = await Stream(client, request).read()
    (accepted,) = seen.accepted
    assert seen.turn is not None and seen.turn.status == conversation.TURN_STATUS_COMPLETED
    assert seen.turn.id == accepted.turn_id and seen.turn.conversation_id == accepted.conversation_id
    assert seen.view.text() == WORDS
    assert seen.seqs == await recorded(client, accepted.conversation_id, accepted.turn_id)


async def test_a_stream_has_only_its_own_turn(client: Client, slow: str) -> None:
    conv = await client.open(slow)
    streams = [Stream(client, to(conv, f"say {n} words", f"own-{n}-{conv}")) for n in (30, 40, 50)]
    await asyncio.gather(*(stream.read() for stream in streams))
    assert len(await turns_of(client, conv)) == 3
    for stream in streams:
        turn_id = stream.accepted[0].turn_id
        assert {event.turn_id for event in stream.view.events} == {turn_id}
        assert {w.delta.turn_id for w in stream.view.words if w.HasField("delta")} == {turn_id}
        assert stream.seqs == await recorded(client, conv, turn_id)


@pytest.mark.parametrize("group_events", [False, True])
async def test_a_client_cut_at_every_word_resumes_by_request_id(
    client: Client,
    slow: str,
    group_events: bool,
) -> None:
    conv = await client.open(slow)
    request_id = f"cut-{conv}"
    seen = Stream(client, to(conv, "say 60 words", request_id, group_events=group_events))
    cuts = 0
    while seen.turn is None:
        news = 0
        async for response in seen.responses():
            news += response.WhichOneof("item") != "accepted"
            if news and seen.turn is None:
                break
        cuts += 1
    assert cuts > 5
    assert len({accepted.turn_id for accepted in seen.accepted}) == 1
    assert seen.seqs == await recorded(client, conv, seen.turn.id)
    assert seen.view.text() == WORDS
    (only,) = await turns_of(client, conv)
    assert only.id == seen.turn.id
    # After its end the call repeats the turn from any cursor, and sends nothing twice.
    for cursor in [0, *seen.seqs]:
        again = Stream(client, to(conv, "say 60 words", request_id, group_events=group_events))
        again.view.cursor = cursor
        await again.read()
        assert again.seqs == [number for number in seen.seqs if number > cursor]
        assert again.turn == seen.turn


async def test_a_cursor_far_behind_the_turn_gets_its_end_at_once(client: Client) -> None:
    conv = await client.open()
    first = await Stream(client, to(conv, "say 3 words", f"first-{conv}")).read()
    await Stream(client, to(conv, "say 4 words")).read()
    again = Stream(client, to(conv, "say 3 words", f"first-{conv}"))
    again.view.cursor = (await client.events(conv))[-1].sequence
    await again.read()
    assert again.seqs == [] and again.turn == first.turn


async def test_a_killed_server_resumes_the_stream(tmp_path: Path) -> None:
    data = tmp_path / "data"
    request = pb.StreamTurnRequest(
        new_conversation=conversation.Conversation(external_ref="one"),
        send=pb.ConverseSend(content="say 60 words", agent_id="unhurried", request_id="killed"),
    )
    seen: Stream | None = None
    for kill_at in (1, 3, 20):
        async with serving(data, environment={"WONDER_DEFAULT_MODEL": "offline"}) as server:
            async with server.client() as client:
                if seen is None:
                    await client.apply("e2e/streams", SLOW)
                    await client.agent("unhurried", "e2e/streams/unhurried_speaker")
                    seen = Stream(client, request)
                seen.client, count = client, 0
                with pytest.raises(aio.AioRpcError) as lost:
                    async for _ in seen.responses():
                        count += 1
                        if count == kill_at:
                            await server.kill()
                assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
    assert seen is not None and seen.turn is None
    async with serving(data) as server, server.client() as client:
        seen.client = client
        await seen.read()
        conv = seen.accepted[0].conversation_id
        assert {accepted.conversation_id for accepted in seen.accepted} == {conv}
        assert seen.turn is not None and len(await turns_of(client, conv)) == 1
        assert seen.seqs == await recorded(client, conv, seen.turn.id)
        assert seen.view.text() == WORDS


async def test_a_server_that_stops_ends_the_stream_as_unavailable_with_a_cursor(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data) as server, server.client() as client:
        await client.apply("e2e/streams", SLOW)
        await client.agent("unhurried", "e2e/streams/unhurried_speaker")
        conv = await client.open("unhurried")
        seen = Stream(client, to(conv, "say 2000 words", "stopped", on_disconnect=CANCEL))
        stopping = False
        with pytest.raises(aio.AioRpcError) as ended:
            async for response in seen.responses():
                if response.HasField("delta") and not stopping:
                    stopping = True  # A second signal would end the process at once.
                    server.terminate()
        reason = rejected(ended.value)
        assert (ended.value.code(), reason.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        assert int(reason.metadata["resume_after_sequence"]) == seen.view.cursor
        await server.ended()
    async with serving(data) as server, server.client() as client:
        (turn,) = await turns_of(client, conv)
        assert turn.status == conversation.TURN_STATUS_ACTIVE, "a stop is no disconnect"
        seen.client = client
        async for response in seen.responses():
            if response.HasField("delta"):
                break
        assert seen.accepted[1].turn_id == turn.id


async def test_a_client_that_leaves_cancels_its_turn_if_it_asked_for_that(client: Client, slow: str) -> None:
    conv = await client.open(slow)
    leaves = Stream(client, to(conv, "say 4000 words", f"leave-{conv}", on_disconnect=CANCEL))
    stays = Stream(client, to(conv, "say 4001 words", f"stay-{conv}"))
    for stream in (leaves, stays):
        async for response in stream.responses():
            if response.HasField("delta"):
                break
    # A client that resumes in time keeps its turn.
    resumed = 0
    async for response in leaves.responses():
        resumed += response.HasField("delta")
        if resumed == 3:
            break
    await leaves.read()
    assert leaves.turn is not None and leaves.turn.status == conversation.TURN_STATUS_COMPLETED


async def test_the_turn_of_a_lost_client_is_cancelled(client: Client, slow: str) -> None:
    conv = await client.open(slow)
    lost = Stream(client, to(conv, "say 100000 words", f"lost-{conv}", on_disconnect=CANCEL))
    kept = Stream(client, to(conv, "say 4000 words", f"kept-{conv}"))
    for stream in (lost, kept):
        async for response in stream.responses():
            if response.HasField("delta"):
                break
    turn_id = lost.accepted[0].turn_id
    async with client.listening(conv) as listener:
        view = await listener.until(lambda v: v.settled(turn_id))
    assert "turn.cancelled" in view.of_turn(turn_id)
    await lost.read()
    assert lost.turn is not None and lost.turn.status == conversation.TURN_STATUS_CANCELLED
    await kept.read()
    assert kept.turn is not None and kept.turn.status == conversation.TURN_STATUS_COMPLETED


async def test_refused_calls_say_why_and_leave_nothing(client: Client) -> None:
    conv = await client.open()
    before = len(await client.all_conversations())

    async def refusal(request: pb.StreamTurnRequest) -> str:
        with pytest.raises(aio.AioRpcError) as problem:
            await Stream(client, request).read()
        return rejected(problem.value).reason

    def new(text: str = "Hi", **send: str) -> pb.StreamTurnRequest:
        return pb.StreamTurnRequest(
            new_conversation=conversation.Conversation(title="x"), send=pb.ConverseSend(content=text, **send)
        )

    assert (await refusal(pb.StreamTurnRequest())) == "FIELD_INVALID"
    assert (await refusal(pb.StreamTurnRequest(conversation_id="", send=pb.ConverseSend(content="x")))) == (
        "FIELD_INVALID"
    )
    assert (await refusal(to("conv_nope", "Hi"))) == "CONVERSATION_NOT_FOUND"
    assert (await refusal(to("turn_01J00000000000000000000000", "Hi"))) == "CONVERSATION_NOT_FOUND"
    assert (await refusal(to(conv, " "))) == "FIELD_INVALID"
    assert (await refusal(to(conv, "Hi", "r" * 129))) == "FIELD_INVALID"
    assert (await refusal(to(conv, "Hi", delta_kinds=[99]))) == "FIELD_INVALID"
    assert (await refusal(to(conv, "Hi", on_disconnect=99))) == "FIELD_INVALID"
    # A cursor is refused before anything is sent.
    for cursor, reason in ((-1, "FIELD_INVALID"), (1 << 40, "CURSOR_OUT_OF_RANGE")):
        request = to(conv, "Hi")
        stream = Stream(client, request)
        stream.view.cursor = cursor
        with pytest.raises(aio.AioRpcError) as problem:
            await stream.read()
        assert rejected(problem.value).reason == reason
    assert await turns_of(client, conv) == []
    # What refuses a message creates no conversation.
    assert (await refusal(new())) == "NO_AGENT"
    with pytest.raises(aio.AioRpcError, match=r"Set send\.agent_id"):
        await Stream(client, new()).read()
    assert (await refusal(new(agent_id="nobody"))) == "AGENT_NOT_FOUND"
    assert (await refusal(new(" ", agent_id="assistant"))) == "FIELD_INVALID"
    resumed = Stream(client, new(agent_id="assistant"))
    resumed.view.cursor = 99
    with pytest.raises(aio.AioRpcError) as problem:
        await resumed.read()
    assert rejected(problem.value).reason == "CURSOR_OUT_OF_RANGE"
    assert (await refusal(new("y" * (1 << 20 | 1), agent_id="assistant"))) == "PAYLOAD_TOO_LARGE"
    assert (await refusal(new(agent_id="assistant", reply_to_message_id="msg_x"))) == "MESSAGE_NOT_FOUND"
    assert len(await client.all_conversations()) == before


async def test_other_content_with_the_same_request_id_is_refused(client: Client) -> None:
    conv = await client.open()
    await Stream(client, to(conv, "say 3 words", f"same-{conv}")).read()
    with pytest.raises(aio.AioRpcError) as problem:
        await Stream(client, to(conv, "say 4 words", f"same-{conv}")).read()
    assert rejected(problem.value).reason == "REQUEST_ID_REUSED"
    # SendMessage has the same requests.
    said = await client.say(conv, "say 3 words", f"same-{conv}")
    (turn,) = await turns_of(client, conv)
    assert said.turn.id == turn.id


async def test_twenty_calls_at_once_start_one_turn(client: Client) -> None:
    request = pb.StreamTurnRequest(
        new_conversation=conversation.Conversation(),
        send=pb.ConverseSend(content="say 60 words", agent_id="assistant", request_id="at-once"),
    )

    def stream() -> Stream:
        copy = pb.StreamTurnRequest()
        copy.CopyFrom(request)
        return Stream(client, copy)

    seen = await asyncio.gather(*(stream().read() for _ in range(20)))
    assert len({each.accepted[0].turn_id for each in seen}) == 1
    assert len({(*each.seqs,) for each in seen}) == 1 and {each.view.text() for each in seen} == {WORDS}
    (turn,) = await turns_of(client, seen[0].accepted[0].conversation_id)
    assert turn == seen[0].turn


async def test_a_turn_that_is_cancelled_or_whose_conversation_goes_ends_its_stream(
    client: Client,
    slow: str,
) -> None:
    conv = await client.open(slow)
    cancelled = Stream(client, to(conv, "say 4000 words"))
    async for response in cancelled.responses():
        if response.HasField("accepted"):
            turn_id = response.accepted.turn_id
            await client.conversations.CancelTurn(pb.CancelTurnRequest(turn_id=turn_id, conversation_id=conv))
    assert cancelled.turn is not None and cancelled.turn.status == conversation.TURN_STATUS_CANCELLED
    deleted = Stream(client, to(conv, "say 4000 words"))
    reason = ""
    try:
        async for response in deleted.responses():
            if response.HasField("accepted"):
                await client.conversations.DeleteConversation(
                    pb.DeleteConversationRequest(conversation_id=conv)
                )
    except aio.AioRpcError as problem:
        reason = rejected(problem).reason
    # The deletion cancels the turn first.
    if reason:
        assert reason == "CONVERSATION_NOT_FOUND"
    else:
        assert deleted.turn is not None and deleted.turn.status == conversation.TURN_STATUS_CANCELLED


# --- the SDK ----------------------------------------------------------------------------------------


async def test_the_sdk_goes_on_while_its_server_is_killed(tmp_path: Path, unused_tcp_port: int) -> None:
    data, listen = tmp_path / "data", ("--listen", f"127.0.0.1:{unused_tcp_port}")
    server = await Server(data, *listen).start()
    try:
        async with server.client() as client:
            await client.apply("e2e/streams", SLOW)
            await client.agent("unhurried", "e2e/streams/unhurried_speaker")
        async with Wonder(server.address) as wonder:
            stream = wonder.stream_turn("say 60 words", agent="unhurried", external_ref="x", request_id="sdk")
            said, sequences, restarts = "", list[int](), 0
            async for item in stream:
                match item:
                    case TextDelta(text=text):
                        said += text
                        if restarts < 2 and said.count("word") > 10 * restarts:
                            restarts += 1
                            await server.kill()
                            server = await Server(data, *listen).start()
                    case v1.Event(sequence=sequence):
                        sequences.append(sequence)
                    case MessageRestarted():
                        said = ""
            assert said == WORDS and stream.turn is not None and restarts == 2
            async with server.client() as client:
                assert sequences == await recorded(client, stream.conversation_id, stream.turn_id)
            assert stream.cursor == sequences[-1]
            # A program that crashed and stored the cursor goes on behind it.
            again = wonder.stream_turn(
                "say 60 words",
                agent="unhurried",
                external_ref="x",
                request_id="sdk",
                after_sequence=sequences[1],
            )
            rest = [item.sequence async for item in again if isinstance(item, v1.Event)]
            assert rest == sequences[2:] and again.turn == stream.turn
    finally:
        await server.stop()


async def test_the_sdk_raises_what_the_server_refuses(client: Client, server: Server) -> None:
    async with Wonder(server.address) as wonder:
        with pytest.raises(NotFoundError):
            await wonder.stream_turn("Hello", agent="nobody").text()
        assert await wonder.stream_turn("say 3 words").text() == "word1 word2 word3"
        with pytest.raises(TypeError, match="Did you mean 'agent'"):
            wonder.stream_turn("x", agnet="x")  # type: ignore[call-arg]

    def blocking() -> str:
        with sync.Client(server.address) as blocked:
            stream = blocked.stream_turn("say 3 words")
            texts = [item.text for item in stream if isinstance(item, TextDelta)]
            assert stream.turn is not None and stream.turn_id == stream.turn.id
            return "".join(texts)

    assert await asyncio.to_thread(blocking) == "word1 word2 word3"
