"""Access scopes: a view of project A reads and changes nothing of project B, with any adapter.

Each call is made for an id of B and for an unknown one. Both must have the same outcome, down to the text of
the error, and the server's own view must find what belongs to B."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.ports.journal_subjects import (
    JOURNALS,
    commit,
    conversation,
    conversation_id,
    emitted,
    message,
    opened,
    put_conversation,
)
from tests.fakes.repositories import NoRepositories
from wonder_server.adapters.in_memory.catalog import MemoryCatalog
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.adapters.in_memory.vectors import PlainVectors
from wonder_server.adapters.sqlite.catalog.store import SqliteCatalog
from wonder_server.adapters.sqlite.memory.blocks import SqliteMemoryBlocks
from wonder_server.adapters.sqlite.memory.store import SqliteMemories
from wonder_server.adapters.sqlite.shard.usage import SqliteAccounts
from wonder_server.compose.stores import InternalStores, StoreAdapters, Stores, StoreViews
from wonder_server.core import ids
from wonder_server.core.actor.changes import Emit, Put
from wonder_server.core.actor.commands import Scope
from wonder_server.core.actor.gates import Gate
from wonder_server.core.budget import CHARGES, Account
from wonder_server.core.conversation.model.inputs import CancelTurn
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.model.inputs import CancelRun
from wonder_server.core.coordinator.model.values import NodeExecution, Run
from wonder_server.core.coordinator.planner import RUN
from wonder_server.core.definitions.document import DefinitionDraft
from wonder_server.core.definitions.references import Reference
from wonder_server.core.definitions.resources import Agent, Definition, File, Library, Project
from wonder_server.core.definitions.specs import Action
from wonder_server.core.errors import Reason, WonderError
from wonder_server.core.identity import ANONYMOUS, SERVER, Principal, PrincipalKind, server_part
from wonder_server.core.memory.blocks import Author, BlockKey, ChangeKind, MemoryBlock
from wonder_server.core.memory.queries import MemoryQuery
from wonder_server.core.memory.records import Draft, Filter
from wonder_server.ports import scoped
from wonder_server.ports.access import ALL_RECORDS, MAX_VIEWS, AccessScope, PerScope, working_principal
from wonder_server.ports.catalog import DefinitionQuery, Drop
from wonder_server.ports.catalog import Put as PutResource
from wonder_server.ports.journal import Entry, Event
from wonder_server.ports.memories import Entry as MemoryEntry
from wonder_server.ports.memories import StoredText
from wonder_server.ports.records import EventQuery, Query

ANN = Principal(kind=PrincipalKind.TOKEN, subject="ann")
"""The principal of project A and library A."""
SCOPE = AccessScope(projects=frozenset({"proj_A"}), libraries=frozenset({"lib_A"}))
EMBEDDER = "test-1"
ONE = b"\0\0\x80\x3f"


def scope_of(principal: Principal) -> AccessScope:
    return SCOPE if principal == ANN else ALL_RECORDS


@dataclass(frozen=True)
class Ids:
    """The ids of what belongs to one project, or of nothing."""

    project: str
    library: str
    conversation: str
    run: str
    agent: str
    memory: str
    definition: str
    file: str

    @property
    def all(self) -> list[tuple[str, str]]:
        return [(name, str(value)) for name, value in vars(self).items()]


def ids_of(letter: str, number: int) -> Ids:
    return Ids(
        project=f"proj_{letter}",
        library=f"lib_{letter}",
        conversation=conversation_id(number),
        run=f"run_01HF7YAT000000000000000{number:02}{number % 3}",
        agent=f"agt_{letter}",
        memory=f"mem_{ids.encode(number, 0)}",
        definition=f"def_{letter}",
        file=f"file_{letter}",
    )


A, B, NONE = ids_of("A", 1), ids_of("B", 2), ids_of("C", 4)


def agent_of(owned: Ids, *more: str) -> Agent:
    return Agent(id=owned.agent, name=owned.agent[4:], project_ids=(owned.project, *more), persona_id="a/p")


def library_of(owned: Ids) -> Library:
    return Library(id=owned.library, name=f"team/{owned.library[4:].lower()}")


def definition_of(owned: Ids) -> Definition:
    draft = DefinitionDraft(name="step", spec=Action(kind="llm"))
    return Definition(
        id=owned.definition,
        library_id=owned.library,
        library=library_of(owned).name,
        revision=1,
        draft=draft,
        content_hash=draft.content_hash(),
    )


def file_of(owned: Ids) -> File:
    return File(
        id=owned.file,
        project_id=owned.project,
        name="a.txt",
        media_type="text/plain",
        size_bytes=1,
        sha256="0" * 64,
    )


SET: tuple[ChangeKind, Author] = ("set", Author())


def block_of(owned: Ids) -> MemoryBlock:
    return MemoryBlock(key=BlockKey(agent_id=owned.agent, label="notes"))


def memory_of(owned: Ids, content: str = "plum") -> MemoryEntry:
    text = StoredText(content=content, vectors=(ONE,))
    return MemoryEntry(id=owned.memory, draft=Draft(type="fact", content=content), text=text)


def another_memory(owned: Ids) -> MemoryEntry:
    return replace(memory_of(owned, "pear"), id=f"{owned.memory[:-1]}Z")


class World:
    """Stores with the same records in project A and in project B."""

    def __init__(self, stores: Stores, vectors: PlainVectors) -> None:
        self.stores = stores
        self.vectors = vectors
        self.ann = stores.of(ANN)
        self.server = stores.of(SERVER)

    async def fill(self, journals: Any, memories: SqliteMemories) -> None:
        for number, owned in ((1, A), (2, B)):
            value = conversation(number, project=owned.project, external_ref="ref")
            charge = Account(input_tokens=number)
            await journals.of(owned.conversation).commit(
                [
                    commit(
                        owned.conversation,
                        put_conversation(value),
                        message(number, owner=owned.conversation),
                        Put(CHARGES, f"charge_{number}", charge, parent=owned.agent),
                        entries=(Entry(1, 10, CancelTurn(turn_id="turn_1"), ()),),
                        events=(emitted(1, owner=owned.conversation, at_ms=number),),
                    )
                ]
            )
            await journals.of(owned.run).commit([run_commit(owned, number)])
            catalog = self.server.catalog
            await catalog.commit([PutResource(Project(id=owned.project, name=owned.project.lower()))])
            await catalog.commit([PutResource(library_of(owned)), PutResource(definition_of(owned))])
            await catalog.commit([PutResource(agent_of(owned)), PutResource(file_of(owned))])
            await memories.add(owned.agent, [memory_of(owned)], EMBEDDER, 1)
            blocks = SqliteMemoryBlocks(memories.database)
            block = block_of(owned)
            await blocks.change(block.key, lambda _, block=block: block, None, SET, 1)  # type: ignore[misc]


def run_commit(owned: Ids, number: int) -> Any:
    run = Run(
        id=owned.run,
        workflow_ref="team/flow@1",
        workflow_id="def_1",
        scope=Scope(project_id=owned.project),
        created_ms=number,
    )
    gate = Gate(
        id=f"gate_{owned.run[4:]}",
        run_id=owned.run,
        operation_id="op_1",
        node_id="ask",
        project_id=owned.project,
        workflow_ref="team/flow@1",
        prompt="Well?",
        shown={},
        shown_hash="0" * 64,
    )
    execution = NodeExecution(id="exec_1", run_id=owned.run, node_id="n", token_id="tok_1", ordinal=1)
    return commit(
        owned.run,
        Put("runs", run.id, run, status=run.status.value, created_ms=number, live=True),
        Put("gates", gate.id, gate, parent=gate.project_id, status=gate.status.value, live=True),
        Put("executions", execution.id, execution, ordinal=1),
        entries=(Entry(1, 10, CancelRun(reason="x"), ()),),
        events=(Event(1, number, owned.run, Emit("workflow.started", run)),),
    )


@pytest_asyncio.fixture(params=JOURNALS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        shards = await stack.enter_async_context(opened(request.param, tmp_path))
        in_memory = isinstance(shards, MemoryShards)
        catalog = MemoryCatalog() if in_memory else await SqliteCatalog.open(tmp_path / "catalog.db")
        if isinstance(catalog, SqliteCatalog):
            stack.push_async_callback(catalog.close)
        memories = await SqliteMemories.open(tmp_path / "memory.db")  # The only adapter of its port.
        stack.push_async_callback(memories.close)
        nothing: Any = None
        upkeep: Any = type("Upkeep", (), {"vectors": memories})
        adapters = StoreAdapters(
            records=shards,
            accounts=shards if isinstance(shards, MemoryShards) else SqliteAccounts(shards.shards),
            catalog=catalog,
            memories=memories,
            memory_blocks=SqliteMemoryBlocks(memories.database),
            internal=InternalStores(
                journals=shards,
                archives=nothing,
                placement=nothing,
                memory=upkeep,
                blobs=nothing,
                **dict.fromkeys(("file_objects", "removed_projects", "tenancy"), nothing),
                disk_full_error=lambda: None,
            ),
        )
        found = World(Stores(adapters, scope_of), PlainVectors(memories, EMBEDDER))
        await found.fill(shards, memories)
        yield found


Call = Callable[[World, StoreViews, Ids], Awaitable[Any]]


async def named(world: World, views: StoreViews, owned: Ids) -> Any:
    """Return the names of the documents: one repository for each project."""
    repositories = NoRepositories()
    repositories.names = lambda: listed(owned.project)  # type: ignore[attr-defined]
    return await views.repositories(repositories).names()


async def listed(*names: str) -> list[str]:
    return list(names)


async def opened_repository(world: World, views: StoreViews, owned: Ids) -> Any:
    class Repositories(NoRepositories):
        def of(self, name: str) -> Any:
            return name

    return views.repositories(Repositories()).of(owned.project)


async def removed_repository(world: World, views: StoreViews, owned: Ids) -> Any:
    class Repositories(NoRepositories):
        async def remove(self, name: str) -> None:
            return None

    await views.repositories(Repositories()).remove(owned.project)
    return "removed"


async def replaced(world: World, views: StoreViews, owned: Ids) -> Any:
    found = await world.server.memories.get(owned.agent, [owned.memory])
    template = found or await world.server.memories.get(A.agent, [A.memory])
    memory = replace(template[0], id=owned.memory, agent_id=owned.agent, version=2, significance=0.1)
    return await views.memories.replace(memory, 1, None, EMBEDDER)


def rows(table: str) -> Call:
    """Return a call that finds the rows of one actor."""

    async def find(world: World, views: StoreViews, owned: Ids) -> Any:
        actor = owned.run if table in ("runs", "gates", "executions") else owned.conversation
        return await views.records.find(Query(table=table, actor=actor))

    return find


async def catalog_get(world: World, views: StoreViews, owned: Ids) -> Any:
    reference = Reference(definition_id=owned.definition)
    by_name = Reference(library=library_of(owned).name, name="step")
    catalog = views.catalog
    return [await catalog.definition(reference), await catalog.definition(by_name)]


CALLS: dict[str, Call] = {
    "ScopedRecords.shows": lambda w, v, o: v.records.shows(o.conversation),
    "ScopedRecords.shows run": lambda w, v, o: v.records.shows(o.run),
    "ScopedRecords.head": lambda w, v, o: v.records.head(o.conversation),
    "ScopedRecords.heads": lambda w, v, o: v.records.heads([o.conversation, o.run]),
    "ScopedRecords.snapshot": lambda w, v, o: v.records.snapshot(o.run, [Query(table="executions")]),
    "ScopedRecords.get": lambda w, v, o: v.records.get("conversations", o.conversation, o.conversation),
    "ScopedRecords.get message": lambda w, v, o: v.records.get("messages", f"msg_{o.run[-3:-1]:0>3}"),
    **{f"ScopedRecords.find {table}": rows(table) for table in ("conversations", "messages", "runs")},
    **{f"ScopedRecords.find {table}": rows(table) for table in ("gates", "executions")},
    "ScopedRecords.events": lambda w, v, o: v.records.events(
        CONVERSATION.prefix, EventQuery(actor=o.conversation)
    ),
    "ScopedRecords.events run": lambda w, v, o: v.records.events(RUN.prefix, EventQuery(actor=o.run)),
    "ScopedJournals.of load": lambda w, v, o: v.journals.of(o.run).load(o.run),
    "ScopedJournals.of entries": lambda w, v, o: v.journals.of(o.run).entries(o.run, 0, 9),
    "ScopedJournals.members": lambda w, v, o: v.journals.members(o.conversation),
    "ScopedCatalog.library": lambda w, v, o: v.catalog.library(o.library),
    "ScopedCatalog.library name": lambda w, v, o: v.catalog.library(library_of(o).name),
    "ScopedCatalog.definition": catalog_get,
    "ScopedCatalog.revisions": lambda w, v, o: v.catalog.revisions(o.definition, 0, 9),
    "ScopedCatalog.agent": lambda w, v, o: v.catalog.agent(o.agent),
    "ScopedCatalog.agent name": lambda w, v, o: v.catalog.agent(o.agent[4:]),
    "ScopedCatalog.agent_header": lambda w, v, o: v.catalog.agent_header(o.agent),
    "ScopedCatalog.agents": lambda w, v, o: v.catalog.agents(o.project, "", 9),
    "ScopedCatalog.project": lambda w, v, o: v.catalog.project(o.project),
    "ScopedCatalog.file": lambda w, v, o: v.catalog.file(o.file),
    "ScopedCatalog.files": lambda w, v, o: v.catalog.files(o.project, "", 9),
    "ScopedCatalog.definitions": lambda w, v, o: v.catalog.definitions(DefinitionQuery(library_id=o.library)),
    "ScopedVectorSource.vectors": lambda w, v, o: v.vector_source.vectors(o.agent, EMBEDDER),
    "ScopedVectorSource.keys": lambda w, v, o: v.vector_source.keys(o.agent, EMBEDDER, Filter()),
    "ScopedVectors.nearest": lambda w, v, o: v.vectors(w.vectors).nearest(o.agent, ONE, 9),
    "ScopedMemories.get": lambda w, v, o: v.memories.get(o.agent, [o.memory]),
    "ScopedMemories.page": lambda w, v, o: v.memories.page(o.agent, Filter(), "", 9),
    "ScopedMemories.recall": lambda w, v, o: v.memories.recall(o.agent, MemoryQuery("plum"), {}, Filter(), 9),
    "ScopedMemoryBlocks.of": lambda w, v, o: v.memory_blocks.of(o.agent, [""]),
    "ScopedMemoryBlocks.page": lambda w, v, o: v.memory_blocks.page(o.agent, ("", ""), 9),
    "ScopedMemoryBlocks.changes": lambda w, v, o: v.memory_blocks.changes(block_of(o).key, 9),
    "ScopedRepositories.names": named,
}
"""Reads: nothing of B is found, as for an id that does not exist. The server's view finds it."""

