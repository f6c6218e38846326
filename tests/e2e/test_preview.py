"""PreviewContext in each format: participants, the time, arguments of earlier tool calls (feature D6)."""

from __future__ import annotations

import pytest

from tests.e2e.background import call
from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.e2e.test_conversations import add, say_to
from tests.e2e.test_multi_party import person
from tests.fakes.provider import Provider, Script
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIA = "friend of cats"


@pytest.mark.parametrize("speaks", ["openai", "responses", "anthropic", "gemini"])
async def test_participants_the_time_and_arguments_have_rows(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    name = await scripted.agent(
        Script(calls=(call("remember", content=MIA),)),
        Script(text="Noted."),
        tools=("wonder/std/remember",),
    )
    conv = await client.open(name)
    await add(client, conv, person("u1", "Mia"))
    await add(client, conv, person("u2", "Bob"))
    async with client.listening(conv) as listener:
        turn_id = (await say_to(client, conv, "I like cats.", user_id="u1")).turn.id
        await listener.until(lambda view: view.settled(turn_id))

    request = pb.PreviewContextRequest(
        conversation_id=conv, send=pb.ConverseSend(content="And dogs?", user_id="u2")
    )
    blocks = (await client.conversations.PreviewContext(request)).blocks
    called = [block for block in blocks if block.excerpt.startswith("remember(")]
    assert [(each.source, each.source_id) for each in called] == [(pb.CONTEXT_SOURCE_TURN, turn_id)]
    assert called[0].excerpt == f'remember({{"content": "{MIA}"}})'
    assert called[0].path.rpartition("/")[2] in ("arguments", "input", "args")
    people = {
        block.source_id: block.excerpt for block in blocks if block.source == pb.CONTEXT_SOURCE_PARTICIPANT
    }
    assert {people["u1"], people["u2"]} == {"- [user Mia]", "- [user Bob]"} and len(people) == 3
    times = [block for block in blocks if block.source == pb.CONTEXT_SOURCE_TIME]
    assert [each.excerpt.startswith("It is 2") and each.excerpt.endswith("UTC.") for each in times] == [True]


async def test_alone_with_a_user_there_are_no_such_rows(client: Client, provider: Provider) -> None:
    scripted = Scripted(client, provider, "openai")
    conv = await client.open(await scripted.agent(Script(text="Hi."), tools=()))
    request = pb.PreviewContextRequest(conversation_id=conv, send=pb.ConverseSend(content="Hello"))
    kinds = {block.source for block in (await client.conversations.PreviewContext(request)).blocks}
    assert not kinds & {pb.CONTEXT_SOURCE_PARTICIPANT, pb.CONTEXT_SOURCE_TIME}
