"""Messages and cancels while a tool call waits for a person (features M9, M12)."""

from __future__ import annotations

import json

import grpc
import pytest

from tests.e2e.background import call
from tests.e2e.client import Client, View
from tests.e2e.scripted import Scripted
from tests.e2e.test_approval import LIBRARY, inbox, opened, resolve
from tests.e2e.test_concurrent_turns import POLICIES
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def scripted(client: Client, provider: Provider) -> Scripted:
    return Scripted(client, provider, "openai")


async def waiting(scripted: Scripted, policy: str, *scripts: Script) -> tuple[str, str]:
    """Return a conversation with this policy and its turn, which waits for approval."""
    client = scripted.client
    await client.apply("e2e/approval", LIBRARY)
    asks = Script(calls=(call("post", text="hello"),))
    agent = await scripted.agent(asks, *scripts, tools=("e2e/approval/post",))
    conv = await client.open(agent, concurrent_turns=POLICIES[policy])
    turn = (await client.say(conv, "Post it.")).turn.id
    async with client.listening(conv) as listener:
        await listener.until(opened)
    return conv, turn


def closed(view: View) -> list[run_pb2.Gate]:
    return [event.gate_resolved for event in view.events if event.name == "gate.resolved"]


async def refused(client: Client, gate: run_pb2.Gate) -> str:
    """Answer a gate and return why that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await resolve(client, gate)
    assert late.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    return str(late.value.details())


async def test_interrupt_closes_the_gate_and_a_late_answer_is_refused(scripted: Scripted) -> None:
    client = scripted.client
    conv, first = await waiting(scripted, "interrupt", Script(text="Something else."))
    (gate,) = await inbox(client, conv)
    second = (await client.say(conv, "Never mind. What is new?")).turn.id
    view = await client.settled(conv, second)
    assert [each.status for each in closed(view)] == [run_pb2.GATE_STATUS_CANCELLED]
    assert view.names.index("gate.resolved") < view.names.index("turn.cancelled")
    assert await inbox(client, conv) == []
    assert "it was cancelled" in await refused(client, gate)
    cut = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=first))).turn
    assert cut.status == conversation.TURN_STATUS_CANCELLED
    assert cut.error.metadata["interrupted"] == "true"
    assert not [name for name in view.of_turn(first) if name == "tool.completed"], "it was not carried out"


async def test_steer_adds_the_message_to_the_request_after_the_answer(scripted: Scripted) -> None:
    client = scripted.client
    conv, turn = await waiting(scripted, "steer", Script(text="Posted."))
    said = await client.say(conv, "And be brief.")
    assert said.turn.id == turn, "the waiting turn takes the message"
    (gate,) = await inbox(client, conv)
    await resolve(client, gate)
    await client.settled(conv, turn)
    texts = json.dumps(scripted.requests[-1])
    assert len(scripted.requests) == 2 and "And be brief." in texts and '"posted' in texts.replace("\\", "")


async def test_queue_waits_behind_the_turn_that_waits(scripted: Scripted) -> None:
    client = scripted.client
    conv, first = await waiting(scripted, "queue", Script(text="Posted."), Script(text="Second."))
    second = (await client.say(conv, "Then?")).turn
    assert second.status == conversation.TURN_STATUS_QUEUED
    (gate,) = await inbox(client, conv)
    await resolve(client, gate, approve=False, comment="No.")
    view = await client.settled(conv, second.id)
    assert view.settled(first) and view.names.index("gate.resolved") < view.names.index("turn.completed")
    assert len(scripted.requests) == 3
    assert [each.content for each in await client.messages(conv)][-2:] == ["Posted.", "Second."]


async def test_parallel_turns_wait_at_gates_of_their_own(scripted: Scripted) -> None:
    client = scripted.client
    again = Script(calls=(call("post", text="second"),))
    conv, first = await waiting(scripted, "parallel", again, Script(text="One."), Script(text="Two."))
    second = (await client.say(conv, "Post this too.")).turn.id
    async with client.listening(conv) as listener:
        await listener.until(lambda view: len(opened(view)) == 2)
        gates = {gate.turn_id: gate for gate in await inbox(client, conv)}
        assert set(gates) == {first, second}
        await resolve(client, gates[second])
        await listener.until(lambda view: view.settled(second))
        assert [gate.turn_id for gate in await inbox(client, conv)] == [first]
        await resolve(client, gates[first], approve=False)
        await listener.until(lambda view: view.settled(first))


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_cancel_of_the_turn_closes_its_gate(scripted: Scripted, policy: str) -> None:
    client = scripted.client
    conv, turn = await waiting(scripted, policy, Script(text="Next."))
    (gate,) = await inbox(client, conv)
    await client.conversations.CancelTurn(pb.CancelTurnRequest(turn_id=turn))
    assert await inbox(client, conv) == []
    assert "it was cancelled" in await refused(client, gate)
    after = (await client.say(conv, "Go on.")).turn.id
    view = await client.settled(conv, after)
    assert [each.status for each in closed(view)] == [run_pb2.GATE_STATUS_CANCELLED]