REFUSED: dict[str, tuple[Call, Reason]] = {
    "ScopedMemoryBlocks.change": (
        lambda w, v, o: v.memory_blocks.change(block_of(o).key, lambda _: block_of(o), 9, SET, 1),
        Reason.AGENT_NOT_FOUND,
    ),
    "ScopedMemoryBlocks.remove": (
        lambda w, v, o: v.memory_blocks.remove(block_of(o).key, None, Author(), 1),
        Reason.AGENT_NOT_FOUND,
    ),
    "ScopedMemories.add": (
        lambda w, v, o: v.memories.add(o.agent, [another_memory(o)], EMBEDDER, 1),
        Reason.AGENT_NOT_FOUND,
    ),
    "ScopedMemories.replace": (replaced, Reason.AGENT_NOT_FOUND),
    "ScopedMemories.remove": (
        lambda w, v, o: v.memories.remove(o.agent, o.memory, None, 1),
        Reason.AGENT_NOT_FOUND,
    ),
    "ScopedVectors.add": (
        lambda w, v, o: v.vectors(w.vectors).add(o.agent, [(7, ONE)]),
        Reason.AGENT_NOT_FOUND,
    ),
    "ScopedVectors.remove": (
        lambda w, v, o: v.vectors(w.vectors).remove(o.agent, [7]),
        Reason.AGENT_NOT_FOUND,
    ),
    "ScopedRepositories.of": (opened_repository, Reason.PROJECT_NOT_FOUND),
    "ScopedRepositories.remove": (removed_repository, Reason.PROJECT_NOT_FOUND),
    "ScopedCatalog.commit agent": (
        lambda w, v, o: v.catalog.commit([PutResource(replace(agent_of(o), version=2))]),
        Reason.AGENT_NOT_FOUND,
    ),
    "ScopedCatalog.commit drop": (
        lambda w, v, o: v.catalog.commit([Drop(agent_of(o))]),
        Reason.AGENT_NOT_FOUND,
    ),
    "ScopedCatalog.commit project": (
        lambda w, v, o: v.catalog.commit([PutResource(Project(id=o.project, name="x", version=2))]),
        Reason.PROJECT_NOT_FOUND,
    ),
    "ScopedCatalog.commit library": (
        lambda w, v, o: v.catalog.commit([PutResource(replace(library_of(o), version=2))]),
        Reason.LIBRARY_NOT_FOUND,
    ),
    "ScopedCatalog.commit definition": (
        lambda w, v, o: v.catalog.commit([Drop(definition_of(o))]),
        Reason.LIBRARY_NOT_FOUND,
    ),
    "ScopedCatalog.commit file": (
        lambda w, v, o: v.catalog.commit([PutResource(replace(file_of(o), id="file_new"))]),
        Reason.PROJECT_NOT_FOUND,
    ),
    "ScopedCatalog.commit drop file": (
        lambda w, v, o: v.catalog.commit([Drop(file_of(o))]),
        Reason.PROJECT_NOT_FOUND,
    ),
    "ScopedCatalog.commit new agent": (
        lambda w, v, o: v.catalog.commit([PutResource(replace(agent_of(o), id="agt_new", name="new"))]),
        Reason.PROJECT_NOT_FOUND,
    ),
}
"""Changes, and reads that say which agent or project is missing."""


