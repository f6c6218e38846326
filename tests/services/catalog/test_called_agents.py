"""An agent is saved only if the agents that its tools call share a project with it (feature A5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import STANDARD, make, persona
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.definitions.document import DefinitionDraft, parse_draft
from wonder_server.core.definitions.resources import Agent
from wonder_server.core.definitions.specs import Persona
from wonder_server.core.errors import Reason, WonderError
from wonder_server.services.catalog.applied import WantedResources
from wonder_server.services.catalog.library import Library

Edit = tuple[str, Callable[[Any], Any]]


def tool(name: str, called: str, kind: str = "agent") -> DefinitionDraft:
    spec = {"target_type": kind, "target_id": called}
    return parse_draft({"name": name, "description": "Asks.", "tool": spec})


FLOW = parse_draft(
    {
        "name": "flow",
        "workflow": {"nodes": [{"id": "n", "agent_id": "expert", "invocation_mode": "delegate"}]},
    }
)
DRAFTS = (
    tool("ask", "expert"),
    FLOW,
    tool("run", "flow", "workflow"),
    persona("asker", tool_ids=["ask"]),
    persona("runner", tool_ids=["run"]),
    persona("helper"),
)


def agent(name: str, used: str, *projects: str, **fields: Any) -> Agent:
    made = Agent(id="", name=name, project_ids=projects, **fields)
    return made if made.persona is not None else replace(made, persona_id=f"team/{used}")


def edit(wanted: Agent) -> Edit:
    changes = {"persona_id": wanted.persona_id, "project_ids": wanted.project_ids}
    return wanted.name, lambda stored: replace(stored, name=wanted.name, **changes)


@pytest_asyncio.fixture
async def library() -> Library:
    library = make(MemoryCatalog())
    await library.ensure_standard(STANDARD)
    await library.definitions.create_library("team", "")
    projects = [(name, lambda stored: stored) for name in ("here", "there")]
    await library.apply("team", DRAFTS, WantedResources(projects=projects))
    return library


async def refused(work: Any) -> tuple[Reason, str]:
    with pytest.raises(WonderError) as problem:
        await work
    assert "expert" in problem.value.fault.message and problem.value.fault.metadata["agent_id"]
    return problem.value.fault.reason, problem.value.fault.field


REFUSED = (Reason.FIELD_INVALID, "agent.project_ids")


@pytest.mark.parametrize("used", ["asker", "runner"])
async def test_an_agent_that_calls_one_of_another_project_is_refused(library: Library, used: str) -> None:
    await library.agents.create(agent("expert", "helper", "there"))
    assert await refused(library.agents.create(agent("clerk", used, "here"))) == REFUSED
    made = await library.agents.create(agent("clerk", used, "here", "there"))
    apart = library.agents.update("clerk", lambda stored: replace(stored, project_ids=("here",)))
    assert await refused(apart) == REFUSED
    assert (await library.agents.agent("clerk")).project_ids == made.project_ids


async def test_another_persona_is_checked_and_an_inline_one_too(library: Library) -> None:
    await library.agents.create(agent("expert", "helper", "there"))
    await library.agents.create(agent("clerk", "helper", "here"))
    other = library.agents.update("clerk", lambda stored: replace(stored, persona_id="team/asker"))
    assert await refused(other) == REFUSED
    inline = Persona(system_prompt="Ask.", tool_ids=("team/ask",))
    assert await refused(library.agents.create(agent("inline", "", "here", persona=inline))) == REFUSED


async def test_an_agent_that_does_not_exist_yet_may_be_created_later(library: Library) -> None:
    await library.agents.create(agent("clerk", "asker", "here"))
    await library.agents.create(agent("expert", "helper", "there"))


async def test_after_a_move_of_the_called_agent_other_fields_can_be_changed(library: Library) -> None:
    await library.agents.create(agent("expert", "helper", "here"))
    await library.agents.create(agent("clerk", "asker", "here"))
    await library.agents.update("expert", lambda stored: replace(stored, project_ids=("there",)))
    changed = await library.agents.update("clerk", lambda stored: replace(stored, description="Old."))
    assert changed.description == "Old."


async def test_an_agent_that_calls_itself_moves_freely(library: Library) -> None:
    await library.agents.create(agent("expert", "asker", "here"))
    await library.agents.update("expert", lambda stored: replace(stored, project_ids=("there",)))


@pytest.mark.parametrize("turned", [False, True])
async def test_agents_of_one_request_call_each_other_in_any_order(library: Library, turned: bool) -> None:
    drafts = [tool("ask_clerk", "clerk"), persona("expert_persona", tool_ids=["ask_clerk"])]
    both = [edit(agent("clerk", "asker", "new")), edit(agent("expert", "expert_persona", "new"))]
    both = both[::-1] if turned else both
    new = ("new", lambda stored: stored)
    applied = await library.apply("team", drafts, WantedResources(agents=both, projects=[new]))
    assert [each.action for each in applied.resources] == ["created"] * 3


@pytest.mark.parametrize("turned", [False, True])
async def test_a_request_whose_agents_are_apart_saves_nothing(library: Library, turned: bool) -> None:
    both = [edit(agent("clerk", "asker", "here")), edit(agent("expert", "helper", "there"))]
    both = both[::-1] if turned else both
    place = f"agents[{int(turned)}].project_ids"
    wanted = WantedResources(agents=both)
    assert await refused(library.apply("team", [], wanted)) == (Reason.FIELD_INVALID, place)
    with pytest.raises(WonderError):
        await library.agents.agent("clerk")


async def test_a_tool_that_changes_is_checked_with_the_agents_of_its_request(library: Library) -> None:
    await library.agents.create(agent("expert", "helper", "there"))
    clerk = WantedResources(agents=[edit(agent("clerk", "plain", "here"))])
    await library.apply("team", [tool("other", "nobody"), persona("plain", tool_ids=["other"])], clerk)
    changed = [tool("other", "expert"), persona("plain", tool_ids=["other"])]
    assert await refused(library.apply("team", changed, clerk)) == (
        Reason.FIELD_INVALID,
        "agents[0].project_ids",
    )
