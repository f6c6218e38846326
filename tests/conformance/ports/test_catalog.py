"""Catalogs: one suite for the port `wonder_server.ports.catalog.Catalog`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.core.definitions.document import DefinitionDraft
from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import (
    Agent,
    Definition,
    Library,
    NetworkPolicy,
    Project,
    Repository,
    etag,
)
from wonder_server.core.definitions.specs import Action, Kind, ModelProfile, Persona, Spec
from wonder_server.core.errors import Reason, WonderError
from wonder_server.ports.catalog import ANSWER_TTL_MS, Answer, Catalog, DefinitionQuery, Drop, Put


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Catalog]:
    if request.param == "memory":
        yield MemoryCatalog()
        return
    store = await SqliteCatalog.open(tmp_path / "catalog.db")
    yield store
    await store.close()


TEAM = Library(id="lib_1", name="team", created_ms=5)
OTHER = Library(id="lib_2", name="acme/bots")


def definition(
    number: int, name: str, library: Library = TEAM, spec: Spec | None = None, **labels: str
) -> Definition:
    draft = DefinitionDraft(name=name, spec=spec or Action(kind="llm", config={"n": number}), labels=labels)
    return Definition(
        id=f"def_{number}",
        library_id=library.id,
        library=library.name,
        revision=1,
        draft=draft,
        content_hash=draft.content_hash(),
    )


def project(number: int, name: str) -> Project:
    return Project(id=f"proj_{number}", name=name)


def agent(number: int, name: str, *projects: str) -> Agent:
    return Agent(id=f"agt_{number}", name=name, project_ids=projects, persona_id="team/p")


async def refused(catalog: Catalog, *changes: Put | Drop, answer: Answer | None = None) -> Reason:
    with pytest.raises(WonderError) as refusal:
        await catalog.commit(changes, answer)
    return refusal.value.fault.reason


async def test_a_resource_is_found_by_id_and_by_name(catalog: Catalog) -> None:
    full = Project(
        id="proj_9",
        name="full",
        repositories=(Repository(name="code", url="/srv/code"),),
        network=NetworkPolicy(http_allow=("10.0.0.0/8",)),
        metadata={"a": [1, None, {"b": "é"}]},
    )
    inline = replace(
        agent(9, "bot", "proj_9"), persona_id="", persona=Persona(system_prompt="Hi.", tool_ids=("t/x",))
    )
    await catalog.commit([Put(TEAM), Put(definition(1, "a")), Put(full), Put(inline)])
    assert await catalog.library("lib_1") == await catalog.library("team") == TEAM
    assert await catalog.project("proj_9") == await catalog.project("full") == full
    assert await catalog.agent("agt_9") == await catalog.agent("bot") == inline
    by_name = await catalog.definition(Reference(library="team", name="a"))
    assert by_name == await catalog.definition(Reference(definition_id="def_1")) == definition(1, "a")


async def test_a_missing_resource_is_none(catalog: Catalog) -> None:
    assert await catalog.library("x") is None
    assert await catalog.definition(Reference(library="team", name="a")) is None
    assert await catalog.definition(Reference(definition_id="def_1")) is None
    assert await catalog.agent("x") is None
    assert await catalog.project("") is None
    assert await catalog.answer("x") is None


async def test_a_definition_keeps_every_revision_it_ever_had(catalog: Catalog) -> None:
    first = definition(1, "a")
    second = replace(first, revision=2, draft=replace(first.draft, description="Now with words."))
    await catalog.commit([Put(TEAM), Put(first)])
    await catalog.commit([Put(second)])
    by_name = Reference(library="team", name="a")
    assert await catalog.definition(by_name) == second
    assert await catalog.definition(replace(by_name, revision=1)) == first
    assert await catalog.definition(replace(by_name, revision=3)) is None
    assert await catalog.revisions("def_1", 0, 10) == [second, first]
    assert await catalog.revisions("def_1", 0, 1) == [second]
    assert await catalog.revisions("def_1", 2, 10) == [first]


async def test_definitions_are_listed_by_library_and_name(catalog: Catalog) -> None:
    a, b = definition(1, "b"), definition(2, "a", team="core", stage="new")
    c = definition(3, "c", OTHER, ModelProfile(provider="auto"), team="core")
    await catalog.commit([Put(TEAM), Put(OTHER), Put(a), Put(b), Put(c)])
    assert await catalog.definitions(DefinitionQuery()) == [c, b, a]
    assert await catalog.definitions(DefinitionQuery(limit=1)) == [c]
    assert await catalog.definitions(DefinitionQuery(after=("team", "a"))) == [a]
    assert await catalog.definitions(DefinitionQuery(after=("acme/bots", "c"), limit=1)) == [b]
    assert await catalog.definitions(DefinitionQuery(library_id="lib_2")) == [c]
    assert await catalog.definitions(DefinitionQuery(kinds=(Kind.ACTION, Kind.TASK))) == [b, a]
    assert await catalog.definitions(DefinitionQuery(labels={"team": "core"})) == [c, b]
    assert await catalog.definitions(DefinitionQuery(labels={"team": "core", "stage": "new"})) == [b]
    assert await catalog.definitions(DefinitionQuery(labels={"team": "c"})) == []


async def test_libraries_are_listed_by_name(catalog: Catalog) -> None:
    await catalog.commit([Put(TEAM), Put(OTHER)])
    assert await catalog.libraries("", 10) == [OTHER, TEAM]
    assert await catalog.libraries("acme/bots", 10) == [TEAM]
    assert await catalog.libraries("", 1) == [OTHER]


async def test_agents_and_projects_are_listed_newest_first(catalog: Catalog) -> None:
    projects = [project(n, f"p{n}") for n in (1, 2)]
    agents = [agent(1, "a", "proj_1"), agent(2, "b", "proj_1", "proj_2"), agent(3, "c", "proj_2")]
    await catalog.commit([Put(each) for each in (*projects, *agents)])
    assert [each.id for each in await catalog.projects("", 10)] == ["proj_2", "proj_1"]
    assert [each.id for each in await catalog.projects("proj_2", 10)] == ["proj_1"]
    assert [each.id for each in await catalog.agents("", "", 2)] == ["agt_3", "agt_2"]
    assert [each.id for each in await catalog.agents("", "agt_2", 10)] == ["agt_1"]
    assert [each.id for each in await catalog.agents("proj_1", "", 10)] == ["agt_2", "agt_1"]
    moved = replace(agents[1], project_ids=("proj_2",), version=2)
    await catalog.commit([Put(moved)])
    assert [each.id for each in await catalog.agents("proj_1", "", 10)] == ["agt_1"]


async def test_a_name_is_taken_once(catalog: Catalog) -> None:
    await catalog.commit([Put(TEAM), Put(OTHER), Put(definition(1, "a")), Put(project(1, "p"))])
    await catalog.commit([Put(agent(1, "bot", "proj_1"))])
    taken = Reason.ALREADY_EXISTS
    assert await refused(catalog, Put(replace(TEAM, id="lib_9"))) is taken
    assert await refused(catalog, Put(definition(9, "a"))) is taken
    assert await refused(catalog, Put(project(9, "p"))) is taken
    assert await refused(catalog, Put(agent(9, "bot", "proj_1"))) is taken
    await catalog.commit([Put(definition(2, "a", OTHER))])


async def test_a_version_that_does_not_follow_is_stale(catalog: Catalog) -> None:
    await catalog.commit([Put(TEAM), Put(definition(1, "a")), Put(project(1, "p"))])
    stale = Reason.ETAG_MISMATCH
    assert await refused(catalog, Put(TEAM)) is stale
    assert await refused(catalog, Put(replace(TEAM, version=3))) is stale
    assert await refused(catalog, Put(definition(1, "a"))) is stale
    assert await refused(catalog, Put(replace(definition(1, "a"), revision=3))) is stale
    assert await refused(catalog, Put(replace(project(2, "q"), version=2))) is stale
    assert await refused(catalog, Drop(replace(project(1, "p"), version=2))) is stale
    assert await refused(catalog, Drop(project(2, "q"))) is stale


async def test_a_dropped_definition_is_deleted_with_all_revisions(catalog: Catalog) -> None:
    first = definition(1, "a")
    second = replace(first, revision=2)
    await catalog.commit([Put(TEAM), Put(first), Put(second), Put(project(1, "p"))])
    await catalog.commit([Put(agent(1, "bot", "proj_1"))])
    await catalog.commit([Drop(agent(1, "bot", "proj_1")), Drop(project(1, "p")), Drop(second), Drop(TEAM)])
    assert await catalog.revisions("def_1", 0, 10) == []
    assert await catalog.definitions(DefinitionQuery()) == []
    assert (
        await catalog.libraries("", 10)
        == await catalog.agents("", "", 10)
        == await catalog.projects("", 10)
        == []
    )
    await catalog.commit([Put(TEAM), Put(definition(2, "a"))])


async def test_all_changes_are_made_or_none(catalog: Catalog) -> None:
    answer = Answer(request_id="r", fingerprint="f", result={}, created_ms=1)
    assert (
        await refused(catalog, Put(TEAM), Put(replace(OTHER, name="team")), answer=answer)
        is Reason.ALREADY_EXISTS
    )
    assert await catalog.libraries("", 10) == []
    assert await catalog.answer("r") is None


async def test_an_answer_is_kept_with_its_changes_and_only_once(catalog: Catalog) -> None:
    answer = Answer(request_id="r", fingerprint="f", result={"id": "lib_1"}, created_ms=1)
    await catalog.commit([Put(TEAM)], answer)
    assert await catalog.answer("r") == answer
    assert await refused(catalog, Put(OTHER), answer=answer) is Reason.REQUEST_ID_REUSED
    assert await catalog.library("acme/bots") is None


async def test_answers_that_another_store_gave_until_now_are_kept(catalog: Catalog) -> None:
    known = Answer(request_id="known", fingerprint="f", result={"id": "1"}, created_ms=1)
    other = Answer(request_id="other", fingerprint="f", result={"id": "2"}, created_ms=1)
    await catalog.commit([], known)
    await catalog.keep_answers([replace(known, result={}), other])
    assert [await catalog.answer(key) for key in ("known", "other")] == [known, other]


async def test_old_answers_are_deleted(catalog: Catalog) -> None:
    old = Answer(request_id="old", fingerprint="f", result={}, created_ms=1)
    new = Answer(request_id="new", fingerprint="f", result={}, created_ms=2 + ANSWER_TTL_MS)
    await catalog.commit([], old)
    await catalog.commit([], new)
    assert await catalog.answer("old") is None
    assert await catalog.answer("new") == new


async def test_an_etag_changes_with_the_version_and_differs_between_resources() -> None:
    assert len({etag(TEAM), etag(replace(TEAM, version=2)), etag(OTHER)}) == 3


async def test_a_catalog_on_disk_is_there_after_a_restart(tmp_path: Path) -> None:
    first = await SqliteCatalog.open(tmp_path / "catalog.db")
    await first.commit([Put(TEAM), Put(definition(1, "a"))])
    await first.close()
    second = await SqliteCatalog.open(tmp_path / "catalog.db")
    assert await second.definition(Reference(definition_id="def_1")) == definition(1, "a")
    await second.close()