async def outcome(call: Call, world: World, views: StoreViews, owned: Ids) -> str:
    """Return the result or the error, with the names of ids in place of ids."""
    try:
        found = repr(await call(world, views, owned))
    except WonderError as refused:
        found = repr(refused.fault)
    for name, value in owned.all:
        found = found.replace(value, f"<{name}>")
    return found


@pytest.mark.parametrize("name", CALLS)
async def test_a_view_finds_nothing_of_another_project(world: World, name: str) -> None:
    call = CALLS[name]
    foreign = await outcome(call, world, world.ann, B)
    assert foreign == await outcome(call, world, world.ann, NONE)
    own = await outcome(call, world, world.ann, A)
    assert own != foreign
    # The server's own view finds both.
    assert await outcome(call, world, world.server, A) == own
    assert await outcome(call, world, world.server, B) != foreign


@pytest.mark.parametrize("name", REFUSED)
async def test_a_change_of_another_project_is_refused_as_one_of_nothing(world: World, name: str) -> None:
    call, reason = REFUSED[name]
    foreign = await outcome(call, world, world.ann, B)
    assert f"reason=<Reason.{reason.name}" in foreign
    assert foreign == await outcome(call, world, world.ann, NONE)
    assert foreign != await outcome(call, world, world.ann, A)
    # Nothing of B has changed.
    assert await world.server.catalog.agent(B.agent) == agent_of(B)
    assert [each.version for each in await world.server.memories.get(B.agent, [B.memory])] == [1]


