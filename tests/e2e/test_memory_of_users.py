"""Memories about users: attribution for others, the tools `forget` and `correct` (features E6, M13)."""

from __future__ import annotations

import json

import pytest

from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.e2e.test_conversations import add, say_to
from tests.e2e.test_multi_party import person, written
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import memory_pb2
from wonder.v1 import memory_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOLS = tuple(f"wonder/std/{name}" for name in ("remember", "recall", "forget", "correct"))


def calling(name: str, **arguments: str) -> Script:
    return Script(calls=(Call(name=name, arguments=json.dumps(arguments)),))


async def turn(client: Client, conv: str, text: str, user_id: str) -> None:
    """Run one turn to its end."""
    async with client.listening(conv) as listener:
        said = await say_to(client, conv, text, user_id=user_id)
        await listener.until(lambda view: view.settled(said.turn.id))


async def memories(client: Client, agent: str, *, superseded: bool = False) -> list[memory_pb2.Memory]:
    wanted = pb.MemoryFilter(include_superseded=superseded)
    return list(
        (await client.memory.ListMemories(pb.ListMemoriesRequest(agent_id=agent, filter=wanted))).memories
    )


def lines_of(speaks: str, request: dict[str, object]) -> list[str]:
    """Return the lines of a request that begin like a memory."""
    system, messages = written(speaks, request)
    texts = [system, *(text for _, text in messages)]
    return [line for text in texts for line in str(text).splitlines() if line.startswith("- ")]


@pytest.mark.parametrize("speaks", ["openai", "responses", "anthropic", "gemini"])
async def test_what_one_user_says_is_offered_to_another_only_as_said_by_the_first(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        calling("remember", fact="I am allergic to peanuts."),
        Script(text="Noted."),
        calling("remember", fact="The canteen serves peanuts on Monday.", about="other"),
        Script(text="Good to know."),
        Script(text="You are."),
        Script(text="Not that I know."),
        tools=TOOLS,
    )
    mias, bobs = await client.open(agent), await client.open(agent)
    await turn(client, mias, "I am allergic to peanuts.", "mia")
    await turn(client, mias, "Peanuts on Monday!", "mia")
    first, second = await memories(client, agent)
    assert (first.subject, first.source.speaker_id) == ("", "mia")
    assert (second.subject, second.source.speaker_id) == ("mia", "mia")

    await turn(client, mias, "Am I allergic to peanuts?", "mia")
    assert sorted(lines_of(speaks, scripted.requests[-1])) == [
        "- I am allergic to peanuts.",
        "- The canteen serves peanuts on Monday.",
    ]
    await turn(client, bobs, "Am I allergic to peanuts?", "bob")
    assert sorted(lines_of(speaks, scripted.requests[-1])) == [
        "- (said by [user mia]) I am allergic to peanuts.",
        "- The canteen serves peanuts on Monday.",
    ]
    # Among several participants everything names its speaker, to the same user too.
    await add(client, bobs, person("mia", "Mia"))
    await turn(client, bobs, "And I, am I allergic to peanuts?", "mia")
    assert "- (said by [user Mia]) I am allergic to peanuts." in lines_of(speaks, scripted.requests[-1])


async def test_a_user_has_a_memory_forgotten_and_corrected_and_no_other_users(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="Hello."), tools=TOOLS)
    written = []
    for subject, content in (
        ("mia", "I live in Rome."),
        ("mia", "I have a cat."),
        ("bob", "I live in Oslo."),
    ):
        memory = memory_pb2.Memory(type="fact", content=content, subject=subject)
        answer = await client.memory.WriteMemory(pb.WriteMemoryRequest(agent_id=agent, memory=memory))
        written.append(answer.memory.id)
    rome, cat, oslo = written
    provider.script(
        scripted.model,
        Script(
            calls=(
                Call(name="correct", arguments=json.dumps({"memory_id": rome, "fact": "I live in Bern."})),
                Call(name="forget", arguments=json.dumps({"memory_id": cat})),
                Call(name="forget", arguments=json.dumps({"memory_id": oslo})),
                Call(name="correct", arguments=json.dumps({"memory_id": oslo, "fact": "I live in Rome."})),
                Call(name="forget", arguments=json.dumps({"memory_id": "mem_unknown"})),
            )
        ),
        Script(text="Done."),
        Script(text="In Bern."),
    )
    conv = await client.open(agent)
    await turn(client, conv, "Forget my cat. I moved to Bern.", "mia")
    results = [
        json.loads(message["content"])  # type: ignore[index]
        for message in scripted.requests[-1]["messages"]  # type: ignore[attr-defined]
        if message["role"] == "tool"
    ]
    corrected, forgotten, *refused = results
    newest, *others = await memories(client, agent)
    assert corrected == {
        "memory_id": newest.id,
        "remembered": "I live in Bern.",
        "replaced": "I live in Rome.",
        "replaced_id": rome,
    }
    assert forgotten == {"memory_id": cat, "forgotten": "I have a cat."}
    codes = [each["error"]["code"] for each in refused]
    assert codes == ["PERMISSION_DENIED", "PERMISSION_DENIED", "EXECUTION_FAILED"]
    assert "about another user" in refused[0]["error"]["message"]
    # The old memory stays with its lineage, and no search or list shows it.
    assert (newest.content, newest.subject, newest.supersedes_id) == ("I live in Bern.", "mia", rome)
    assert [each.id for each in others] == [oslo]
    assert {each.id for each in await memories(client, agent, superseded=True)} == {newest.id, rome, oslo}
    await turn(client, conv, "Where do I live?", "mia")
    request = json.dumps(scripted.requests[-1])
    assert "- I live in Bern." in request and "- I live in Rome." not in request
