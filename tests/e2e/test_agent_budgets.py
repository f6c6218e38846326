"""Lifetime budget of an agent, over all its conversations (feature C6)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from grpc import aio

from tests.conformance.models.subjects import KEY
from tests.e2e.background import asking, call
from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Call, Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import common_pb2 as common
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import errors_pb2, library_pb2
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED, FAILED = conversation.TURN_STATUS_COMPLETED, conversation.TURN_STATUS_FAILED
EXHAUSTED = errors_pb2.ERROR_REASON_BUDGET_EXHAUSTED
AGAIN = Script(text="Again.", calls=(Call(name="recall", arguments='{"query": "tea"}'),))


@pytest.fixture
def scripted(client: Client, provider: Provider) -> Scripted:
    return Scripted(client, provider, "openai")


async def agent_of(client: Client, name: str) -> library_pb2.Agent:
    return (await client.library.GetAgent(library.GetAgentRequest(agent_id=name))).agent


async def limited(client: Client, name: str, **budget: int) -> None:
    """The agent may spend this much, or with nothing as much as it likes."""
    agent = library_pb2.Agent(id=(await agent_of(client, name)).id)
    if budget:
        agent.budget.CopyFrom(common.Budget(**budget))
    request = library.UpdateAgentRequest(agent=agent, update_mask=FieldMask(paths=["budget"]))
    await client.library.UpdateAgent(request)


def tokens(usage: common.Usage) -> int:
    return usage.input_tokens + usage.output_tokens


async def test_an_agent_shows_what_it_has_spent_in_all_conversations(scripted: Scripted) -> None:
    client = scripted.client
    agent = await scripted.agent(AGAIN, Script(text="Done."), model="gpt-4o-mini")
    assert (await agent_of(client, agent)).usage == common.Usage(cost_micros=0)
    convs = [await client.open(agent) for _ in range(3)]
    turns = [(await client.turn(conv, "What is it?"))[0] for conv in convs]
    await client.conversations.DeleteConversation(pb.DeleteConversationRequest(conversation_id=convs[0]))
    usage = (await agent_of(client, agent)).usage
    assert tokens(usage) == sum(tokens(turn.usage) for turn in turns) > 0
    assert usage.cost_micros == sum(turn.usage.cost_micros for turn in turns) > 0
    assert usage.model_calls == sum(turn.usage.model_calls for turn in turns) == 4
    listed = await client.library.ListAgents(library.ListAgentsRequest(page_size=1000))
    assert usage in [each.usage for each in listed.agents]


async def test_the_model_learns_the_token_budget_before_it_is_enforced_and_then_no_turn_begins(
    scripted: Scripted,
) -> None:
    client = scripted.client
    agent = await scripted.agent(AGAIN)
    await limited(client, agent, max_tokens=900)
    conv = await client.open(agent)
    turn, view = await client.turn(conv, "Go on and on.")
    assert turn.status == FAILED and turn.error.reason == EXHAUSTED
    metadata = dict(turn.error.metadata)
    assert (metadata["of"], metadata["budget"], metadata["limit"]) == ("agent", "tokens", "900")
    assert int(metadata["used"]) == tokens(turn.usage)
    assert [e.limit_reached.enforced for e in view.events if e.name == "limit.reached"] == [False, True]
    assert "Do not call tools" in str(scripted.requests[-1])
    # In no other conversation either, until it may spend more.
    if tokens(turn.usage) < 900:
        await limited(client, agent, max_tokens=tokens(turn.usage))
    other = await client.open(agent)
    reason, _ = await rejected(client.say(other, "And now?"))
    assert reason == "BUDGET_EXHAUSTED"
    request = pb.CallAgentRequest(agent_id=agent)
    request.input.string_value = "And now?"
    assert (await rejected(client.conversations.CallAgent(request)))[0] == "BUDGET_EXHAUSTED"
    await limited(client, agent)
    scripted.provider.script(scripted.model, Script(text="On we go."))
    turn, _ = await client.turn(other, "And now?")
    assert turn.status == COMPLETED


async def test_a_request_that_was_taken_is_answered_again_when_the_money_is_gone(scripted: Scripted) -> None:
    client = scripted.client
    agent = await scripted.agent(Script(text="Yes."), tools=())
    await limited(client, agent, max_tokens=1)
    conv = await client.open(agent)
    said = await client.say(conv, "Is it?", request_id="once")
    await client.settled(conv, said.turn.id)
    assert (await client.say(conv, "Is it?", request_id="once")).turn.id == said.turn.id
    assert (await rejected(client.say(conv, "And that?")))[0] == "BUDGET_EXHAUSTED"


async def test_many_turns_at_once_do_not_all_spend_the_same_rest(scripted: Scripted) -> None:
    client = scripted.client
    agent = await scripted.agent(Script(text="Yes.", delay_ms=100), tools=())
    first, _ = await client.turn(await client.open(agent), "How much is it?")
    each = tokens(first.usage)
    await limited(client, agent, max_tokens=4 * each)
    convs = [await client.open(agent) for _ in range(12)]

    async def spend(conv: str) -> conversation.Turn | None:
        try:
            return (await client.turn(conv, "Spend."))[0]
        except aio.AioRpcError as problem:
            # On a slow machine the others have spent everything before this one is sent.
            assert problem.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, problem
            return None

    turns = [turn for turn in await asyncio.gather(*map(spend, convs)) if turn is not None]
    done = [turn for turn in turns if turn.status == COMPLETED]
    assert 1 <= len(done) < 12
    assert {turn.error.reason for turn in turns if turn.status == FAILED} <= {EXHAUSTED}
    # By no more than one call, as an estimate may be too low.
    assert tokens((await agent_of(client, agent)).usage) <= 5 * each


async def test_a_delegate_has_what_its_caller_has_left_and_counts_for_both(
    client: Client, provider: Provider
) -> None:
    guest, host = Scripted(client, provider, "anthropic"), Scripted(client, provider, "openai")
    expert = await guest.agent(AGAIN)
    tool, name = await asking(client, expert)
    agent = await host.agent(Script(calls=(call(name, message="?"),)), Script(text="No."), tools=(tool,))
    await limited(client, agent, max_tokens=2_000)
    turn, view = await client.turn(await client.open(agent), "Ask.")
    (ended,) = (e.agent_call_completed for e in view.events if e.name == "agent_call_completed")
    assert ended.error.reason == EXHAUSTED and int(ended.error.metadata["limit"]) < 2_000
    called = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=ended.turn_id))).turn
    assert tokens((await agent_of(client, expert)).usage) == tokens(called.usage) > 0
    assert tokens((await agent_of(client, agent)).usage) == tokens(turn.usage) > tokens(called.usage)


async def test_the_time_of_an_agent_ends_its_turns(scripted: Scripted) -> None:
    client = scripted.client
    agent = await scripted.agent(Script(text="one two", stall="chunks"), tools=())
    await limited(client, agent, max_duration_ms=400)
    conv = await client.open(agent)
    turn, _ = await client.turn(conv, "Take your time.")
    assert turn.status == FAILED and turn.error.reason == EXHAUSTED
    assert turn.error.metadata["budget"] == "time"
    assert (await rejected(client.say(conv, "And now?")))[0] == "BUDGET_EXHAUSTED"


async def test_a_kill_gives_an_agent_nothing_back(provider: Provider, data: Path) -> None:
    environment = {"OPENAI_API_KEY": KEY, "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1"}
    async with serving(data, environment=environment) as first:
        async with first.client() as client:
            scripted = Scripted(client, provider, "openai")
            agent = await scripted.agent(AGAIN, Script(stall="headers"), Script(text="Done."))
            conv = await client.open(agent)
            said = await client.say(conv, "Take your time.")
            await provider.wait_until(lambda: len(scripted.requests) == 2)
            spent = (await agent_of(client, agent)).usage
            assert tokens(spent) > 0
        await first.kill()
    async with serving(data, environment=environment) as second, second.client() as client:
        await client.settled(conv, said.turn.id)
        turn = (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=said.turn.id))).turn
        assert turn.status == COMPLETED and tokens(turn.usage) > tokens(spent)
        assert tokens((await agent_of(client, agent)).usage) == tokens(turn.usage)
        await limited(client, agent, max_tokens=tokens(turn.usage))
        assert (await rejected(client.say(conv, "More?")))[0] == "BUDGET_EXHAUSTED"
