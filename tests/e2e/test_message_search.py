"""SearchMessages: filters, orders, pages, bad input, resets, the archive and a deletion."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.e2e.archived import AHEAD, is_away
from tests.e2e.client import Client
from tests.e2e.process import Server, serving
from tests.e2e.test_archive import until
from tests.e2e.test_conversations import reset, say_to
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_service_pb2 as pb
from wonder_sdk import Client as SdkClient
from wonder_sdk import InvalidArgumentError, cli

pytestmark = pytest.mark.asyncio(loop_scope="session")

_numbers = itertools.count(1)
QUIET = """
name: quiet
persona: {system_prompt: You are quiet., memory_extraction_workflow_id: none}
"""


async def search(client: Client, query: str, **fields: Any) -> pb.SearchMessagesResponse:
    request = pb.SearchMessagesRequest(query=query, **fields)
    found: pb.SearchMessagesResponse = await client.conversations.SearchMessages(request)
    return found


async def texts(client: Client, query: str, **fields: Any) -> list[str]:
    return [match.message.content for match in (await search(client, query, **fields)).matches]


async def opened(client: Client, *said: str) -> str:
    """Return a conversation in which a user said these texts, each echoed by the agent in other words."""
    await client.apply("e2e/search", QUIET)
    name = f"quiet_{next(_numbers)}"
    await client.agent(name, "e2e/search/quiet")
    conv = await client.open(name)
    for text in said:
        await client.turn(conv, text)
    return conv


async def agent_of(client: Client, conv: str) -> str:
    """Return the author of the answers."""
    return str((await client.messages(conv))[1].author)


async def test_messages_are_found_in_one_conversation_and_in_all(client: Client) -> None:
    conv = await opened(client, "The zebrafish swims.", "say 2 words")
    other = await opened(client, "A ZEBRA fishes.", "Two zebras, and one more zebra.")
    assert await texts(client, "zebra", conversation_id=conv, user_id="another") == []
    found = await search(client, "zebra", conversation_id=other, order=pb.MESSAGE_ORDER_BEST)
    assert found.matches[0].message.content.startswith("Two zebras") and not found.older_omitted
    assert 0 < found.matches[-1].score <= found.matches[0].score <= 1
    everywhere = await search(client, "zebra")
    assert {match.message.conversation_id for match in everywhere.matches} == {conv, other}
    users = [each for each in await client.messages(other) if each.ordinal == 1]
    agents = await search(client, "word1", conversation_id=conv, agent_id=await agent_of(client, conv))
    assert [match.snippet for match in agents.matches] == ["word1 word2"]
    assert not (await search(client, "zebra", conversation_id=conv, agent_id="assistant")).matches
    assert (await texts(client, "zebrafish", project_id="default"))[:1]
    moment: Timestamp = users[0].create_time
    assert "A ZEBRA fishes." in await texts(client, "zebra", start_time=moment)
    assert "A ZEBRA fishes." not in await texts(client, "zebra", end_time=moment)


@pytest.mark.parametrize("order", [pb.MESSAGE_ORDER_NEWEST, pb.MESSAGE_ORDER_BEST])
@pytest.mark.parametrize("everywhere", [True, False])
async def test_pages_join_while_new_messages_arrive(client: Client, order: Any, everywhere: bool) -> None:
    word = f"giraffe{order}{int(everywhere)}"
    conv = await opened(client, *(f"{word} number{n}" for n in range(5)))
    scope = {} if everywhere else {"conversation_id": conv}
    whole = await search(client, word, order=order, **scope)
    assert len(whole.matches) >= 5 and not whole.next_page_token
    seen: list[str] = []
    token = ""
    while True:
        page = await search(client, word, order=order, page_size=2, page_token=token, **scope)
        seen += [match.message.id for match in page.matches]
        token = page.next_page_token
        if not token:
            break
        await client.turn(conv, f"{word} {word} {word}")
    assert seen == [match.message.id for match in whole.matches]


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"query": ""}, "FIELD_INVALID", "query"),
        ({"query": " *?\"'()-"}, "FIELD_INVALID", "query"),
        ({"query": "x" * 100_000}, "FIELD_INVALID", "query"),
        ({"query": "w " * 400 + " ".join(map(str, range(20)))}, "FIELD_INVALID", "query"),
        ({"query": "a", "user_id": "u" * 129}, "FIELD_INVALID", "user_id"),
        ({"query": "a", "conversation_id": "c" * 100_000}, "FIELD_INVALID", "conversation_id"),
        ({"query": "a", "page_size": -1}, "FIELD_INVALID", "page_size"),
        ({"query": "a", "page_token": "nonsense"}, "PAGE_TOKEN_INVALID", "page_token"),
        ({"query": "a", "conversation_id": "nonsense"}, "CONVERSATION_NOT_FOUND", "conversation_id"),
        (
            {"query": "a", "conversation_id": "conv_01HF7YAT000000000000000000"},
            "CONVERSATION_NOT_FOUND",
            "conversation_id",
        ),
        ({"query": "a", "agent_id": "nobody-at-all"}, "AGENT_NOT_FOUND", "agent_id"),
        ({"query": "a", "project_id": "nothing"}, "PROJECT_NOT_FOUND", "project_id"),
        ({"query": "a", "order": 7}, "FIELD_INVALID", "order"),
    ],
)
async def test_bad_requests_are_refused(
    client: Client, fields: dict[str, Any], reason: str, field: str
) -> None:
    refused = await rejected(search(client, fields.pop("query"), **fields))
    assert refused[0] == reason and field in str(refused)


@pytest.mark.parametrize(
    "query",
    ['"zorro"', "zorro* OR x", "NEAR(zorro zorro)", "content:zorro", "zorro'; DROP TABLE messages;--"],
)
async def test_operators_are_only_words(client: Client, query: str) -> None:
    conv = await opened(client, "Content near zorro or x: drop table messages.")
    assert len(await texts(client, query, conversation_id=conv)) >= 1


async def test_a_token_belongs_to_its_query_and_filters(client: Client) -> None:
    conv = await opened(client, "lemur one", "lemur two")
    token = (await search(client, "lemur", conversation_id=conv, page_size=1)).next_page_token
    assert token
    for query, fields in (
        ("lemurs", {"conversation_id": conv}),
        ("lemur", {}),
        ("lemur", {"conversation_id": conv, "order": pb.MESSAGE_ORDER_BEST}),
        ("lemur", {"conversation_id": conv, "user_id": "ann"}),
    ):
        refused = await rejected(search(client, query, page_size=1, page_token=token, **fields))
        assert refused[0] == "PAGE_TOKEN_INVALID"


async def test_clients_find_messages_before_a_reset_and_none_of_a_deleted_conversation(
    client: Client,
) -> None:
    conv = await opened(client, "The okapi sleeps.")
    await reset(client, conv)
    assert "The okapi sleeps." in await texts(client, "okapi", conversation_id=conv)
    assert "The okapi sleeps." in await texts(client, "okapi")
    await client.conversations.DeleteConversation(pb.DeleteConversationRequest(conversation_id=conv))
    assert "The okapi sleeps." not in await texts(client, "okapi")


async def test_an_archived_conversation_is_found_by_its_id_alone(data: Path) -> None:
    environment = {"WONDER_CONVERSATION_TTL_SECONDS": "3600"}
    async with serving(data, environment=environment) as server, server.client() as client:
        conv = await opened(client, "The panda eats.")
        assert "The panda eats." in await texts(client, "panda")
    later = {**environment, "CLOCK_AHEAD_S": AHEAD}
    async with serving(data, environment=later) as server, server.client() as client:
        await until(lambda: is_away(client, conv))
        assert await texts(client, "panda") == []
        assert "The panda eats." in await texts(client, "panda", conversation_id=conv)


async def test_large_messages_come_in_pages_below_the_limit_of_clients(client: Client) -> None:
    conv = await opened(client)
    for number in range(6):
        await say_to(client, conv, f"walrus{number} " + "x" * 900_000)
    token, found = "", 0
    while True:
        page = await search(client, "walrus", conversation_id=conv, page_token=token)
        assert page.ByteSize() < (4 << 20) - (64 << 10)
        found += sum(match.message.content.startswith("walrus") for match in page.matches)
        token = page.next_page_token
        if not token:
            break
    assert found >= 6


async def test_the_sdk_and_the_command_search(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conv = await opened(client, "A puffin.\n[agent boss] puffin \x1b[31mred", "Puffins, puffins!")
    monkeypatch.setenv("WONDER_SERVER", server.address)
    async with SdkClient() as sdk:
        found = [match async for match in sdk.search_messages("puffin", conversation=conv)]
        assert [match.message.ordinal for match in found if match.message] == [4, 3, 2, 1]
        best = [match async for match in sdk.search_messages("puffins", conversation=conv, best_first=True)]
        assert [match.message.ordinal for match in best if match.message] == [3, 4]
        with pytest.raises(InvalidArgumentError):
            await anext(sdk.search_messages("?"))
        with pytest.raises(TypeError):
            await anext(sdk.search_messages("puffin", converation=conv))  # type: ignore[call-arg]

    async def run(*words: str) -> tuple[int, list[str]]:
        code = await asyncio.to_thread(cli.main, ["search", *words])
        return code, capsys.readouterr().out.splitlines()

    code, lines = await run("puffin", "-c", conv, "-n", "3")
    assert code == 0 and len(lines) == 3 and all(line.startswith(conv) for line in lines)
    code, lines = await run("puffin", "boss", "--conversation", conv)
    assert code == 0 and "\x1b" not in "".join(lines)
    assert [line.split("\t")[1] for line in lines] == ["2", "1"]
    code, lines = await run(
        "puffin", "-c", conv, "--best", "--json", "--since", "2020-01-01", "--until", "2199-01-01"
    )
    assert code == 0 and {json.loads(line)["message"]["conversation_id"] for line in lines} == {conv}
    assert await run("puffin", "-c", conv, "--user", "another") == (0, [])
    assert (await run("!"))[0] == 1
