"""Reasoning and tool arguments while they stream: in each format, across cuts, kills and cancels."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from grpc import aio

from tests.conformance.models.subjects import KEY
from tests.e2e.client import Client, View
from tests.e2e.process import Server, serving
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALL = (pb.DELTA_KIND_REASONING, pb.DELTA_KIND_TOOL_ARGUMENTS)
THOUGHT = "They like tea, so I keep that and look for more. 漢字 🙂"
CALLS = (
    Call(name="remember", arguments=json.dumps({"fact": "The user likes tea ☕."}, ensure_ascii=False)),
    Call(name="recall", arguments='{"query": "tea"}'),
)
MIXED = (Script(thought=THOUGHT, text="One moment.", calls=CALLS), Script(text="Done."))


@pytest.fixture(params=PROVIDERS)
def scripted(client: Client, provider: Provider, request: pytest.FixtureRequest) -> Scripted:
    return Scripted(client, provider, request.param)


@pytest.fixture
def one(client: Client, provider: Provider) -> Scripted:
    return Scripted(client, provider, "anthropic")


def reasoning(view: View) -> list[str]:
    return [text for (_, kind, _), text in view.parts.items() if kind == "DELTA_KIND_REASONING"]


def arguments(view: View) -> dict[int, str]:
    kind = "DELTA_KIND_TOOL_ARGUMENTS"
    return {index: text for (_, name, index), text in view.parts.items() if name == kind}


def check_mixed(view: View) -> None:
    assert reasoning(view) == [THOUGHT]
    assert [json.loads(text) for text in arguments(view).values()] == [
        json.loads(call.arguments) for call in CALLS
    ]
    assert view.text() == "One moment.\nDone."


async def test_a_client_sees_the_kinds_that_it_asks_for(scripted: Scripted) -> None:
    client = scripted.client
    conv = await client.open(await scripted.agent(*MIXED, show_reasoning=True))
    async with client.listening(conv, delta_kinds=ALL) as full, client.listening(conv) as plain:
        said = await client.say(conv, "I like tea.")
        for listener in (full, plain):
            await listener.until(lambda v: v.settled(said.turn.id))
    check_mixed(full.view)
    deltas = [word.delta for word in full.view.words if word.HasField("delta")]
    kinds = [delta.kind for delta in deltas if delta.message_id == deltas[0].message_id]
    order = [pb.DELTA_KIND_REASONING, pb.DELTA_KIND_UNSPECIFIED, pb.DELTA_KIND_TOOL_ARGUMENTS]
    assert kinds == sorted(kinds, key=order.index) and set(kinds) == set(order)
    first, _ = await client.moves(said.turn.id, conv)
    calls = {d.tool_call_index: d for d in deltas if d.kind == pb.DELTA_KIND_TOOL_ARGUMENTS}
    for index, call in enumerate(first.tool_calls):
        assert calls[index].tool_name == call.tool_name
        assert calls[index].tool_call_id in ("", call.id)
    # The other client sees what clients have always seen.
    assert not plain.view.parts and plain.view.text() == full.view.text()
    assert plain.view.events == full.view.events
    assert all(not word.delta.kind for word in plain.view.words)


async def test_a_persona_hides_its_reasoning_by_default(one: Scripted) -> None:
    client = one.client
    conv = await client.open(await one.agent(*MIXED))
    async with client.listening(conv, delta_kinds=ALL) as listener:
        said = await client.say(conv, "I like tea.")
        await listener.until(lambda v: v.settled(said.turn.id))
    assert reasoning(listener.view) == [] and len(arguments(listener.view)) == 2


async def test_a_client_cut_at_every_delta_misses_nothing(one: Scripted) -> None:
    client = one.client
    slow = Script(thought=THOUGHT, text="One moment.", calls=CALLS, delay_ms=10)
    conv = await client.open(await one.agent(slow, MIXED[1], show_reasoning=True))
    said = await client.say(conv, "I like tea.")
    view, cuts, seen = View(), 0, set()
    while not view.settled(said.turn.id):
        before = picture(view)
        async with client.listening(conv, view, delta_kinds=ALL) as listener:
            # A reconnect repeats what is in progress; cut after the first word that says more.
            await listener.until(lambda v, b=before: picture(v) != b)
        if view.words[-1].HasField("delta"):
            seen.add(view.words[-1].delta.kind)
        cuts += 1
    assert cuts > len(view.events) and seen == {*ALL, pb.DELTA_KIND_UNSPECIFIED}
    assert view.events == await client.events(conv)
    # What ended while the client was away is in the record and streams no more.
    assert all(THOUGHT.startswith(text) for text in reasoning(view))
    for index, text in arguments(view).items():
        written = json.dumps(json.loads(CALLS[index].arguments), ensure_ascii=False)
        assert CALLS[index].arguments.startswith(text) or written.startswith(text)
    assert view.text() == "One moment.\nDone."


def picture(view: View) -> object:
    return view.cursor, dict(view.texts), dict(view.parts)


async def test_after_a_cancel_no_kind_goes_on(one: Scripted) -> None:
    client = one.client
    conv = await client.open(
        await one.agent(Script(text="One moment.", calls=CALLS, delay_ms=20), show_reasoning=True)
    )
    async with client.listening(conv, delta_kinds=ALL) as listener:
        said = await client.say(conv, "I like tea.")
        await listener.until(lambda v: any(arguments(v).values()))
        await client.conversations.CancelTurn(
            pb.CancelTurnRequest(turn_id=said.turn.id, conversation_id=conv)
        )
        view = await listener.until(lambda v: "turn.cancelled" in v.names)
        # The stream's next word is about another turn: nothing of the cancelled one follows.
        count = len(view.words)
        await client.conversations.CompleteConversation(pb.CompleteConversationRequest(conversation_id=conv))
        await listener.until(lambda v: "conversation_ended" in v.names)
    assert not any(word.HasField("delta") for word in view.words[count:])
    (message,) = [m for m in view.messages.values() if m.role == conversation.MESSAGE_ROLE_AGENT]
    assert message.partial and message.content == "One moment."
    (turn,) = (await client.conversations.ListTurns(pb.ListTurnsRequest(conversation_id=conv))).turns
    assert turn.status == conversation.TURN_STATUS_CANCELLED


@pytest.mark.parametrize(
    ("kind", "said"),
    [(0, "attach.delta_kinds[1] is 0."), (3, "3 is not a value of the enum DeltaKind."), (-1, "-1 is not")],
)
async def test_a_kind_that_does_not_exist_is_refused(client: Client, kind: int, said: str) -> None:
    conv = await client.open()
    kinds = [pb.DELTA_KIND_REASONING, kind]
    with pytest.raises(aio.AioRpcError) as problem:
        async with client.listening(conv, delta_kinds=kinds) as listener:  # type: ignore[arg-type]
            await listener.rest()
    assert problem.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert said in (problem.value.details() or "")


async def test_a_kill_in_the_middle_of_reasoning_begins_it_again(data: Path, provider: Provider) -> None:
    environment = {
        "WONDER_DEFAULT_MODEL": "offline",
        "ANTHROPIC_API_KEY": KEY,
        "WONDER_ANTHROPIC_BASE_URL": provider.url,
    }
    view = View()
    server = await Server(data, environment=environment).start()
    async with server.client() as client:
        scripted = Scripted(client, provider, "anthropic")
        stalled = Script(thought=THOUGHT, text="One moment.", calls=CALLS, stall="thought")
        agent = await scripted.agent(stalled, *MIXED, show_reasoning=True)
        conv = await client.open(agent)
        said = await client.say(conv, "I like tea.")
        async with client.listening(conv, view, delta_kinds=ALL) as listener:
            await listener.until(lambda v: any(reasoning(v)))
        await server.kill()
    (before,) = reasoning(view)
    assert before and THOUGHT.startswith(before) and before != THOUGHT
    async with serving(data, environment=environment) as again, again.client() as client:
        async with client.listening(conv, view, delta_kinds=ALL) as listener:
            await listener.until(lambda v: v.settled(said.turn.id))
    assert [2] in view.restarts.values()
    check_mixed(view)
    assert view.names[-1] == "turn.completed"
