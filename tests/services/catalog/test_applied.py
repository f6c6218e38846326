"""Agents and projects that are applied together with definitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.services.catalog.library_kit import ALL, STANDARD, make, persona, task
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.core.definitions.resources import Agent, Project
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.idempotency import SERVER_ORIGIN
from wonder_server.services.catalog.applied import WantedResources
from wonder_server.services.catalog.library import Library

Edit = tuple[str, Callable[[Any], Any]]


@pytest_asyncio.fixture
async def library() -> Library:
    library = make(MemoryCatalog())
    await library.ensure_standard(STANDARD)
    return library


def agent(name: str, **fields: Any) -> Edit:
    return name, lambda stored: replace(stored, name=name, **fields)


def project(name: str, **fields: Any) -> Edit:
    return name, lambda stored: replace(stored, **fields)


SHOP = WantedResources(
    agents=[agent("clerk", persona_id="helper", project_ids=("shop",))],
    projects=[project("shop", description="The shop.")],
)


async def faults(library: Library, *drafts: Any, **wanted: Any) -> list[tuple[Reason, str]]:
    with pytest.raises(WonderError) as refused:
        await library.apply("team", drafts, WantedResources(**wanted))
    problem = refused.value
    return [(fault.reason, fault.field) for fault in problem.faults or (problem.fault,)]


async def test_one_apply_sets_up_definitions_projects_and_agents(library: Library) -> None:
    applied = await library.apply("team", [persona()], SHOP)
    assert [(each.action, each.type, each.name) for each in applied.resources] == [
        ("created", "project", "shop"),
        ("created", "agent", "clerk"),
    ]
    clerk, shop = await library.agents.agent("clerk"), await library.projects.project("shop")
    assert (clerk.persona_id, clerk.project_ids) == ("team/helper", (shop.id,))
    assert [each.id for each in applied.resources] == [shop.id, clerk.id]
    assert (await library.pin_agent("clerk")).persona_ref == "team/helper@1"


async def test_the_same_apply_again_changes_nothing(library: Library) -> None:
    await library.apply("team", [persona()], SHOP)
    before = await library.agents.agent("clerk"), await library.projects.project("shop")
    again = await library.apply("team", [persona()], SHOP)
    assert [(each.action, each.diff) for each in again.resources] == [("unchanged", ())] * 2
    assert (await library.agents.agent("clerk"), await library.projects.project("shop")) == before


async def test_a_change_has_a_diff_and_keeps_what_is_not_named(library: Library) -> None:
    await library.apply("team", [persona()], SHOP)
    old = await library.agents.agent("clerk")
    changed = await library.apply("team", [], WantedResources(agents=[agent("clerk", description="Sells.")]))
    assert [each.action for each in changed.resources] == ["updated"]
    assert "+description: Sells." in changed.resources[0].diff
    new = await library.agents.agent("clerk")
    assert (new.id, new.version, new.persona_id) == (old.id, 2, "team/helper")
    assert new.created_ms == old.created_ms


async def test_validate_only_shows_the_changes_and_keeps_nothing(library: Library) -> None:
    shown = await library.apply("team", [persona()], SHOP, validate_only=True)
    assert [each.action for each in shown.resources] == ["created", "created"]
    assert [each.name for each in (await library.agents.agents(ALL)).items] == ["assistant"]
    assert await library.projects.find("shop") is None


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ({"agents": [agent("a", persona_id="gone")]}, (Reason.DEFINITION_NOT_FOUND, "agents[0].persona_id")),
        (
            {"agents": [agent("a", persona_id="helper", project_ids=("gone",))]},
            (Reason.PROJECT_NOT_FOUND, "agents[0].project_ids[0]"),
        ),
        ({"agents": [agent("a", persona_id="t")]}, (Reason.DEFINITION_NOT_FOUND, "agents[0].persona_id")),
        ({"agents": [agent("No Name", persona_id="helper")]}, (Reason.FIELD_INVALID, "agents[0].name")),
        ({"agents": [agent("", persona_id="helper")]}, (Reason.FIELD_INVALID, "agents[0].name")),
        ({"agents": [agent("a")]}, (Reason.FIELD_INVALID, "agents[0].persona_id")),
        ({"projects": [project("No Name")]}, (Reason.FIELD_INVALID, "projects[0].name")),
        (
            {"projects": [project("p"), project("q", description="x" * 5_000)]},
            (Reason.FIELD_INVALID, "projects[1].description"),
        ),
        ({"projects": [project("p"), project("p")]}, (Reason.FIELD_INVALID, "projects[1].name")),
        ({"projects": [project(f"p{n}") for n in range(101)]}, (Reason.LIMIT_EXCEEDED, "projects")),
        ({"agents": [agent(f"a{n}") for n in range(101)]}, (Reason.LIMIT_EXCEEDED, "agents")),
    ],
)
async def test_a_fault_has_its_place_and_nothing_is_saved(
    library: Library, wanted: dict[str, Any], fault: tuple[Reason, str]
) -> None:
    good = project("good")
    wanted = {**wanted, "projects": [*wanted.get("projects", ()), good]} if "agents" in wanted else wanted
    assert await faults(library, persona(), task("t"), **wanted) == [fault]
    assert await library.projects.find("good") is None and await library.projects.find("p") is None
    with pytest.raises(WonderError):
        await library.definitions.library("team")


async def test_a_pruned_persona_cannot_be_that_of_an_agent_and_agents_are_never_pruned(
    library: Library,
) -> None:
    await library.apply("team", [persona(), persona("other")], SHOP)
    with pytest.raises(WonderError) as refused:
        wanted = WantedResources(agents=[agent("new", persona_id="other")])
        await library.apply("team", [persona()], wanted, prune=True)
    assert refused.value.fault.reason is Reason.DEFINITION_NOT_FOUND
    await library.apply("team", [persona()], WantedResources(), prune=True)
    assert (await library.agents.agent("clerk")).persona_id == "team/helper"


async def test_a_repeated_request_gets_its_first_answer(library: Library) -> None:
    origin = replace(SERVER_ORIGIN, request_id="r1", fingerprint="f")
    first = await library.apply("team", [persona()], SHOP, origin=origin)
    assert await library.apply("team", [persona()], SHOP, origin=origin) == first


async def test_an_id_is_no_name(library: Library) -> None:
    await library.apply("team", [persona()], SHOP)
    clerk = await library.agents.agent("clerk")
    assert await faults(library, agents=[agent(clerk.id)]) == [(Reason.FIELD_INVALID, "agents[0].name")]
    assert isinstance(clerk, Agent) and isinstance(await library.projects.project("shop"), Project)
