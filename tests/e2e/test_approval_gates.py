"""Gates of tool calls that name who may answer, or expire (feature M9), over kills too."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest

from tests.e2e.background import call
from tests.e2e.client import Client, struct
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_approval import AGENT, LIBRARY, inbox, opened, resolve
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")


def gated(**gate: object) -> str:
    """Return the library whose tool ``post`` has this gate."""
    return LIBRARY.replace("approval: always,", f"approval: always, approval_gate: {json.dumps(gate)},")


@pytest.fixture
def scripted(client: Client, provider: Provider) -> Scripted:
    return Scripted(client, provider, "openai")


async def waiting(scripted: Scripted, library: str, name: str, *scripts: Script) -> tuple[str, str]:
    """Return a conversation and its turn, whose model has called ``post`` of this library."""
    await scripted.client.apply(f"e2e/{name}", library)
    agent = await scripted.agent(*scripts, tools=(f"e2e/{name}/post",))
    conv = await scripted.client.open(agent)
    turn = (await scripted.client.say(conv, "Post it.")).turn.id
    async with scripted.client.listening(conv) as listener:
        await listener.until(opened)
    return conv, turn


async def test_only_the_named_users_may_answer(scripted: Scripted) -> None:
    client = scripted.client
    scripts = Script(calls=(call("post", text="hello"),)), Script(text="Done.")
    conv, turn = await waiting(scripted, gated(user_ids=["ann", "cleo"]), "approval_users", *scripts)
    (gate,) = await inbox(client, conv)
    assert list(gate.user_ids) == ["ann", "cleo"]
    for user in ("", "bob", "Ann"):
        for approve in (True, False):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await resolve(client, gate, approve=approve, user_id=user)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(grpc.aio.AioRpcError) as edited:
        await resolve(client, gate, user_id="bob", answer=struct(text="mine"))
    assert edited.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert await inbox(client, conv) == [gate]
    await resolve(client, gate, user_id="cleo")
    await client.settled(conv, turn)
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await resolve(client, gate, user_id="ann")
    assert late.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "approved by cleo" in str(late.value.details())


async def test_the_model_sees_that_no_answer_came_in_time(scripted: Scripted) -> None:
    client = scripted.client
    scripts = Script(calls=(call("post", text="hello"),)), Script(text="Then not.")
    conv, turn = await waiting(scripted, gated(expire_after_ms=200), "approval_expires", *scripts)
    view = await client.settled(conv, turn)
    (gate,) = opened(view)
    assert gate.expire_time.ToMilliseconds() - gate.create_time.ToMilliseconds() == 200
    (closed,) = [event.gate_resolved for event in view.events if event.name == "gate.resolved"]
    assert closed.status == run_pb2.GATE_STATUS_EXPIRED and not closed.resolution.user_id
    seen = json.dumps(scripted.requests[-1])
    assert "No person approved" in seen and "TIMEOUT" in seen
    assert [message.content for message in await client.messages(conv)][-1] == "Then not."
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await resolve(client, gate)
    assert late.value.code() is grpc.StatusCode.FAILED_PRECONDITION and "expired" in str(late.value.details())


async def test_a_gate_expires_after_a_kill(tmp_path: Path) -> None:
    """The server dies while the call waits. After the next start the gate expires, or takes an answer."""
    async with serving(tmp_path) as server, server.client() as client:
        await client.apply("e2e/approval", gated(expire_after_ms=4_000))
        await client.apply("e2e/poster", AGENT)
        await client.agent("poster", "e2e/poster/poster")
        waits = []
        for _ in range(2):
            conv = await client.open("poster")
            waits.append((conv, (await client.say(conv, "use the tool post with hello")).turn.id))
            async with client.listening(conv) as listener:
                await listener.until(opened)
        await server.kill()
    (answered, answered_turn), (expired, expired_turn) = waits
    async with serving(tmp_path) as server, server.client() as client:
        if gates := await inbox(client, answered):  # On a slow machine it has expired already.
            await resolve(client, gates[0], approve=False, comment="No.")
        await client.settled(answered, answered_turn)
        view = await client.settled(expired, expired_turn)
        (closed,) = [event.gate_resolved for event in view.events if event.name == "gate.resolved"]
        assert closed.status == run_pb2.GATE_STATUS_EXPIRED
        (failed,) = [event.tool_failed for event in view.events if event.name == "tool.failed"]
        assert "No person approved" in failed.tool_result.error.message
        turns = [
            (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn))).turn
            for turn in (answered_turn, expired_turn)
        ]
        assert {turn.status for turn in turns} == {conversation.TURN_STATUS_COMPLETED}


@pytest.mark.parametrize(
    "gate",
    [
        {"user_ids": ["x" * 257]},
        {"user_ids": [""]},
        {"user_ids": [f"u{number}" for number in range(101)]},
        {"expire_after_ms": -1},
        {"expire_after_ms": 366 * 24 * 3_600_000},
    ],
)
async def test_an_invalid_gate_is_refused_when_the_tool_is_saved(
    client: Client, gate: dict[str, object]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.apply("e2e/approval_bad", gated(**gate))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "approval_gate" in str(refused.value.trailing_metadata())