ELSEWHERE = {
    # Tested below: lists, and what has no missing id.
    *("ScopedCatalog.libraries", "ScopedCatalog.projects", "ScopedAccounts.accounts"),
    *("ScopedMemories.is_empty", "ScopedMemories.answered", "ScopedMemoryBlocks.known"),
    # The key of a request names the principal; the letter of a shard and a hash belong to no project.
    *("ScopedCatalog.answer", "ScopedCatalog.keep_answers", "ScopedJournals.completed_request"),
    *("ScopedJournals.holds", "ScopedRepositories.id_of", "ScopedCatalog.whole_tenant"),
    "ScopedVectors.close",  # It ends the indexes of all agents, at the end of the server.
}


def test_every_method_of_every_view_is_called() -> None:
    methods = {
        f"{name}.{method}"
        for name, port in inspect.getmembers(scoped, inspect.isclass)
        if name.startswith("Scoped") and name != "Scoped"
        for method, _ in inspect.getmembers(port, inspect.isfunction)
        if not method.startswith("_")
    }
    assert methods == {name.split()[0] for name in (*CALLS, *REFUSED)} | ELSEWHERE


# --- lists of all -----------------------------------------------------------------------------------------


TABLES = ("conversations", "messages", "runs", "gates", "executions")


@pytest.mark.parametrize("table", TABLES)
async def test_a_list_of_all_rows_has_those_of_the_scope(world: World, table: str) -> None:
    actors = {A.conversation, A.run}
    query = Query(table=table)
    mine, everything = await world.ann.records.find(query), await world.server.records.find(query)
    assert len(mine) == 1 and len(everything) == 2
    owner = getattr(mine[0], "conversation_id", "") or getattr(mine[0], "run_id", "") or mine[0].id
    assert owner in actors


