"""Five messages in one moment to an agent at work and a kill in the middle, by each policy (feature M11)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.conformance.models.subjects import KEY
from tests.e2e.client import PATIENCE_S, View
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.e2e.test_concurrent_turns import MESSAGES, POLICIES, turns_of
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_pb2 as conversation

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACTIVE, QUEUED = conversation.TURN_STATUS_ACTIVE, conversation.TURN_STATUS_QUEUED
COMPLETED, CANCELLED = conversation.TURN_STATUS_COMPLETED, conversation.TURN_STATUS_CANCELLED
SAID = [f"message {number}" for number in range(MESSAGES)]
BEFORE = {
    "parallel": [ACTIVE] * MESSAGES,
    "queue": [ACTIVE] + [QUEUED] * (MESSAGES - 1),
    "interrupt": [CANCELLED] * (MESSAGES - 1) + [ACTIVE],
    "steer": [ACTIVE],
}
"""Statuses of the turns when the server dies: the model has answered none of them."""
AFTER = {
    "parallel": [COMPLETED] * MESSAGES,
    "queue": [COMPLETED] * MESSAGES,
    "interrupt": [CANCELLED] * (MESSAGES - 1) + [COMPLETED],
    "steer": [COMPLETED, COMPLETED],
}
CALLS = {"parallel": MESSAGES, "queue": MESSAGES, "interrupt": 1, "steer": 2}
"""Calls of the model after the kill. A steered turn repeats its call; what came after it is another turn."""


@pytest.mark.parametrize("policy", POLICIES)
async def test_five_messages_in_one_moment_and_a_kill_in_the_middle(
    policy: str, provider: Provider, data: Path
) -> None:
    environment = {"OPENAI_API_KEY": KEY, "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1"}
    async with asyncio.timeout(PATIENCE_S):
        async with serving(data, environment=environment) as server, server.client() as client:
            scripted = Scripted(client, provider, "openai")
            agent = await scripted.agent(Script(stall="headers"), tools=())
            conv = await client.open(agent, concurrent_turns=POLICIES[policy])
            for number, text in enumerate(SAID):
                await client.say(conv, text, f"say {number}")
                if policy == "steer" and not number:
                    # Else it depends on the machine which messages the first call has.
                    await provider.wait_until(lambda: len(scripted.requests) == 1)
            last = SAID[-1] if policy in ("parallel", "interrupt") else SAID[0]
            await provider.wait_until(lambda: any(last in json.dumps(each) for each in scripted.requests))
            assert [turn.status for turn in await turns_of(client, conv)] == BEFORE[policy]
            asked = len(scripted.requests)
            await server.kill()
        provider.script(scripted.model, *(Script(text=f"answer {number}") for number in range(MESSAGES)))
        async with serving(data, environment=environment) as server, server.client() as client:
            # A client that has no answer sends its message again.
            for number, text in enumerate(SAID):
                await client.say(conv, text, f"say {number}")
            async with client.listening(conv, View()) as listener:
                turns = await turns_of(client, conv)
                await listener.until(lambda view: all(view.settled(turn.id) for turn in turns))
            turns, messages = await turns_of(client, conv), await client.messages(conv)
    assert [turn.status for turn in turns] == AFTER[policy]
    assert [each.content for each in messages if each.role == conversation.MESSAGE_ROLE_USER] == SAID
    answers = [each.content for each in messages if each.role == conversation.MESSAGE_ROLE_AGENT]
    requests = [json.dumps(each) for each in scripted.requests[asked:]]
    assert len(requests) == CALLS[policy] and len(answers) == CALLS[policy]
    assert sorted(answers) == [f"answer {number}" for number in range(CALLS[policy])]
    check(policy, turns, requests, answers)


def check(policy: str, turns: list[conversation.Turn], requests: list[str], answers: list[str]) -> None:
    match policy:
        case "parallel":
            assert all(SAID[0] in request for request in requests)
        case "queue":
            assert answers == sorted(answers)
            for number, request in enumerate(requests):
                known = [text in request for text in SAID]
                assert ("not for you to answer now" in request) == (number == 0)
                # The repeated first request has a notice of what was said meanwhile, not to be answered.
                assert known == [each <= number or number == 0 for each in range(MESSAGES)]
                assert number == 0 or f"answer {number - 1}" in request
        case "interrupt":
            assert all(text in requests[0] for text in SAID)
            assert all(turn.error.metadata["interrupted"] == "true" for turn in turns[:-1])
        case _:
            assert [text in requests[0] for text in SAID] == [True] + [False] * (MESSAGES - 1)
            assert all(text in requests[-1] for text in SAID)
