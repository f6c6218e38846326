"""Messages to an agent whose turn is not over, and messages that start none, through kills."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.e2e.background import call, dispatched, found, prepared, using
from tests.e2e.client import Client, Listener, View
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_conversations import get, say_to
from tests.e2e.test_parallel_turns import WAITING
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import definition_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

MESSAGES = 5
POLICIES = {
    "queue": definition_pb2.CONCURRENT_TURNS_QUEUE,
    "interrupt": definition_pb2.CONCURRENT_TURNS_INTERRUPT,
    "steer": definition_pb2.CONCURRENT_TURNS_STEER,
    "parallel": definition_pb2.CONCURRENT_TURNS_PARALLEL,
}
AGENT = """
name: helper
persona:
  system_prompt: You help.
  memory_extraction_workflow_id: none
"""
OVER = {
    conversation.TURN_STATUS_COMPLETED,
    conversation.TURN_STATUS_CANCELLED,
}


async def turns_of(client: Client, conv: str) -> list[conversation.Turn]:
    answer = await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conv, page_size=50))
    return sorted(answer.turns, key=lambda turn: turn.ordinal)


def ends(view: View) -> int:
    return sum(name in ("turn.completed", "turn.cancelled") for name in view.names)


async def another_end(listener: Listener, view: View) -> None:
    """Read until one more turn has ended."""
    seen = ends(view)
    await listener.until(lambda v: ends(v) > seen)


@pytest.mark.parametrize("policy", POLICIES)
async def test_five_messages_at_once_survive_a_kill_at_any_commit(policy: str, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    async with serving(fresh) as server, server.client() as client:
        await client.apply("e2e/helper", AGENT)
        await client.agent("helper", "e2e/helper/helper")

    async def story(client: Client, view: View) -> None:
        conv = await client.open("helper", request_id="open", concurrent_turns=POLICIES[policy])
        async with client.listening(conv, view=view) as listener:
            for number in range(MESSAGES):
                await client.say(conv, f"say 3 words about {number}", f"say {number}")
            # A turn that starts for messages of another names the turn that they moved to.
            while True:
                turns = await turns_of(client, conv)
                if {turn.status for turn in turns} <= OVER:
                    break
                await another_end(listener, view)

    async def tell(data: Path, doom: str) -> int:
        view = View()
        deaths = await through_deaths(data, story, view, doom, "")
        async with serving(data) as server, server.client() as client:
            (conv,) = [each.id for each in await client.all_conversations()]
            check(policy, await turns_of(client, conv), await client.messages(conv))
        return deaths

    assert await at_every("committed", tell, fresh=fresh, folder=tmp_path) >= 3


def check(policy: str, turns: list[conversation.Turn], messages: list[conversation.Message]) -> None:
    said = [each.content for each in messages if each.role == conversation.MESSAGE_ROLE_USER]
    assert said == [f"say 3 words about {number}" for number in range(MESSAGES)]
    statuses = [turn.status for turn in turns]
    assert {each.turn_id for each in messages} == {turn.id for turn in turns}
    match policy:
        case "queue":
            assert statuses == [conversation.TURN_STATUS_COMPLETED] * MESSAGES
            for before, after in itertools.pairwise(turns):
                started = after.start_time if after.HasField("start_time") else after.create_time
                assert started.ToMilliseconds() >= before.complete_time.ToMilliseconds()
        case "interrupt":
            assert statuses[-1] == conversation.TURN_STATUS_COMPLETED and len(turns) == MESSAGES
            cut = [each for each in turns if each.status == conversation.TURN_STATUS_CANCELLED]
            assert {turn.error.metadata["interrupted"] for turn in cut} <= {"true"}
        case "steer":
            assert set(statuses) == {conversation.TURN_STATUS_COMPLETED} and len(turns) <= MESSAGES
        case _:
            assert statuses == [conversation.TURN_STATUS_COMPLETED] * MESSAGES


async def test_a_queued_turn_shows_its_state_and_can_be_cancelled(client: Client, provider: Provider) -> None:
    await prepared(client)
    await client.apply("e2e/parallel", WAITING)
    scripted = Scripted(client, provider, "openai")
    name = await scripted.agent(
        Script(calls=(call("look_up", topic="flights"),)),
        Script(text="First."),
        Script(text="Third."),
        tools=using("e2e/parallel/look_up"),
    )
    conv = await client.open(name, concurrent_turns=definition_pb2.CONCURRENT_TURNS_QUEUE)
    async with client.listening(conv) as listener:
        first, second, third = [(await client.say(conv, text)).turn for text in ("one", "two", "three")]
        assert second.status == third.status == conversation.TURN_STATUS_QUEUED
        request = pb.CancelTurnRequest(conversation_id=conv, turn_id=second.id)
        cancelled = (await client.conversations.CancelTurn(request)).turn
        assert cancelled.status == conversation.TURN_STATUS_CANCELLED
        view = await listener.until(lambda v: "tool.dispatched" in v.names)
        await found(client, dispatched(view, "look_up").operation.run_id, "two")
        view = await listener.until(lambda v: v.settled(third.id))
    begun = next(event for event in view.events if event.name == "turn.started")
    assert begun.turn_started.id == third.id and begun.turn_started.HasField("start_time")
    assert view.names.index("turn.started") > view.names.index("turn.completed")
    assert first.status == conversation.TURN_STATUS_ACTIVE
    texts = [message["content"] for message in scripted.requests[-1]["messages"]]  # type: ignore[attr-defined]
    assert texts[-3:] == ["First.", "two", "three"]


async def test_the_stream_of_a_queued_turn_resumes_until_its_end(client: Client, provider: Provider) -> None:
    await prepared(client)
    await client.apply("e2e/parallel", WAITING)
    name = await Scripted(client, provider, "openai").agent(
        Script(calls=(call("look_up", topic="flights"),)),
        Script(text="First."),
        Script(text="Second."),
        tools=using("e2e/parallel/look_up"),
    )
    conv = await client.open(name, concurrent_turns=definition_pb2.CONCURRENT_TURNS_QUEUE)
    async with client.listening(conv) as listener:
        await client.say(conv, "one")
        view = await listener.until(lambda v: "tool.dispatched" in v.names)
        send = pb.ConverseSend(content="two", request_id="two")
        request = pb.StreamTurnRequest(conversation_id=conv, send=send)
        first = client.conversations.StreamTurn(request)
        request.after_sequence = (await first.read()).accepted.sequence + 1
        first.cancel()
        again = aiter(client.conversations.StreamTurn(request))
        assert (await anext(again)).HasField("accepted")
        await found(client, dispatched(view, "look_up").operation.run_id, "two")
        last = [word async for word in again][-1]
    assert last.turn.status == conversation.TURN_STATUS_COMPLETED


async def test_people_talk_to_each_other_and_later_turns_see_it(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    name = await scripted.agent(Script(text="Pizza it is."))
    conv = await client.open(name)
    for user, text in (("mia", "Pizza?"), ("bob", "Pizza!")):
        send = pb.ConverseSend(content=text, user_id=user, start_turn=False, request_id=f"post {user}")
        request = pb.SendMessageRequest(conversation_id=conv, send=send)
        answer = await client.conversations.SendMessage(request)
        assert not answer.HasField("turn") and answer.message.content == text
        assert await client.conversations.SendMessage(request) == answer
    turn = (await say_to(client, conv, "So?", user_id="mia")).turn
    await client.settled(conv, turn.id)
    texts = [message["content"] for message in scripted.requests[-1]["messages"]]  # type: ignore[attr-defined]
    assert texts[-3:-1] == ["[user mia] Pizza?", "[user bob] Pizza!"]
    assert texts[-1].endswith("[user mia] So?")
    assert [each.author for each in await client.messages(conv)][:2] == ["mia", "bob"]
    assert len(scripted.requests) == 1
    assert not list((await get(client, conv)).active_turn_ids)


async def test_bad_posts(client: Client) -> None:
    conv = await client.open()
    for fields, reason in (
        ({"agent_id": "assistant", "content": "x"}, "FIELD_INVALID"),
        ({"content": ""}, "FIELD_INVALID"),
        ({"content": "x", "reply_to_message_id": "msg_1"}, "MESSAGE_NOT_FOUND"),
    ):
        send = pb.ConverseSend(start_turn=False, **fields)  # type: ignore[arg-type]
        request = pb.SendMessageRequest(conversation_id=conv, send=send)
        assert (await rejected(client.conversations.SendMessage(request)))[0] == reason
    send = pb.ConverseSend(start_turn=False, content="x", request_id="streamed")
    stream = client.conversations.StreamTurn(pb.StreamTurnRequest(conversation_id=conv, send=send))
    assert await rejected(stream.read()) == ("FIELD_INVALID", ["send.start_turn"])
    assert not await client.messages(conv)