@pytest.mark.parametrize("planner", [CONVERSATION, RUN], ids=["conversations", "runs"])
async def test_a_list_of_all_events_has_those_of_the_scope(world: World, planner: Any) -> None:
    mine = await world.ann.records.events(planner.prefix, EventQuery())
    assert [event.actor_id for event in mine] == [A.conversation if planner is CONVERSATION else A.run]
    assert len(await world.server.records.events(planner.prefix, EventQuery())) == 2


async def test_a_reference_finds_the_conversation_of_the_scope(world: World) -> None:
    found = await world.ann.records.find(Query(table="conversations", alias="ref"))
    assert [each.id for each in found] == [A.conversation]


async def test_pages_of_a_scope_have_no_gaps_where_others_are_left_out(world: World) -> None:
    found = await world.ann.records.find(Query(table="conversations", limit=1))
    after = (found[0].created_ms, found[0].id)
    assert [each.id for each in found] == [A.conversation]
    assert await world.ann.records.find(Query(table="conversations", limit=1, after=after)) == []


async def test_lists_of_the_catalog_have_what_is_in_the_scope(world: World) -> None:
    mine, everything = world.ann.catalog, world.server.catalog
    assert [each.id for each in await mine.libraries("", 9)] == [A.library]
    assert [each.id for each in await mine.projects("", 9)] == [A.project]
    assert [each.id for each in await mine.agents("", "", 9)] == [A.agent]
    assert [each.id for each in await mine.files("", "", 9)] == [A.file]
    assert [each.id for each in await mine.definitions(DefinitionQuery())] == [A.definition]
    for found in (
        await everything.libraries("", 9),
        await everything.projects("", 9),
        await everything.agents("", "", 9),
        await everything.files("", "", 9),
        await everything.definitions(DefinitionQuery()),
    ):
        assert len(found) == 2


