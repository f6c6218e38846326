"""Tools of MCP servers in a persona (feature M10): called, changed in mid-turn, hostile, and missing."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToDict

from tests.e2e.background import call
from tests.e2e.client import Client, struct
from tests.e2e.journals import assert_replays
from tests.e2e.process import Server, serving
from tests.e2e.scripted import PROVIDERS, Scripted
from tests.e2e.test_approval import inbox, opened, resolve
from tests.fakes import listing_mcp_server
from tests.fakes.provider import Provider, Script
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Do {name}.", "inputSchema": TEXT, **fields}


def pages(*tools: dict[str, Any]) -> str:
    return json.dumps(tools)


def write(file: Path, *tools: dict[str, Any]) -> None:
    file.write_text(pages(*tools))


def remove(file: Path) -> None:
    file.unlink()


def environment(provider: Provider, file: Path) -> dict[str, str]:
    """Return the settings of a server that asks for the tools of its MCP server in each turn."""
    arguments = [listing_mcp_server.__file__, str(file)]
    return {
        "WONDER_MCP_SERVERS": json.dumps({"lister": {"command": sys.executable, "args": arguments}}),
        "WONDER_MCP_TOOLS_MAX_AGE_SECONDS": "0",
        "OPENAI_API_KEY": "k",
        "ANTHROPIC_API_KEY": "k",
        "GEMINI_API_KEY": "k",
        "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1",
        "WONDER_ANTHROPIC_BASE_URL": provider.url,
        "WONDER_GEMINI_BASE_URL": provider.url,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def listing(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """Start a server that asks for the tools of its MCP server in each turn."""
    folder = tmp_path_factory.mktemp("listing")
    async with serving(folder / "data", environment=environment(provider, folder / "pages")) as running:
        yield running
    assert not [line for line in running.log if line.get("level") == "error"]
    await assert_replays(folder / "data")


@pytest_asyncio.fixture(loop_scope="session")
async def caller(listing: Server) -> AsyncIterator[Client]:
    async with listing.client() as connected:
        yield connected


@pytest.fixture
def file(listing: Server) -> Path:
    return listing.data.with_name("pages")


def offered(request: dict[str, Any]) -> list[str]:
    """Return the names of the tools in a request, of whichever format."""
    found = request.get("tools") or []
    functions = [each.get("functionDeclarations", [each]) for each in found]
    return [each.get("name") or each["function"]["name"] for group in functions for each in group]


async def preview(client: Client, conv: str) -> pb.PreviewContextResponse:
    send = pb.ConverseSend(content="Hello.")
    request = pb.PreviewContextRequest(conversation_id=conv, send=send)
    response: pb.PreviewContextResponse = await client.conversations.PreviewContext(request)
    return response


async def until(client: Client, conv: str, *names: str) -> pb.ToolSourceState:
    """Wait until a turn would get these tools: it does not wait long for a slow list."""
    while True:
        shown = await preview(client, conv)
        if offered(MessageToDict(shown.request)) == list(names):
            return shown.tool_sources[0]


@pytest.mark.parametrize("provider_name", PROVIDERS)
async def test_a_model_calls_a_tool_of_a_server(
    caller: Client, provider: Provider, file: Path, provider_name: str
) -> None:
    write(file, tool("say"), tool("look up/it"), tool("hidden"))
    scripted = Scripted(caller, provider, provider_name)
    sources = [{"mcp": "lister", "exclude": ["hid*"]}]
    scripts = Script(calls=(call("look_up_it", text="x"),)), Script(text="Done.")
    conv = await caller.open(await scripted.agent(*scripts, tools=(), persona={"tool_sources": sources}))
    await until(caller, conv, "say", "look_up_it")
    turn, view = await caller.turn(conv, "Look it up.")
    assert turn.status == conversation.TURN_STATUS_COMPLETED and view.text() == "Done."
    assert offered(scripted.requests[0]) == ["say", "look_up_it"]
    assert "look up/it {" in json.dumps(scripted.requests[1])
    (move, _) = await caller.moves(turn.id, conv)
    assert move.tool_results[0].success
    assert move.tool_calls[0].tool_id.startswith("mcp:lister/look_up_it@")


async def test_tools_that_change_in_mid_turn_change_the_next_turn(
    caller: Client, provider: Provider, file: Path
) -> None:
    write(file, tool("change", inputSchema={"type": "object"}), tool("say"))
    scripted = Scripted(caller, provider, "openai")
    other = pages(tool("say", inputSchema={"type": "object", "required": ["loud"]}), tool("new"))
    scripts = (
        Script(calls=(call("change", pages=other),)),
        Script(calls=(call("say", text="hi"),)),
        Script(text="Done."),
        Script(text="Again."),
    )
    sources = [{"mcp": "lister"}]
    conv = await caller.open(await scripted.agent(*scripts, tools=(), persona={"tool_sources": sources}))
    before = await until(caller, conv, "change", "say")
    turn, _ = await caller.turn(conv, "Go.")
    moves = await caller.moves(turn.id, conv)
    assert [move.tool_results[0].success for move in moves[:2]] == [True, True], "by the schema it was given"
    after = await until(caller, conv, "say", "new")
    assert (before.tool_count, after.tool_count) == (2, 2) and before.tools_hash != after.tools_hash
    await caller.turn(conv, "Go on.")
    assert [offered(request) for request in scripted.requests] == [["change", "say"]] * 3 + [["say", "new"]]


async def test_a_hostile_list_costs_no_turn(caller: Client, provider: Provider, file: Path) -> None:
    bad = [
        tool("long", description="x" * 1_000_000),
        tool("long"),
        tool("schema", inputSchema={"type": "object", "properties": {"p": {"type": "nothing"}}}),
        tool("\x00\n"),
        tool("grüße"),
        tool("huge", inputSchema={"type": "object", "description": "x" * 1_000_000}),
    ]
    write(file, *bad)
    scripted = Scripted(caller, provider, "openai")
    sources = [{"mcp": "lister", "include": ["*"]}, {"mcp": "unknown"}]
    agent = await scripted.agent(Script(text="Hi."), tools=(), persona={"tool_sources": sources})
    conv = await caller.open(agent)
    await until(caller, conv, "long", "gr__e")
    turn, _ = await caller.turn(conv, "Hello.")
    assert turn.status == conversation.TURN_STATUS_COMPLETED
    assert offered(scripted.requests[0]) == ["long", "gr__e"]
    shown, unknown = (await preview(caller, conv)).tool_sources
    text = " ".join(shown.notices)
    assert "lists another tool of this name" in text and "has 1,000,000 characters" in text
    assert "may have at most 131072 bytes" in text and "cannot be printed" in text
    assert "schema is left out" in text and "offered as gr__e" in text
    assert "has no MCP server 'unknown'" in unknown.notices[0]


async def test_a_server_that_is_down_and_comes_back(caller: Client, provider: Provider, file: Path) -> None:
    write(file, tool("say"))
    scripted = Scripted(caller, provider, "openai")
    sources = [{"mcp": "lister"}]
    scripts = Script(text="One."), Script(text="Two.")
    conv = await caller.open(await scripted.agent(*scripts, tools=(), persona={"tool_sources": sources}))
    await until(caller, conv, "say")
    await caller.turn(conv, "One?")
    remove(file)
    turn, _ = await caller.turn(conv, "Two?")
    assert turn.status == conversation.TURN_STATUS_COMPLETED
    assert [offered(request) for request in scripted.requests] == [["say"], ["say"]]
    while not (source := (await preview(caller, conv)).tool_sources[0]).notices:
        pass
    assert "does not list its tools" in source.notices[0] and "its last list" in source.notices[0]


async def test_five_thousand_tools_are_a_thousand(caller: Client, provider: Provider, file: Path) -> None:
    write(file, *[tool(f"t{number}") for number in range(5_000)])
    scripted = Scripted(caller, provider, "anthropic")
    agent = await scripted.agent(Script(text="Hi."), tools=(), persona={"tool_sources": [{"mcp": "lister"}]})
    conv = await caller.open(agent)
    turn, _ = await caller.turn(conv, "Hello.")
    assert turn.status == conversation.TURN_STATUS_COMPLETED
    while (shown := (await preview(caller, conv)).tool_sources[0]).tool_count != 1_000:
        pass  # A turn does not wait long for a slow list.
    assert "5,000 tools match, and the agent may have 1,000 more" in shown.notices[0]


@pytest.mark.parametrize("speaks", ["openai", "responses"])
async def test_a_preview_has_the_tools_that_the_provider_gets(
    caller: Client, provider: Provider, file: Path, speaks: str
) -> None:
    write(file, *[tool(f"t{number}") for number in range(300)])
    scripted = Scripted(caller, provider, speaks)
    agent = await scripted.agent(Script(text="Hi."), tools=(), persona={"tool_sources": [{"mcp": "lister"}]})
    conv = await caller.open(agent)
    while (shown := (await preview(caller, conv)).tool_sources[0]).tool_count != 128:
        pass  # A preview does not wait long for a slow list.
    assert shown.notices[0] == (
        "A request to openai takes 128 tools: 172 of this server are left out. Name fewer in 'include'."
    )
    previewed = MessageToDict((await preview(caller, conv)).request)
    await caller.turn(conv, "Hello.")
    (sent,) = scripted.requests
    assert len(previewed["tools"]) == 128 and previewed["tools"] == sent["tools"]


async def test_a_turn_keeps_its_tools_through_a_kill(provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "pages"
    write(file, tool("say"))
    data = tmp_path / "data"
    scripts = Script(calls=(call("say", text="hi"),)), Script(stall="headers"), Script(text="Done.")
    async with serving(data, environment=environment(provider, file)) as server:
        async with server.client() as client:
            scripted = Scripted(client, provider, "openai")
            sources = [{"mcp": "lister"}]
            agent = await scripted.agent(*scripts, tools=(), persona={"tool_sources": sources})
            conv = await client.open(agent)
            await until(client, conv, "say")
            turn = (await client.say(conv, "Say hi.")).turn.id
            await provider.wait_until(lambda: len(scripted.requests) == 2)
        await server.kill()
    remove(file)
    async with serving(data, environment=environment(provider, file)) as server, server.client() as client:
        await client.settled(conv, turn)
        (move, _) = await client.moves(turn, conv)
    assert move.tool_results[0].success
    assert [offered(request) for request in scripted.requests] == [["say"]] * 3
    await assert_replays(data)


async def test_calls_of_a_source_wait_for_approval_as_the_turn_began(
    caller: Client, provider: Provider, file: Path
) -> None:
    """The rule is pinned with the turn: a persona that no longer asks changes the next turn."""
    write(file, tool("say"), tool("shout"))
    scripted = Scripted(caller, provider, "openai")
    gate = {"user_ids": ["ann"]}
    sources = [{"mcp": "lister", "approval": "input.text != 'hi'", "approval_gate": gate}]
    scripts = (
        Script(calls=(call("say", text="hi"), call("shout", text="HELLO"))),
        Script(calls=(call("say", text="bye"),)),
        Script(text="Done."),
    )
    conv = await caller.open(await scripted.agent(*scripts, tools=(), persona={"tool_sources": sources}))
    await until(caller, conv, "say", "shout")
    turn = (await caller.say(conv, "Go.")).turn.id
    async with caller.listening(conv) as listener:
        await listener.until(lambda view: opened(view) and "tool.completed" in view.names)
        (first,) = await inbox(caller, conv)
        assert (first.tool_name, dict(first.shown), list(first.user_ids)) == (
            "shout",
            {"text": "HELLO"},
            ["ann"],
        )
        assert first.tool_id.startswith("mcp:lister/shout@")
        remove(file)  # What the server lists meanwhile changes nothing for the waiting call.
        write(file, tool("other"))
        await resolve(caller, first, answer=struct(text="hello"), user_id="ann")
        await listener.until(lambda view: len(opened(view)) == 2)
        (second,) = await inbox(caller, conv)
        await resolve(caller, second, approve=False, comment="Stay.", user_id="ann")
        await listener.until(lambda view: view.settled(turn))
    moves = await caller.moves(turn, conv)
    assert [result.success for move in moves for result in move.tool_results] == [True, True, False]
    assert dict(moves[0].tool_calls[1].edited_input) == {"text": "hello"}
    assert "hello" in json.dumps(scripted.requests[1]) and "Stay." in json.dumps(scripted.requests[2])


async def test_schemas_that_change_between_a_kill_and_the_answer_change_the_next_turn(
    provider: Provider, tmp_path: Path
) -> None:
    """A call waits for a person, the server dies, and its tools are others when it returns."""
    file, data = tmp_path / "pages", tmp_path / "data"
    write(file, tool("say"))
    scripts = Script(calls=(call("say", text="hi"),)), Script(text="Said."), Script(text="Again.")
    async with serving(data, environment=environment(provider, file)) as server:
        async with server.client() as client:
            scripted = Scripted(client, provider, "openai")
            sources = [{"mcp": "lister", "approval": "always"}]
            conv = await client.open(
                await scripted.agent(*scripts, tools=(), persona={"tool_sources": sources})
            )
            await until(client, conv, "say")
            turn = (await client.say(conv, "Say hi.")).turn.id
            async with client.listening(conv) as listener:
                await listener.until(opened)
        await server.kill()
    loud = {"type": "object", "properties": {"loud": {"type": "boolean"}}, "required": ["loud"]}
    write(file, tool("say", inputSchema=loud), *[tool(f"t{number}") for number in range(50)])
    async with serving(data, environment=environment(provider, file)) as server, server.client() as client:
        (gate,) = await inbox(client, conv)
        # What a person may edit is what the turn's schema allows, not that of today.
        refused, _ = await rejected(resolve(client, gate, answer=struct(loud=True)))
        assert refused == "INPUT_INVALID"
        await resolve(client, gate, answer=struct(text="hello"))
        await client.settled(conv, turn)
        (move, _) = await client.moves(turn, conv)
        assert move.tool_results[0].success
        while len(offered(MessageToDict((await preview(client, conv)).request))) != 51:
            pass  # A preview does not wait long for a slow list.
        await client.turn(conv, "Again?")
    first, second, third = scripted.requests
    assert second["tools"] == first["tools"] and offered(second) == ["say"]
    assert "hello" in json.dumps(second) and len(offered(third)) == 51
    assert "loud" in json.dumps(third["tools"])
    await assert_replays(data)


async def test_a_server_that_dies_in_a_call_is_a_result_for_the_model(
    caller: Client, provider: Provider, file: Path
) -> None:
    write(file, tool("say"))
    scripted = Scripted(caller, provider, "openai")
    sources = [{"mcp": "lister", "approval": "always"}]
    scripts = Script(calls=(call("say", text="hi"),)), Script(text="It is down.")
    conv = await caller.open(await scripted.agent(*scripts, tools=(), persona={"tool_sources": sources}))
    await until(caller, conv, "say")
    turn = (await caller.say(conv, "Go.")).turn.id
    async with caller.listening(conv) as listener:
        await listener.until(opened)
        (gate,) = await inbox(caller, conv)
        remove(file)  # The server ends as it reads the call.
        await resolve(caller, gate)
        await listener.until(lambda view: view.settled(turn))
    (move, _) = await caller.moves(turn, conv)
    (result,) = move.tool_results
    assert not result.success and result.error.message
    assert result.error.message[:40] in json.dumps(scripted.requests[-1])
