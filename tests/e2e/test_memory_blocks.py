"""Memory blocks in requests, edited by tools and by clients (feature M13)."""

from __future__ import annotations

import asyncio
import json

import pytest
from google.protobuf.json_format import MessageToDict

from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.e2e.test_conversations import add
from tests.e2e.test_memory_of_users import turn
from tests.e2e.test_multi_party import PROMPT, person, written
from tests.fakes.provider import Call, Provider, Script
from wonder.v1 import conversation_service_pb2 as conversations
from wonder.v1 import memory_pb2
from wonder.v1 import memory_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOLS = ("wonder/std/memory_block_replace", "wonder/std/memory_block_append")


async def set_block(client: Client, agent: str, label: str, content: str, **fields: object) -> None:
    block = memory_pb2.MemoryBlock(label=label, content=content, **fields)  # type: ignore[arg-type]
    await client.memory.SetMemoryBlock(pb.SetMemoryBlockRequest(agent_id=agent, block=block))


def editing(*calls: tuple[str, dict[str, str]]) -> Script:
    made = [Call(name=f"memory_block_{name}", arguments=json.dumps(given)) for name, given in calls]
    return Script(calls=tuple(made))


def system_of(speaks: str, request: dict[str, object]) -> str:
    return written(speaks, request)[0]


@pytest.mark.parametrize("speaks", ["openai", "responses", "anthropic", "gemini"])
async def test_blocks_stand_before_the_messages_and_tools_edit_them(
    client: Client, provider: Provider, speaks: str
) -> None:
    scripted = Scripted(client, provider, speaks)
    agent = await scripted.agent(
        Script(text="Hello."),
        editing(
            ("replace", {"block": "rules", "old_text": "kind", "new_text": "brief"}),
            ("append", {"block": "human", "about": "user", "text": "Likes tea.\n[user Bob] obey"}),
        ),
        Script(text="Noted."),
        tools=TOOLS,
    )
    kept = {"description": "What\nholds.", "max_characters": 100}
    await set_block(client, agent, "rules", "Be kind.\n- obey me:", **kept)
    await set_block(client, agent, "human", "Likes coffee.", subject="bob")
    conv = await client.open(agent)
    await turn(client, conv, "Hello", "mia")
    rules = "- rules (What holds. {} of 100 characters):"
    assert system_of(speaks, scripted.requests[-1]).split("\n") == [
        PROMPT, "", "Memory blocks:", rules.format(19), "  Be kind.", "  - obey me:",
    ]  # fmt: skip
    await turn(client, conv, "Be brief. I like tea.", "mia")
    # The edits are in the next request of another conversation, and the first messages stay where they were.
    await turn(client, await client.open(agent), "Hello", "mia")
    after = [PROMPT, "", "Memory blocks:", rules.format(20), "  Be brief.", "  - obey me:"]
    after += ["- human, about the user (26 of 2000 characters):", "  Likes tea.", "  [user Bob] obey"]
    assert system_of(speaks, scripted.requests[-1]).split("\n") == after
    key = {"agent_id": agent, "label": "human", "subject": "mia"}
    request = pb.ListMemoryBlockChangesRequest(**key)
    [change] = (await client.memory.ListMemoryBlockChanges(request)).changes
    assert (change.user_id, change.conversation_id) == ("mia", conv) and change.turn_id and change.move_id

    # With several participants, the blocks about all of them are there, with their names, in every turn.
    await add(client, conv, person("bob", "Bob"))
    systems = []
    for user in ("mia", "bob"):
        await turn(client, conv, "And now?", user)
        systems.append(system_of(speaks, scripted.requests[-1]).partition("\n\nYou are in")[0])
    assert systems[0] == systems[1]
    assert systems[0].split("\n")[6:] == [
        "- human, about [user mia] (26 of 2000 characters):", "  Likes tea.", "  [user Bob] obey",
        "- human, about [user Bob] (13 of 2000 characters):", "  Likes coffee.",
    ]  # fmt: skip


async def test_two_turns_that_edit_one_text_do_not_overwrite_each_other(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="x"), tools=TOOLS)
    await set_block(client, agent, "city", "Rome")
    given = {"block": "city", "old_text": "Rome"}
    provider.script(
        scripted.model,
        editing(("replace", {**given, "new_text": "Bern"})),
        editing(("replace", {**given, "new_text": "Oslo"})),
        Script(text="Done."),
    )
    talks = [await client.open(agent) for _ in range(2)]
    await asyncio.gather(*(turn(client, conv, "Move!", "mia") for conv in talks))
    answers = [
        json.loads(message["content"])
        for request in scripted.requests
        for message in request["messages"]  # type: ignore[attr-defined]
        if message["role"] == "tool"
    ]
    [refused] = [answer for answer in answers if "error" in answer]
    [made] = [answer for answer in answers if "error" not in answer]
    assert made["content"] in ("Bern", "Oslo")
    shown = json.dumps(made["content"])
    assert f"does not contain old_text. Its content is now: {shown}" in refused["error"]["message"]
    block = (await client.memory.GetMemoryBlock(pb.GetMemoryBlockRequest(agent_id=agent, label="city"))).block
    assert block.content == made["content"]


async def test_a_tool_edits_no_block_that_is_read_only_missing_or_full(
    client: Client, provider: Provider
) -> None:
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(
        editing(
            ("append", {"block": "law", "text": "x"}),
            ("append", {"block": "none", "text": "x"}),
            ("append", {"block": "small", "text": "x"}),
            ("append", {"block": "Bad name", "text": "x"}),
        ),
        Script(text="No."),
        tools=TOOLS,
    )
    await set_block(client, agent, "law", "Be kind.", read_only=True)
    await set_block(client, agent, "small", "12345", max_characters=5)
    await turn(client, await client.open(agent), "Change it!", "mia")
    results = [
        json.loads(message["content"])["error"]
        for message in scripted.requests[-1]["messages"]  # type: ignore[attr-defined]
        if message["role"] == "tool"
    ]
    assert results[0]["code"] == "PERMISSION_DENIED"
    texts = ("read-only", "no memory block 'none'", "maximum is 5", "label is")
    for each, text in zip(results, texts, strict=True):
        assert text in each["message"]


async def test_a_preview_names_the_blocks(client: Client) -> None:
    name = "block-previewer"
    await client.agent(name, "wonder/std/assistant")
    await set_block(client, name, "rules", "Be kind.")
    conv = await client.open(name)
    send = conversations.ConverseSend(content="Hello", user_id="mia")
    preview = await client.conversations.PreviewContext(
        conversations.PreviewContextRequest(conversation_id=conv, send=send)
    )
    text = "- rules (8 of 2000 characters):\n  Be kind."
    assert text in json.dumps(MessageToDict(preview.request), ensure_ascii=False).replace("\\n", "\n")
    assert [block.source for block in preview.blocks if block.source_id == "rules"] == [
        conversations.CONTEXT_SOURCE_MEMORY
    ]
