"""Tenants: two of them have the same names in one store, and neither finds what is the other's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.scoped.catalog import CatalogView
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.core.access.permissions import Role
from wonder_server.core.definitions.document import DefinitionDraft
from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import STANDARD_LIBRARY, Agent, Definition, Library, Project
from wonder_server.core.definitions.specs import Action
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.identity import ANONYMOUS, Principal, PrincipalKind, server_in
from wonder_server.core.tenancy.names import own_name, stored_library, stored_name, tenant_of
from wonder_server.core.tenancy.resources import RoleBinding, StoredPrincipal, Tenant
from wonder_server.ports.access import ALL_RECORDS
from wonder_server.ports.catalog import CatalogStore, DefinitionQuery, Drop, Put
from wonder_server.ports.tenancy import StoredTenancy
from wonder_server.services.tenancy.directory import PrincipalDirectory
from wonder_server.services.tenancy.scopes import PrincipalScopes
from wonder_server.services.tenancy.tenants import TenantIndex

RED, BLUE = "tnt_RED", "tnt_BLUE"


class World:
    """A catalog with the same resources in two tenants, and their views."""

    def __init__(self, catalog: CatalogStore) -> None:
        self.catalog = catalog
        self.index = TenantIndex()

    def of(self, tenant_id: str) -> CatalogView:
        return CatalogView(self.catalog, self.index.scope_of(tenant_id), self.index.apply)

    async def fill(self) -> None:
        server = CatalogView(self.catalog, ALL_RECORDS, self.index.apply)
        await server.commit([Put(Library(id="lib_std", name=STANDARD_LIBRARY))])
        await server.commit([Put(Project(id="proj_default", name="web"))])
        for tenant_id in (RED, BLUE):
            await self.of(tenant_id).commit(
                [
                    Put(Project(id=f"proj_{tenant_id}", name="web")),
                    Put(Library(id=f"lib_{tenant_id}", name="team/tools")),
                    Put(definition(tenant_id)),
                    Put(Agent(id=f"agt_{tenant_id}", name="guide", project_ids=(f"proj_{tenant_id}",))),
                ]
            )


def definition(tenant_id: str, library: str = "team/tools", library_id: str = "") -> Definition:
    draft = DefinitionDraft(name="step", spec=Action(kind="llm"))
    return Definition(
        id=f"def_{tenant_id}",
        library_id=library_id or f"lib_{tenant_id}",
        library=library,
        revision=1,
        draft=draft,
        content_hash=draft.content_hash(),
    )


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        catalog: CatalogStore = MemoryCatalog()
        if request.param == "sqlite":
            catalog = opened = await SqliteCatalog.open(tmp_path / "catalog.db")
            stack.push_async_callback(opened.close)
        found = World(catalog)
        await found.fill()
        yield found


@pytest.mark.parametrize("tenant_id", [RED, BLUE])
async def test_a_tenant_finds_its_own_by_name_and_by_id(world: World, tenant_id: str) -> None:
    view = world.of(tenant_id)
    for key in ("web", f"proj_{tenant_id}"):
        project = await view.project(key)
        assert project is not None and (project.id, project.name) == (f"proj_{tenant_id}", "web")
    for key in ("team/tools", f"lib_{tenant_id}"):
        library = await view.library(key)
        assert library is not None and (library.id, library.name) == (f"lib_{tenant_id}", "team/tools")
    for key in ("guide", f"agt_{tenant_id}"):
        agent, header = await view.agent(key), await view.agent_header(key)
        assert agent is not None and header is not None
        assert (agent.id, agent.name, header.name) == (f"agt_{tenant_id}", "guide", "guide")
    reference = Reference(library="team/tools", name="step")
    found = await view.definition(reference)
    assert found is not None and (found.id, found.library) == (f"def_{tenant_id}", "team/tools")
    assert found.pin.library == "team/tools"
    assert [each.id for each in await view.projects("", 9)] == [f"proj_{tenant_id}"]
    assert [each.name for each in await view.libraries("", 9)] == ["team/tools", STANDARD_LIBRARY]
    assert [each.name for each in await view.libraries("team/tools", 9)] == [STANDARD_LIBRARY]
    assert [each.library for each in await view.definitions(DefinitionQuery())] == ["team/tools"]
    assert not await view.definitions(DefinitionQuery(after=("team/tools", "step")))
    assert [each.name for each in await view.agents("", "", 9)] == ["guide"]


@pytest.mark.parametrize("tenant_id", [RED, ""])
@pytest.mark.parametrize(
    "key",
    [
        f"proj_{BLUE}",
        f"{BLUE}:web",
        f"lib_{BLUE}",
        f"{BLUE}:team/tools",
        f"agt_{BLUE}",
        f"{BLUE}:guide",
        "none",
    ],
)
async def test_a_tenant_finds_nothing_of_another(world: World, tenant_id: str, key: str) -> None:
    view = world.of(tenant_id)
    assert await view.project(key) is None
    assert await view.library(key) is None
    assert await view.agent(key) is None
    assert await view.agent_header(key) is None
    assert await view.definition(Reference(library=key, name="step")) is None
    assert await view.definition(Reference(definition_id=f"def_{BLUE}")) is None
    assert not await view.revisions(f"def_{BLUE}", 0, 9)


async def test_a_refused_commit_makes_no_project_of_the_tenant(world: World) -> None:
    before = world.index.scope_of(RED)
    with pytest.raises(WonderError):
        await world.of(RED).commit([Put(Project(id="proj_ghost", name="web"))])
    assert world.index.scope_of(RED) == before


async def test_a_taken_name_is_said_in_the_words_of_its_tenant(world: World) -> None:
    with pytest.raises(WonderError) as caught:
        await world.of(RED).commit([Put(Project(id="proj_new", name="web"))])
    assert caught.value.fault.reason is Reason.ALREADY_EXISTS
    assert RED not in caught.value.fault.message and "'web'" in caught.value.fault.message


async def test_no_tenant_changes_another_or_the_standard_library(world: World) -> None:
    view = world.of(RED)
    refused = [
        (Drop(Project(id=f"proj_{BLUE}", name="web")), Reason.PROJECT_NOT_FOUND),
        (Drop(Library(id=f"lib_{BLUE}", name="team/tools")), Reason.LIBRARY_NOT_FOUND),
        (Put(definition("x", library_id=f"lib_{BLUE}")), Reason.LIBRARY_NOT_FOUND),
        (Put(Agent(id="agt_x", name="x", project_ids=(f"proj_{BLUE}",))), Reason.PROJECT_NOT_FOUND),
        (Put(definition("x", STANDARD_LIBRARY, "lib_std")), Reason.PERMISSION_DENIED),
        (Drop(Library(id="lib_std", name=STANDARD_LIBRARY)), Reason.PERMISSION_DENIED),
    ]
    for change, reason in refused:
        with pytest.raises(WonderError) as caught:
            await view.commit([change])
        assert caught.value.fault.reason is reason, change


async def test_a_new_project_is_in_the_next_scope_and_a_deleted_one_in_none(world: World) -> None:
    before = world.index.scope_of(RED)
    await world.of(RED).commit([Put(Project(id="proj_new", name="new"))])
    assert "proj_new" in (world.index.scope_of(RED).projects or ()) and "proj_new" not in (
        before.projects or ()
    )
    await world.of(RED).commit([Drop(Project(id="proj_new", name="new"))])
    assert "proj_new" not in (world.index.scope_of(RED).projects or ())
    again, names = TenantIndex(), await world.catalog.names()
    again.load(names.projects, names.libraries)
    for tenant_id in (RED, BLUE, ""):
        assert again.scope_of(tenant_id) == world.index.scope_of(tenant_id)


async def test_plans_see_everything_of_their_tenant_and_nothing_else(world: World) -> None:
    directory = PrincipalDirectory()
    ann = StoredPrincipal(id="prin_ann", tenant_id=RED, kind=PrincipalKind.USER, name="ann")
    role = RoleBinding(
        id="role_1", tenant_id=RED, role=Role.DEVELOPER, project_id=f"proj_{RED}", principal_id=ann.id
    )
    directory.load(StoredTenancy(tenants=[Tenant(id=RED, name="red")], principals=[ann], bindings=[role]))
    scopes = PrincipalScopes(directory, world.index)
    await world.of(RED).commit([Put(Project(id="proj_other", name="other"))])
    member = Principal(kind=PrincipalKind.USER, subject="ann", tenant=RED, permission="agents.write")
    view = CatalogView(world.catalog, scopes.scope_of(member), world.index.apply)
    assert [each.id for each in await view.projects("", 9)] == [f"proj_{RED}"]
    whole = view.whole_tenant()
    assert whole is not None
    assert {each.id for each in await whole.projects("", 9)} == {f"proj_{RED}", "proj_other"}
    with pytest.raises(WonderError) as caught:
        await view.commit([Put(Project(id="proj_mine", name="mine"))])
    assert caught.value.fault.reason is Reason.PERMISSION_DENIED
    # The server for its work in a tenant, and callers of the tenant `default`.
    assert scopes.scope_of(server_in(RED)) == world.index.scope_of(RED)
    assert scopes.scope_of(ANONYMOUS) == world.index.scope_of("")
    stranger = Principal(kind=PrincipalKind.USER, subject="ann", tenant=BLUE)
    assert scopes.scope_of(stranger).projects == frozenset()


def test_names_go_to_the_store_and_back() -> None:
    for tenant_id in ("", RED):
        for name in ("web", "team/tools", "a.b-c_1"):
            stored = stored_name(tenant_id, name)
            assert (tenant_of(stored), own_name(stored)) == (tenant_id, name)
    assert stored_library(RED, STANDARD_LIBRARY) == STANDARD_LIBRARY
    assert stored_name(RED, "") == ""
