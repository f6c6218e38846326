"""Two clients see the same; a client cut anywhere resumes without a gap and without a repetition."""

from __future__ import annotations

import grpc
import pytest
import pytest_asyncio
from grpc import aio

from tests.e2e.client import Client, Listener, View
from tests.e2e.process import Server
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

SLOW = """
name: unhurried
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 2}}
---
name: unhurried_speaker
persona: {system_prompt: You take your time., model_profile_id: unhurried, tool_ids: [wonder/std/recall]}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def unhurried(client: Client) -> str:
    """Return the name of an agent whose tokens come 2 ms apart."""
    await client.apply("e2e/streams", SLOW)
    try:
        await client.agent("unhurried", "e2e/streams/unhurried_speaker")
    except aio.AioRpcError as problem:
        assert problem.code() is grpc.StatusCode.ALREADY_EXISTS
    return "unhurried"


def attach(conv: str, after: int = 0, *, tail_only: bool = False) -> pb.ConverseRequest:
    cursor = pb.ConverseAttach(conversation_id=conv, after_sequence=after, tail_only=tail_only)
    return pb.ConverseRequest(attach=cursor)


def send(text: str, request_id: str) -> pb.ConverseRequest:
    return pb.ConverseRequest(send=pb.ConverseSend(content=text, request_id=request_id))


async def test_two_clients_see_the_same_events_and_the_same_text(client: Client, unhurried: str) -> None:
    conv = await client.open(unhurried)
    async with client.listening(conv) as first, client.listening(conv) as second:
        said = [await client.say(conv, text) for text in ("say 40 words", "say 30 words", "recall tea?")]
        views = []
        for listener in (first, second):
            for answer in said:
                await listener.until(lambda v, a=answer: v.settled(a.turn.id))
            views.append(await listener.until(lambda v: v.names.count("memory_extraction.completed") == 3))
    one, other = views
    assert [e.SerializeToString() for e in one.events] == [e.SerializeToString() for e in other.events]
    assert one.messages == other.messages and one.text() == other.text()
    assert one.events == await client.events(conv)
    # Three turns were active at once and spoke at the same time, each under its own message.
    order = [w.delta.message_id for w in one.words if w.HasField("delta")]
    assert len(set(order)) == 3 and order != sorted(order, key=order.index)


async def test_a_reader_of_grouped_events_sees_what_others_see(client: Client, unhurried: str) -> None:
    conv = await client.open(unhurried)
    async with client.listening(conv) as plain, client.listening(conv, group_events=True) as grouping:
        for listener in (plain, grouping):
            # A reader that still catches up gets text after the events that it reads from the store.
            await listener.until(lambda v: any(word.HasField("caught_up") for word in v.words))
        said = [await client.say(conv, text) for text in ("say 40 words", "say 30 words", "recall tea?")]
        for listener in (plain, grouping):
            await listener.until(lambda v: all(v.settled(answer.turn.id) for answer in said))
    one, other = plain.view, grouping.view
    assert [e.SerializeToString() for e in one.events] == [e.SerializeToString() for e in other.events]
    assert one.messages == other.messages and one.text() == other.text()
    assert not any(word.HasField("events") for word in one.words)
    assert any(word.HasField("events") for word in other.words)
    assert places_of_text(one) == places_of_text(other)
    # Any of them is a cursor, those in the middle of a group too.
    for cursor in range(len(one.events) + 1):
        view = View(cursor=cursor)
        async with client.listening(conv, view, group_events=True) as listener:
            await listener.until(lambda v: v.words and v.words[-1].HasField("caught_up"))
        assert view.events == one.events[cursor:]
        assert len(view.words) == (3 if view.events else 2), "all of the past is one message"


def places_of_text(view: View) -> dict[str, set[int]]:
    """Return, for each streamed message, the events after which a part of its text arrived."""
    places: dict[str, set[int]] = {}
    cursor = 0
    for word in view.words:
        if word.HasField("delta"):
            places.setdefault(word.delta.message_id, set()).add(cursor)
        elif word.HasField("event"):
            cursor = word.event.sequence
        elif word.HasField("events"):
            cursor = word.events.events[-1].sequence
    return places


async def test_a_group_of_events_is_bounded(client: Client) -> None:
    conv = await client.open()
    for text in (*["say 3 words"] * 16, *["y" * 100_000] * 2):
        await client.turn(conv, text)
    view = View()
    async with client.listening(conv, view, group_events=True) as listener:
        await listener.until(lambda v: v.words and v.words[-1].HasField("caught_up"))
    assert view.events == await client.events(conv)
    groups = [word.events for word in view.words if word.HasField("events")]
    assert len(groups[0].events) == 100
    assert all(group.ByteSize() <= 256 * 1024 for group in groups)
    assert sum(group.ByteSize() for group in groups) > 256 * 1024


async def test_a_client_cut_at_every_word_misses_nothing(client: Client, unhurried: str) -> None:
    """Cut after each single word that the server says, it resumes by the last event it has seen."""
    conv = await client.open(unhurried)
    said = await client.say(conv, "say 60 words")
    view, cuts = View(), 0
    while not view.settled(said.turn.id):
        before = len(view.words)
        async with client.listening(conv, view) as listener:
            # `attached` tells nothing new, so that cutting there would never get on.
            await listener.until(lambda v, b=before: any(news(w) for w in v.words[b:]))
        cuts += 1
    assert cuts > len(view.events)
    assert view.events == await client.events(conv)
    assert view.text() == " ".join(f"word{n}" for n in range(1, 61))


def news(word: pb.SubscribeResponse) -> bool:
    return word.WhichOneof("item") in ("event", "delta", "message_restarted")


async def test_a_finished_conversation_can_be_read_from_every_cursor(client: Client) -> None:
    conv = await client.open()
    for text in ("remember that I like tea", "run recall with tea"):
        await client.turn(conv, text)
    events = await client.events(conv)
    for cursor in range(len(events) + 1):
        view = View(cursor=cursor)
        async with client.listening(conv, view) as listener:
            await listener.until(lambda v: v.words and v.words[-1].HasField("caught_up"))
        assert view.events == events[cursor:] and not view.texts
        assert view.words[0].attached.last_sequence == len(events)


async def test_a_cursor_beyond_the_record_is_refused(client: Client) -> None:
    conv = await client.open()
    with pytest.raises(aio.AioRpcError) as problem:
        async with client.listening(conv, View(cursor=2)) as listener:
            await listener.rest()
    assert problem.value.code() is grpc.StatusCode.OUT_OF_RANGE


async def test_a_late_client_gets_the_text_so_far(client: Client, unhurried: str) -> None:
    conv = await client.open(unhurried)
    async with client.listening(conv) as early:
        said = await client.say(conv, "say 200 words")
        await early.until(lambda v: any(len(text) > 100 for text in v.texts.values()))
        call = client.conversations.Converse()
        await call.write(attach(conv, tail_only=True))
        late = Listener(call, View(cursor=early.view.cursor))
        await late.until(lambda v: v.texts)
        first = next(w.delta for w in late.view.words if w.HasField("delta"))
        assert first.offset == 0 and len(first.text) > 100
        await late.until(lambda v: v.settled(said.turn.id))
        call.cancel()
        await early.until(lambda v: v.settled(said.turn.id))
    assert late.view.text() == early.view.text()


async def test_converse_answers_its_own_client_and_the_turn_outlives_the_stream(
    client: Client, unhurried: str
) -> None:
    conv = await client.open(unhurried)
    call = client.conversations.Converse()
    await call.write(attach(conv))
    await call.write(send("say 50 words", "one"))
    listener = Listener(call, View())
    await listener.until(lambda v: any(w.HasField("sent") for w in v.words) and any(v.texts.values()))
    sent = next(w.sent for w in listener.view.words if w.HasField("sent"))
    assert sent.request_id == "one"
    call.cancel()
    # Gone in the middle: the turn went on, and another stream, attached by cursor, sees its end.
    view = await client.settled(conv, sent.turn_id, listener.view)
    assert view.events[sent.sequence - 1].conversation_turn.id == sent.turn_id
    assert view.events[sent.sequence].message_appended.id == sent.message_id
    assert view.text() == " ".join(f"word{n}" for n in range(1, 51))


async def test_a_half_closed_stream_is_read_to_the_end_and_detach_ends_it_with_a_word(client: Client) -> None:
    conv = await client.open()
    call = client.conversations.Converse()
    await call.write(attach(conv))
    await call.write(send("say 3 words", "one"))
    await call.done_writing()
    listener = Listener(call, View())
    await listener.until(lambda v: "memory_extraction.completed" in v.names)
    call.cancel()

    leaving = client.conversations.Converse()
    await leaving.write(attach(conv, listener.view.cursor))
    await leaving.write(pb.ConverseRequest(ack=pb.ConverseAck(sequence=2)))
    await leaving.write(pb.ConverseRequest(detach=pb.ConverseDetach()))
    view = await Listener(leaving, View(cursor=listener.view.cursor)).rest()
    assert view.words[-1].end == pb.StreamEnd(
        reason=pb.STREAM_END_REASON_DETACHED, resume_after_sequence=view.cursor
    )
    assert await leaving.code() is grpc.StatusCode.OK


async def test_long_messages_are_listed_in_pages_that_a_client_can_take(server: Server) -> None:
    """This client has grpc's own limit of 4 MiB for an answer."""
    text = ("y" * 1023 + " ") * 600
    async with aio.insecure_channel(server.address) as channel:
        client = Client(channel)
        conv = await client.open()
        turns = [(await client.turn(conv, text))[0] for _ in range(3)]
        stub = client.conversations
        for method, ask, field in (
            (stub.ListMessages, pb.ListMessagesRequest, "messages"),
            (stub.ListMoves, pb.ListMovesRequest, "moves"),
            (stub.ListTurns, pb.ListTurnsRequest, "turns"),
            (stub.ListEvents, pb.ListEventsRequest, "events"),
        ):
            found, token = [], ""
            while token or not found:
                page = await method(ask(conversation_id=conv, page_size=1000, page_token=token))
                found += getattr(page, field)
                token = page.next_page_token
            # Seven events a turn, and that what was said is too much for the model's window.
            wanted = {"messages": 6, "moves": 3, "turns": 3, "events": 1 + 3 * 8}[field]
            assert len(found) == wanted
        assert len(turns) == 3
