"""Budgets of turns, conversations and agents hold for work that runs at the same time (feature C6)."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass, replace

import pytest

from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.e2e.test_agent_budgets import limited
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import common_pb2 as common
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED, FAILED = conversation.TURN_STATUS_COMPLETED, conversation.TURN_STATUS_FAILED
LIMIT = 4_000
CALL_TOKENS = 360
"""Tokens of each answer of the provider; its requests seem at least as large to the server."""
_NUMBERS = itertools.count(1)
AT_ONCE = 40
"""Calls that together need several times the limit."""
SLOW = Script(text="one two three four five six", delay_ms=50, scale=20)
DONE = Script(text="Done.", scale=20)

ASKING = """
name: ask_in_parallel
task:
  steps:
    - id: ask
      action: {kind: llm}
      input_mapping:
        model_profile: '{"provider": "openai", "model": "MODEL", "format": "openai_chat"}'
        request: '{"model": "MODEL", "messages": [{"role": "user", "content": "WORDS"}]}'
      output_mapping: {output.text: result.text}
---
name: NAME
tool: {target_type: task, target_id: ask_in_parallel, description: Asks, input_schema: {type: object}}
"""
WORDS = "A question of some length. " * 50


@dataclass(frozen=True)
class Asking:
    """An agent that asks others, with the names of its own model and of theirs."""

    name: str
    own: str
    below: str


async def asking_agent(
    client: Client, provider: Provider, kind: str, limits: dict[str, int] | None = None
) -> Asking:
    """An agent that asks `AT_ONCE` models at once, by tools of a kind, and then answers."""
    scripted, below = Scripted(client, provider, "openai"), Scripted(client, provider, "openai")
    if kind == "task":
        below.model = f"below_{next(_NUMBERS)}"
        provider.script(below.model, SLOW)
        tool = f"ask_{below.model}"
        definitions = ASKING.replace("MODEL", below.model).replace("NAME", tool)
        await client.apply("e2e/parallel", definitions.replace("WORDS", WORDS))
    else:
        expert = await below.agent(SLOW)
        tool = f"ask_{expert}"
        spec = {"target_type": "agent", "target_id": expert, "description": "Asks an expert."}
        await client.apply("e2e/parallel", json.dumps({"name": tool, "tool": spec}))
    call = Call(name=tool, arguments=json.dumps({"message": WORDS} if kind == "agent" else {}))
    name = await scripted.agent(
        replace(DONE, text="", calls=(call,) * AT_ONCE),
        DONE,
        tools=(f"e2e/parallel/{tool}",),
        limits=limits,
    )
    return Asking(name, scripted.model, below.model)


def provider_tokens(provider: Provider, *models: str) -> int:
    counted = [seen.counts for model in models for seen in provider.of(model)]
    return sum(each.input + each.output for each in counted if each is not None)


@pytest.mark.parametrize("kind", ["task", "agent"])
@pytest.mark.parametrize("whose", ["turn", "conversation", "agent"])
async def test_calls_of_one_answer_share_what_is_left(
    client: Client, provider: Provider, kind: str, whose: str
) -> None:
    limits = {"max_tokens_per_turn": LIMIT} if whose == "turn" else None
    agent = await asking_agent(client, provider, kind, limits)
    if whose == "agent":
        await limited(client, agent.name, max_tokens=LIMIT)
    budget = {"budget": common.Budget(max_tokens=LIMIT)} if whose == "conversation" else {}
    conv = await client.open(agent.name, **budget)
    turn, _ = await client.turn(conv, "Ask them all.")
    used = provider_tokens(provider, agent.own, agent.below)
    # The last call that fits may exceed the limit, and the turn itself may answer once more.
    assert LIMIT // 2 < used <= LIMIT + 2 * CALL_TOKENS
    asked = len(provider.of(agent.below))
    assert 3 < asked < AT_ONCE
    (move, *_) = await client.moves(turn.id, conv)
    refused = [result.error.message for result in move.tool_results if not result.success]
    assert len(refused) >= AT_ONCE - asked
    assert all("raise" in message for message in refused)


async def test_parallel_turns_share_what_is_left_of_their_conversation(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(replace(SLOW, scale=10))  # Less than its request seems to need.
    conv = await client.open(agent, budget=common.Budget(max_tokens=LIMIT))
    async with client.listening(conv) as listener:
        said = await asyncio.gather(
            *[client.say(conv, "Hello!") for _ in range(AT_ONCE)], return_exceptions=True
        )
        turns = [each.turn.id for each in said if not isinstance(each, BaseException)]
        await listener.until(lambda view: all(view.settled(turn_id) for turn_id in turns))
    assert CALL_TOKENS <= provider_tokens(provider, scripted.model) <= LIMIT
    ended = [(await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=each))).turn for each in turns]
    failed = [turn.error.message for turn in ended if turn.status == FAILED]
    assert len(failed) == len(turns) - len(provider.of(scripted.model)) > 0
    assert any("and calls in progress may need" in each for each in failed)


async def test_work_one_after_the_other_uses_the_whole_budget(client: Client, provider: Provider) -> None:
    """Reservations end with their calls: nothing is refused that fits."""
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(SLOW)
    conv = await client.open(agent, budget=common.Budget(max_tokens=3_000))
    for number in range(3_000 // CALL_TOKENS):
        turn, _ = await client.turn(conv, f"Question {number}.")
        assert turn.status == COMPLETED
    request = pb.GetConversationRequest(conversation_id=conv)
    usage = (await client.conversations.GetConversation(request)).conversation.usage
    assert usage.input_tokens + usage.output_tokens == (3_000 // CALL_TOKENS) * CALL_TOKENS
