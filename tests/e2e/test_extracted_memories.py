"""Memory extraction through a server: structured output in each format, sources, repeated facts, kill -9
(features D4, E6, M13)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.client import Client, View
from tests.e2e.deaths import at_every, through_deaths
from tests.e2e.scripted import Scripted
from tests.e2e.test_conversations import say_to
from tests.e2e.test_memory_of_users import memories
from tests.e2e.test_money import charged_everywhere
from tests.e2e.test_multi_party import written
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_pb2 as conversation
from wonder_server.core.json_types import JsonDict, JsonValue

pytestmark = pytest.mark.asyncio(loop_scope="session")

PLACES: dict[str, tuple[str, ...]] = {
    "openai": ("response_format", "json_schema", "schema"),
    "responses": ("text", "format", "schema"),
    "anthropic": ("output_config", "format", "schema"),
    "gemini": ("generationConfig", "responseJsonSchema"),
}
"""The place of the output schema in a request of each format."""


def fact(op: str = "write", **fields: JsonValue) -> JsonDict:
    nothing = {"id": None, "subject": None, "message_id": None, "significance": 0.5}
    return {"op": op, "content": "Mia likes tea.", **nothing, **fields}


def answer(*operations: JsonDict) -> Script:
    return Script(text=json.dumps({"operations": operations}))


async def turn(client: Client, conv: str, text: str, user_id: str) -> tuple[conversation.Turn, View]:
    """Run one turn and its extraction; return it with what a listener saw."""
    async with client.listening(conv) as listener:
        said = await say_to(client, conv, text, user_id=user_id)
        view = await listener.until(
            lambda seen: any(name.startswith("memory_extraction") for name in seen.of_turn(said.turn.id))
        )
    return said.turn, view


@pytest.mark.parametrize("speaks", [*PLACES, "litellm"])
async def test_the_model_is_asked_for_operations_and_they_are_stored_with_their_source(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        Script(text="I see."),
        answer(
            fact(subject="mia", significance=0.9),
            fact(subject="eve", content="Eve likes tea."),
            fact("update", id="mem_unknown"),
            fact(content="Tea is drunk hot."),
        ),
        extraction="",
        tools=(),
    )
    conv = await client.open(agent)
    done, view = await turn(client, conv, "I like tea.", "mia")
    assert view.of_turn(done.id)[-2:] == ["memory_operations.refused", "memory_extraction.completed"]
    _, request = scripted.requests
    schema: JsonValue = request
    for name in PLACES.get(speaks, ()):
        schema = schema[name]
    if speaks in PLACES:
        fields = schema["properties"]["operations"]["items"]["properties"]
        assert sorted(fields) == ["content", "id", "message_id", "op", "significance", "subject"]
        _, [(_, exchange)] = written(speaks, request)
        shown = json.loads(str(exchange))
        assert [(each["speaker"], each["text"]) for each in shown["messages"]] == [
            ("user mia", "I like tea."),
            (f"agent {agent}", "I see."),
        ]
        assert shown["known"] == []

    asked, _ = await client.messages(conv)
    mine, tea = sorted(await memories(client, agent), key=lambda memory: memory.content)
    assert (mine.content, mine.subject, mine.significance) == ("Mia likes tea.", "mia", 0.9)
    assert (tea.content, tea.subject) == ("Tea is drunk hot.", "")
    for memory in (mine, tea):
        source = memory.source
        assert (source.message_id, source.turn_id, source.conversation_id) == (asked.id, done.id, conv)
        assert (source.speaker_id, source.role) == ("mia", conversation.MESSAGE_ROLE_USER)
        assert memory.said_at == asked.create_time
    [refused] = [each for each in await client.events(conv) if each.name == "memory_operations.refused"]
    assert [reason.partition(": ")[2] for reason in refused.memory_operations_refused.reasons] == [
        'It is about the user "eve", who does not take part.',
        'It names the memory "mem_unknown", which the model was not given.',
    ]
    usage = await charged_everywhere(client, conv, done.id, agent)
    assert usage.model_calls == 2


async def test_a_fact_that_is_said_again_is_not_stored_again(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "anthropic")
    agent = await scripted.agent(Script(text="I see."), answer(fact(subject="mia")), extraction="", tools=())
    conv = await client.open(agent)
    await turn(client, conv, "I like tea.", "mia")
    [first] = await memories(client, agent)

    async def say_again(*operations: JsonDict) -> JsonDict:
        """Say it again; return what the model was given."""
        provider.script(scripted.model, Script(text="I see."), answer(*operations))
        await turn(client, conv, "As I said, I like tea.", "mia")
        _, [(_, exchange)] = written("anthropic", scripted.requests[-1])
        shown: JsonDict = json.loads(str(exchange))
        return shown

    # The model is given what is remembered nearby, and does nothing, repeats it, or changes it.
    shown = await say_again()
    assert shown["known"] == [{"id": first.id, "content": "Mia likes tea.", "subject": "mia"}]
    assert await memories(client, agent) == [first]
    await say_again(fact(subject="mia", content="Mia  likes TEA."))
    assert await memories(client, agent) == [first]
    await say_again(fact("update", id=first.id, content="Mia likes green tea."))
    [second] = await memories(client, agent)
    assert (second.id, second.content, second.subject) == (first.id, "Mia likes green tea.", "mia")
    await say_again(fact("supersede", id=first.id, subject="mia", content="Mia likes coffee."))
    [third] = await memories(client, agent)
    assert (third.content, third.supersedes_id) == ("Mia likes coffee.", first.id)
    await say_again(fact("contradict", id=third.id, subject="mia", content="Mia likes no coffee."))
    fourth, third = await memories(client, agent)
    assert (list(fourth.contradicts_ids), list(third.contradicts_ids)) == ([third.id], [fourth.id])

    # What another user says changes nothing of hers.
    other = await client.open(agent)
    changes = [fact(op, id=third.id, content="Mia hates coffee.") for op in ("update", "supersede")]
    provider.script(scripted.model, Script(text="I see."), answer(*changes))
    _, view = await turn(client, other, "Mia hates coffee.", "bob")
    assert view.names[-2:] == ["memory_operations.refused", "memory_extraction.completed"]
    assert await memories(client, agent) == [fourth, third]


TEXT = "My dog is called Rex. I like tea a lot."


async def one_turn(client: Client, view: View) -> None:
    """Play a turn whose extraction returns two operations; the story can be repeated."""
    conv = await client.open(request_id="open")
    said = await client.say(conv, TEXT, "say")
    await client.settled(conv, said.turn.id, view)
    found = await memories(client, "assistant")
    assert sorted(memory.content for memory in found) == ["I like tea a lot.", "My dog is called Rex."]
    message, *_ = await client.messages(conv)
    assert {memory.source.message_id for memory in found} == {message.id}


@pytest.mark.parametrize("point", ["in-commit", "committed", "memory-in-commit", "memory-committed"])
async def test_a_kill_between_extraction_and_its_writes_writes_each_memory_once(
    point: str, fresh: Path, tmp_path: Path
) -> None:
    async def tell(data: Path, doom: str) -> int:
        view = View()
        deaths = await through_deaths(data, one_turn, view, doom, "")
        assert view.names[-1] == "memory_extraction.completed"
        assert view.names.count("memory_extraction.completed") == 1
        return deaths

    assert await at_every(point, tell, fresh=fresh, folder=tmp_path) >= 2
