"""Requests of successive turns have one beginning, so that providers find it in their caches (feature M5)."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.e2e.client import Client
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.fakes.provider import Call, Provider, Script

pytestmark = pytest.mark.asyncio(loop_scope="session")

NATIVE = [name for name in PROVIDERS if name != "litellm"]
MESSAGES = {"openai": "messages", "responses": "input", "anthropic": "messages", "gemini": "contents"}
TEA = Call(name="remember", arguments=json.dumps({"fact": "The user likes green tea in the morning."}))
RECALL = Call(name="recall", arguments='{"query": "tea"}')
WITH_TOOLS = (Script(text="Let me see.", calls=(TEA,)), Script(text="Kept."))
QUESTIONS = (
    "Remember that I like green tea in the morning.", "Which tea do I like?", "What is two and two?",
    "And coffee?", "When do I drink tea?", "Who are you?", "Do I like green tea?", "Thanks.",
    "Tea in the evening?", "Good night.",
)  # fmt: skip


@pytest.fixture(params=NATIVE)
def scripted(client: Client, provider: Provider, request: pytest.FixtureRequest) -> Scripted:
    return Scripted(client, provider, request.param)


async def first_requests(scripted: Scripted) -> list[dict[str, Any]]:
    """Return the first request of each of ten turns, of which the first and the fifth call tools."""
    answers = [Script(text=f"Answer {number}.") for number in range(3)]
    later = [Script(text=f"Later {number}.") for number in range(5)]
    again = Script(text="", calls=(RECALL,)), Script(text="In the morning.")
    agent = await scripted.agent(*WITH_TOOLS, *answers, *again, *later)
    conv = await scripted.client.open(agent)
    found: list[dict[str, Any]] = []
    for question in QUESTIONS:
        before = len(scripted.requests)
        await scripted.client.turn(conv, question)
        found.append(scripted.requests[before])
    return found


async def test_ten_successive_turns_repeat_the_beginning_of_their_requests(scripted: Scripted) -> None:
    field, found = MESSAGES[scripted.speaks], await first_requests(scripted)
    assert len(found) == len(QUESTIONS)
    for before, after in itertools.pairwise(found):
        stable = before[field][:-1]
        assert json.dumps(after[field][: len(stable)]) == json.dumps(stable)
        for name in ("tools", "instructions", "system", "systemInstruction"):
            assert json.dumps(after.get(name)) == json.dumps(before.get(name))
    # What depends on the question stands at the end, with the message.
    assert any("Memories:" in json.dumps(each[field][-1]) for each in found)
    assert not any("Memories:" in json.dumps(each[field][:-1]) for each in found)
    last = json.dumps(found[-1][field])
    assert last.count("I will remember") == 0 and "Let me see." in last and "In the morning." in last
    assert last.count('"recall"') and last.count('"remember"')


async def test_an_earlier_call_and_its_result_are_in_the_form_of_the_provider(scripted: Scripted) -> None:
    scripts = Script(text="", calls=(RECALL,)), Script(text="Nothing."), Script(text="Fine.")
    conv = await scripted.client.open(await scripted.agent(*scripts))
    await scripted.client.turn(conv, "What about tea?")
    await scripted.client.turn(conv, "And now?")
    within, after = (request[MESSAGES[scripted.speaks]] for request in scripted.requests[1:])
    assert isinstance(within, list) and isinstance(after, list)
    *_, result, said, now = after
    assert "Nothing." in json.dumps(said) and "And now?" in json.dumps(now)
    if scripted.speaks == "gemini":
        assert result["parts"][0]["functionResponse"]["name"] == "recall"
    else:
        assert result == within[-1]
    assert len(after) == len(within) + 2 and "recall" in json.dumps(after[-4])
