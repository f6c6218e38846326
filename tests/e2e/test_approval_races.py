"""Answers to one gate that come at the same time, and again after a kill (feature M9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from grpc import aio

from tests.e2e.client import Client, struct
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_approval import inbox, resolve, waiting_call
from tests.e2e.test_bad_approvals import waiting
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import run_pb2

pytestmark = pytest.mark.asyncio(loop_scope="session")

PEOPLE = 20


async def test_of_many_answers_at_once_one_counts(client: Client, provider: Provider) -> None:
    """Approvals with an edit each, and rejections: the others learn that the gate is resolved."""
    conv, turn, gate = await waiting(Scripted(client, provider, "openai"), Script(text="So be it."))

    async def answer(number: int) -> run_pb2.Gate | str:
        fields = {"approve": False} if number % 2 else {"answer": struct(text=f"by {number}")}
        try:
            return await resolve(client, gate, user_id=f"user {number}", **fields)  # type: ignore[arg-type]
        except aio.AioRpcError as refused:
            assert refused.details()
            return (await rejected(_again(refused)))[0]

    answers = await asyncio.gather(*(answer(number) for number in range(PEOPLE)))
    (winner,) = [each for each in answers if isinstance(each, run_pb2.Gate)]
    assert [each for each in answers if isinstance(each, str)] == ["GATE_RESOLVED"] * (PEOPLE - 1)
    view = await client.settled(conv, turn)
    assert view.names.count("gate.resolved") == 1
    (result,) = (await client.moves(turn, conv))[0].tool_results
    number = answers.index(winner)
    if number % 2:
        assert not result.success and winner.status == run_pb2.GATE_STATUS_REJECTED
    else:
        assert dict(result.result.struct_value) == {"posted": f"by {number}"}


async def _again(refused: aio.AioRpcError) -> None:
    raise refused


async def test_one_answer_that_is_sent_often_at_once_is_one_answer(
    client: Client, provider: Provider
) -> None:
    conv, turn, gate = await waiting(Scripted(client, provider, "anthropic"), Script(text="Posted."))
    fields = {"answer": struct(text="edited"), "request_id": "often"}
    answers = await asyncio.gather(
        *(resolve(client, gate, **fields) for _ in range(PEOPLE))  # type: ignore[arg-type]
    )
    assert all(each == answers[0] for each in answers)
    view = await client.settled(conv, turn)
    assert view.names.count("gate.resolved") == view.names.count("tool.completed") == 1


async def test_answers_after_a_kill_are_the_first_or_refused(tmp_path: Path) -> None:
    """The server dies behind the answer, whose client did not hear of it: it repeats, others are late."""
    async with serving(tmp_path) as server, server.client() as client:
        conv, turn, gate = await waiting_call(client)
        edited = {"answer": struct(text="edited"), "request_id": "mine"}
        first = await resolve(client, gate, **edited)  # type: ignore[arg-type]
        await server.kill()
    async with serving(tmp_path) as server, server.client() as client:
        assert await resolve(client, gate, **edited) == first  # type: ignore[arg-type]
        assert (await rejected(resolve(client, gate, approve=False)))[0] == "GATE_RESOLVED"
        assert (await rejected(resolve(client, gate, approve=False, request_id="theirs")))[0] == (
            "GATE_RESOLVED"
        )
        assert (await rejected(resolve(client, gate, request_id="mine")))[0] == "REQUEST_ID_REUSED"
        view = await client.settled(conv, turn)
        assert view.names.count("gate.resolved") == view.names.count("tool.completed") == 1
        (result,) = (await client.moves(turn, conv))[0].tool_results
        assert dict(result.result.struct_value) == {"posted": "edited"}
        shown = (await client.coordinator.ListGates(runs.ListGatesRequest(gate_id=gate.id))).gates
        assert list(shown) == [first] and first.status == run_pb2.GATE_STATUS_APPROVED
        assert not await inbox(client, conv)
        assert (await client.turn(conv, "say 1 word"))[0].status == conversation.TURN_STATUS_COMPLETED
