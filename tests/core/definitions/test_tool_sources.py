"""Tools of MCP servers: what a server lists, made safe, and added to an agent (feature M10)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.conversation.conversation_kit import agent as any_agent
from wonder_server.core.definitions.specs import PinnedAgent
from wonder_server.core.definitions.tool_sources import (
    MAX_LISTED_TOOLS,
    MAX_SOURCE_TOOLS,
    KnownTools,
    ListedTool,
    ToolListing,
    check_listing,
    with_sources,
)
from wonder_server.core.definitions.tool_specs import ApprovalGate, ToolSource

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
ACCEPTED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def listing(*names: str, **fields: Any) -> ToolListing:
    given = {"description": "Do it.", "input_schema": OBJECT, **fields}
    return ToolListing(tools=tuple(ListedTool(name=name, **given) for name in names))


def known(server: str, *names: str, **fields: Any) -> KnownTools:
    return check_listing(server, listing(*names, **fields))


def taking(*sources: ToolSource) -> PinnedAgent:
    plain = any_agent()
    return replace(plain, tools=(), persona=replace(plain.persona, tool_sources=sources))


def offered(agent: PinnedAgent) -> dict[str, str]:
    """Return the server's name of each tool by the model's name."""
    steps = {tool.spec.name: tool.task.spec.steps[0] for tool in agent.tools if tool.task}
    return {
        name: step.action.config["tool"]
        for name, step in steps.items()
        if step.action and "tool" in step.action.config
    }


@pytest.mark.parametrize(
    ("tool", "notice"),
    [
        (ListedTool(name=""), "The tool number 1 is left out: a name has 1 to 200 characters."),
        (ListedTool(name="n" * 201, input_schema=OBJECT), "a name has 1 to 200 characters"),
        (ListedTool(name="a\nb", input_schema=OBJECT), "characters that cannot be printed"),
        (ListedTool(name="a\ud800", input_schema=OBJECT), "characters that cannot be printed"),
        (ListedTool(name="a"), "its input schema is not an object"),
        (ListedTool(name="a", input_schema=[1]), "its input schema is not an object"),
        (ListedTool(name="a", input_schema={"type": "array"}), "not of the type object"),
        (ListedTool(name="a", input_schema={"type": "objekt"}), "is invalid: type: must be one of"),
        (ListedTool(name="a", input_schema={"properties": {"p": {"pattern": "("}}}), "is invalid"),
        (ListedTool(name="a", input_schema={"$ref": "https://x.example/s"}), "is invalid"),
        (ListedTool(name="a", input_schema={"title": "\ud800"}), "is invalid"),
        (ListedTool(name="a", input_schema={"title": "t" * 40_000}), "the maximum is 32,768"),
    ],
)
def test_an_unusable_tool_is_left_out_with_a_notice(tool: ListedTool, notice: str) -> None:
    found = check_listing("files", ToolListing(tools=(tool, *listing("well").tools)))
    assert [each.name for each in found.tools] == ["well"]
    assert len(found.notices) == 1 and notice in found.notices[0]
    assert found.notices[0].isprintable() and len(found.notices[0]) < 500


def test_the_second_tool_of_a_name_is_left_out() -> None:
    found = known("files", "read", "read", "write")
    assert [each.name for each in found.tools] == ["read", "write"]
    assert found.notices == ("The tool read is left out: the server lists another tool of this name before.",)


def test_a_description_of_a_megabyte_is_cut_and_control_characters_are_blanks() -> None:
    long = known("files", "read", description="a\x1b[31m\n" + "y" * 1_000_000)
    assert len(long.tools[0].description) == 1_024
    assert long.tools[0].description.startswith("a [31m\ny")
    assert "has 1,000,007 characters; the model gets 1,024" in long.notices[0]
    assert known("files", "read", description="").tools[0].description == "The tool read of the server files."


def test_a_list_is_cut_at_its_limit_and_an_agent_gets_a_thousand_tools() -> None:
    found = known("files", *[f"t{number}" for number in range(MAX_LISTED_TOOLS + 1)])
    assert len(found.tools) == MAX_LISTED_TOOLS
    assert found.notices[0] == "The server lists more than 5,000 tools; the others are left out."
    made = with_sources(
        taking(ToolSource(mcp="files"), ToolSource(mcp="more")), {"files": found, "more": known("more", "a")}
    )
    assert len(made.tools) == MAX_SOURCE_TOOLS
    assert [source.tools for source in made.sources] == [MAX_SOURCE_TOOLS, 0]
    assert "5,000 tools match, and the agent may have 1,000" in made.sources[0].notices[0]
    assert "may have 0 more" in made.sources[1].notices[0]


def test_many_notices_are_counted() -> None:
    found = check_listing("files", ToolListing(tools=(ListedTool(name=""),) * 100))
    assert len(found.notices) == 20 and found.notices[-1] == "There are 81 more notices."


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        ((), (), ["read_file", "read_dir", "write"]),
        (("read_*",), (), ["read_file", "read_dir"]),
        (("*",), ("*file",), ["read_dir", "write"]),
        (("write", "read_dir"), (), ["read_dir", "write"]),
        (("READ_*",), (), []),
    ],
)
def test_patterns_choose_tools(include: tuple[str, ...], exclude: tuple[str, ...], names: list[str]) -> None:
    source = ToolSource(mcp="files", include=include, exclude=exclude)
    made = with_sources(taking(source), {"files": known("files", "read_file", "read_dir", "write")})
    assert list(offered(made)) == names
    idle = [each for each in made.sources[0].notices if "No tool" in each]
    assert idle == (["No tool of the server matches READ_*."] if include == ("READ_*",) else [])


def test_names_are_unique_and_valid_and_the_server_gets_its_own() -> None:
    agent = any_agent()
    own = next(tool.spec.name for tool in agent.tools)
    agent = replace(
        agent,
        persona=replace(agent.persona, tool_sources=(ToolSource(mcp="a.b"), ToolSource(mcp="other"))),
    )
    names = (own, "grüße/ändern", "x y", "x_y", "9lives", "-dash", "n" * 120, "n" * 119 + "m")
    made = with_sources(agent, {"a.b": known("a.b", *names), "other": known("other", "x_y")})
    found = offered(made)
    assert found[f"a_b_{own}"] == own
    assert found["x_y"] == "x_y" and found["a_b_x_y"] == "x y" and found["other_x_y"] == "x_y"
    assert found["gr__e__ndern"] == "grüße/ändern"
    assert found["_9lives"] == "9lives" and found["_-dash"] == "-dash"
    assert len([name for name in found if name.startswith("n" * 55)]) == 2
    assert f"The tool {own} is offered as a_b_{own}." in made.sources[0].notices


@given(st.lists(st.text(max_size=80), max_size=30), st.lists(st.text(max_size=80), max_size=30))
def test_any_names_become_unique_and_valid(one: list[str], two: list[str]) -> None:
    servers = {"one": known("one", *one), "two-2": known("two-2", *two)}
    made = with_sources(taking(ToolSource(mcp="one"), ToolSource(mcp="two-2")), servers)
    names = [tool.spec.name for tool in made.tools]
    assert len(set(names)) == len(names) == sum(len(each.tools) for each in servers.values())
    assert all(ACCEPTED.fullmatch(name) for name in names)


def test_a_tool_calls_its_server_and_names_its_content() -> None:
    source = ToolSource(mcp="files", is_async=True, timeout_ms=5_000)
    (tool,) = with_sources(taking(source), {"files": known("files", "read")}).tools
    assert tool.task is not None and tool.task.spec.steps[0].action is not None
    action = tool.task.spec.steps[0].action
    assert (action.kind, action.timeout_ms) == ("mcp", 5_000)
    assert action.config == {"server": "files", "tool": "read", "store_files": True}
    assert (tool.spec.is_async, tool.spec.retry.timeout_ms) == (True, 5_000)
    assert str(tool.pin).startswith("mcp:files/read@") and tool.pin.definition_id == "mcp:files/read"
    (same,) = with_sources(taking(source), {"files": known("files", "read")}).tools
    (other,) = with_sources(taking(source), {"files": known("files", "read", description="New.")}).tools
    assert tool == same and tool.pin.revision != other.pin.revision


def test_the_tools_of_a_source_have_its_approval() -> None:
    gate = ApprovalGate(user_ids=("ann",), expire_after_ms=1_000)
    sources = ToolSource(mcp="files", approval="input.q == 1", approval_gate=gate), ToolSource(mcp="free")
    made = with_sources(taking(*sources), {"files": known("files", "read"), "free": known("free", "look")})
    assert [(tool.spec.approval, tool.spec.approval_gate) for tool in made.tools] == [
        ("input.q == 1", gate),
        ("", ApprovalGate()),
    ]


def test_a_server_that_is_not_known_leaves_the_agent_without_its_tools() -> None:
    down = KnownTools(server="files", problem="It is down.")
    made = with_sources(taking(ToolSource(mcp="files", include=("read",))), {"files": down})
    assert made.tools == () and made.sources[0].notices == ("It is down.",)