async def test_a_scope_without_projects_has_nothing(world: World) -> None:
    views = PerScope(world.stores._open_views).within(
        AccessScope(projects=frozenset(), libraries=frozenset())
    )
    for table in TABLES:
        assert await views.records.find(Query(table=table)) == []
    assert await views.catalog.agents("", "", 9) == []
    assert await views.catalog.libraries("", 9) == []
    assert await views.records.events(CONVERSATION.prefix, EventQuery()) == []


async def test_other_agents_have_no_account(world: World) -> None:
    found = await world.ann.accounts.accounts([A.agent, B.agent, NONE.agent])
    assert {agent: account.input_tokens for agent, account in found.items()} == {A.agent: 1}
    everyone = await world.server.accounts.accounts([A.agent, B.agent])
    assert everyone[B.agent].input_tokens == 2


async def test_only_the_view_of_everything_knows_without_reading_that_nothing_is_remembered(
    world: World,
) -> None:
    await world.server.memories.recall(NONE.agent, MemoryQuery("plum"), {}, Filter(), 9)
    assert world.server.memories.is_empty(NONE.agent)
    assert not world.ann.memories.is_empty(NONE.agent)


# --- agents of several projects, and new resources --------------------------------------------------------


async def test_an_agent_of_two_projects_is_in_the_scope_of_each_and_keeps_the_other(world: World) -> None:
    shared = replace(agent_of(A, B.project), id="agt_S", name="shared")
    await world.server.catalog.commit([PutResource(shared)])
    assert await world.ann.catalog.agent("shared") == shared
    renamed = replace(shared, description="both", version=2)
    await world.ann.catalog.commit([PutResource(renamed)])
    # A scope adds no project that it does not have.
    added = replace(agent_of(A), project_ids=(A.project, B.project), version=2)
    with pytest.raises(WonderError) as refused:
        await world.ann.catalog.commit([PutResource(added)])
    assert refused.value.fault.reason is Reason.PROJECT_NOT_FOUND


@pytest.mark.parametrize("resource", [Project(id="proj_N", name="n"), Library(id="lib_N", name="n")])
async def test_a_new_project_or_library_needs_the_scope_of_everything(world: World, resource: Any) -> None:
    with pytest.raises(WonderError) as refused:
        await world.ann.catalog.commit([PutResource(resource)])
    assert refused.value.fault.reason is Reason.PERMISSION_DENIED
    await world.server.catalog.commit([PutResource(resource)])


# --- views ------------------------------------------------------------------------------------------------


async def test_principals_with_one_scope_share_one_view(world: World) -> None:
    stores = world.stores
    assert stores.of(ANN) is world.ann
    assert stores.of(ANONYMOUS) is stores.of(SERVER) is stores.of(server_part("retention"))
    assert stores.of(ANN) is not stores.of(ANONYMOUS)


def test_the_number_of_kept_views_is_limited() -> None:
    views = PerScope(lambda scope: [scope])
    for number in range(2 * MAX_VIEWS):
        views.within(AccessScope(projects=frozenset({str(number)})))
    assert len(views._views) <= MAX_VIEWS


@pytest.mark.parametrize("text", ["", "robot:r2", "no such kind"])
def test_work_of_an_unknown_principal_is_the_servers(text: str) -> None:
    assert working_principal(text) == SERVER


def test_work_of_a_recorded_principal_is_that_principals() -> None:
    assert working_principal("token:ann") == ANN
