"""Every list of the contract, read one item at a time to its end.

The lists are found by the descriptors: one that is new fails here until it is covered.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tests.e2e.client import Client
from tests.e2e.identity_requests import IDENTITY_LISTS, fill_identity_lists
from tests.e2e.process import serving
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Provider, Script
from tests.fakes.provider_formats import Call
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_pb2, definition_pb2, run_pb2
from wonder.v1 import conversation_service_pb2 as conversations
from wonder.v1 import coordinator_service_pb2 as coordinator
from wonder.v1 import file_service_pb2 as files
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memories
from wonder_server.rpc.server.server import contract_services

pytestmark = pytest.mark.asyncio(loop_scope="session")


def methods(takes: Callable[[MethodDescriptor], bool]) -> dict[str, MethodDescriptor]:
    """The methods of the contract that ``takes`` is true for, by name."""
    return {method.name: method for each in contract_services() for method in each.methods if takes(method)}


PAGED = methods(lambda method: "page_token" in method.input_type.fields_by_name)
SEARCHES = methods(lambda method: method.name.startswith("Search"))

GATED = """
name: gated
workflow:
  nodes:
    - id: ask
      human_gate: {prompt: "Shall it be?"}
---
name: outer
workflow:
  nodes:
    - id: one
      workflow_id: gated
"""


@dataclass(kw_only=True)
class World:
    """A server with at least three items in every list."""

    client: Client
    ids: dict[str, str] = field(default_factory=dict)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    environment = {
        "WONDER_DEFAULT_MODEL": "offline",
        "OPENAI_API_KEY": "sk-test",
        "WONDER_OPENAI_BASE_URL": f"{provider.url}/v1",
        "WONDER_SHARD_COUNT": "3",
    }
    data = tmp_path_factory.mktemp("lists") / "data"
    async with serving(data, environment=environment) as server, server.client() as client:
        world = World(client=client)
        await _libraries(world)
        await _documents(world)
        await _files(world)
        await fill_identity_lists(world)
        await _memories(world)
        await _conversations(world, provider)
        await _runs(world)
        yield world


async def _libraries(world: World) -> None:
    client, ids = world.client, world.ids
    for number in range(3):
        await client.library.CreateLibrary(
            library.CreateLibraryRequest(library={"name": f"empty/no_{number}"})
        )
        made = await client.library.CreateProject(
            library.CreateProjectRequest(project={"name": f"project_{number}"})
        )
        ids["project"] = made.project.id
    for revision in range(3):
        for number in range(3):
            await client.apply("lists/one", json.dumps(_persona(f"p{number}", f"Say {revision}.")))
    await client.apply("lists/flows", GATED)
    for number in range(3):
        request = library.CreateAgentRequest(
            agent={"name": f"agent_{number}", "persona_id": "lists/one/p0", "project_ids": [ids["project"]]}
        )
        ids["agent"] = (await client.library.CreateAgent(request)).agent.id


def _persona(name: str, prompt: str) -> dict[str, Any]:
    return {"name": name, "labels": {"tier": "test"}, "persona": {"system_prompt": prompt}}


async def _documents(world: World) -> None:
    for branch in ("main", "other"):
        for number in range(4):
            await world.client.library.WriteArtifact(
                library.WriteArtifactRequest(
                    project_id=world.ids["project"],
                    branch=branch,
                    path=f"notes/{number % 3}.txt",
                    content=f"some words {number}".encode(),
                )
            )


async def _files(world: World) -> None:
    for project in ("default", world.ids["project"]):
        for number in range(3):
            await _upload(world, project, f"{number}.txt")


async def _upload(world: World, project: str, name: str) -> None:
    start = files.UploadFileStart(project_id=project, name=name)
    pieces = [files.UploadFileRequest(start=start), files.UploadFileRequest(content=b"some words")]
    await world.client.files.UploadFile(iter(pieces))


async def _memories(world: World) -> None:
    for number in range(4):
        await _remember(world, f"memory number {number}")
    for subject in ("", "mia"):
        for label in ("human", "rules", "notes"):
            await _set_block(world, label, "first", subject)
    for number in range(3):
        await _set_block(world, "notes", f"content {number}")


async def _set_block(world: World, label: str, content: str, subject: str = "") -> None:
    block = {"label": label, "content": content, "subject": subject}
    request = memories.SetMemoryBlockRequest(agent_id=world.ids["agent"], block=block)
    await world.client.memory.SetMemoryBlock(request)


async def _remember(world: World, content: str) -> None:
    memory = {"type": "fact", "content": content, "significance": 0.5}
    await world.client.memory.WriteMemory(
        memories.WriteMemoryRequest(agent_id=world.ids["agent"], memory=memory)
    )


async def _conversations(world: World, provider: Provider) -> None:
    client, ids = world.client, world.ids
    scripts = [Script(text="Let me see.", calls=(Call(name="recall", arguments='{"query": "x"}'),))] * 3
    name = await Scripted(client, provider, "openai").agent(*scripts, Script(text="That is all."))
    ids["speaker"] = name
    for _ in range(3):
        person = conversation_pb2.Participant(user={"user_id": "mia"})
        agent = conversation_pb2.Participant(agent={"agent_id": name})
        conv = conversation_pb2.Conversation(participants=[person, agent], project_id=ids["project"])
        request = conversations.CreateConversationRequest(conversation=conv)
        ids["conversation"] = (await client.conversations.CreateConversation(request)).conversation.id
    for _ in range(3):
        turn, _ = await client.turn(ids["conversation"], "Hello there")
        ids.setdefault("turn", turn.id)
    assert len(await client.moves(ids["turn"], ids["conversation"])) > 2
    ids["hooked"] = await client.open()
    await client.turn(ids["hooked"], "say 3 words")


async def _runs(world: World) -> None:
    for _ in range(3):
        request = coordinator.StartRunRequest(workflow_id="lists/flows/outer")
        request.context.project_id = world.ids["project"]
        started = await world.client.coordinator.StartRun(request)
        world.ids["run"] = started.run.id
        await _waiting(world, started.run.id)


async def _waiting(world: World, run_id: str) -> None:
    """Watch the run until it waits for its gate, which is that of a run inside."""
    await _watched(world, run_id, "node_started")
    inner = await world.client.coordinator.ListRuns(coordinator.ListRunsRequest(parent_run_id=run_id))
    world.ids["inner"] = inner.runs[0].id
    await _watched(world, world.ids["inner"], "gate_opened")


async def _watched(world: World, run_id: str, event: str) -> None:
    watch = world.client.coordinator.WatchRun(coordinator.WatchRunRequest(run_id=run_id))
    async for word in watch:
        if word.event.HasField(event):
            break
    watch.cancel()


def a_day(world: World) -> dict[str, Any]:
    return {"start_time": Timestamp(seconds=1), "end_time": Timestamp(seconds=4_000_000_000)}


Asked = Callable[[World], Mapping[str, Any]]

LISTS: dict[str, Sequence[Asked]] = {
    "ListConversations": (
        lambda w: {},
        lambda w: {"project_id": w.ids["project"]},
        lambda w: {"agent_id": w.ids["speaker"]},
        lambda w: {"user_id": "mia"},
        lambda w: {"statuses": [conversation_pb2.CONVERSATION_STATUS_ACTIVE]},
        lambda w: {"include_archived": True},
    ),
    "ListTurns": (
        lambda w: {},
        lambda w: {"conversation_id": w.ids["conversation"]},
        lambda w: {"agent_id": w.ids["speaker"]},
        lambda w: {"statuses": [conversation_pb2.TURN_STATUS_COMPLETED]},
        lambda w: {
            "conversation_id": w.ids["conversation"],
            "statuses": [conversation_pb2.TURN_STATUS_COMPLETED],
            "agent_id": w.ids["speaker"],
        },
    ),
    "ListMessages": (
        lambda w: {},
        lambda w: {"oldest_first": True},
        lambda w: {"conversation_id": w.ids["conversation"]},
        lambda w: {"conversation_id": w.ids["conversation"], "oldest_first": True},
        lambda w: {"turn_id": w.ids["turn"]},
        lambda w: {"turn_id": w.ids["turn"], "oldest_first": True},
        lambda w: {"turn_id": w.ids["turn"], "conversation_id": w.ids["conversation"]},
    ),
    "SearchMessages": (
        lambda w: {"query": "s"},
        lambda w: {"query": "s", "order": conversations.MESSAGE_ORDER_BEST},
        lambda w: {"query": "s", "conversation_id": w.ids["conversation"]},
        lambda w: {
            "query": "s",
            "conversation_id": w.ids["conversation"],
            "order": conversations.MESSAGE_ORDER_BEST,
        },
        lambda w: {"query": "s", "agent_id": w.ids["speaker"]},
        lambda w: {"query": "s", **a_day(w)},
    ),
    "ListMoves": (
        lambda w: {},
        lambda w: {"oldest_first": True},
        lambda w: {"conversation_id": w.ids["conversation"]},
        lambda w: {"conversation_id": w.ids["conversation"], "oldest_first": True},
        lambda w: {"turn_id": w.ids["turn"]},
        lambda w: {"turn_id": w.ids["turn"], "oldest_first": True},
        lambda w: {"turn_id": w.ids["turn"], "conversation_id": w.ids["conversation"], "oldest_first": True},
    ),
    "ListDecisions": (
        lambda w: {"conversation_id": w.ids["conversation"]},
        lambda w: {"turn_id": w.ids["turn"]},
        lambda w: {"conversation_id": w.ids["conversation"], "turn_id": w.ids["turn"]},
        lambda w: {"conversation_id": w.ids["conversation"], "types": ["CALL_LLM", "COMPLETE_TURN"]},
        lambda w: {"turn_id": w.ids["turn"], "types": ["RECORD_MOVE"]},
    ),
    "ListEvents": (
        lambda w: {},
        lambda w: {"conversation_id": w.ids["conversation"]},
        lambda w: {"conversation_id": w.ids["conversation"], "after_sequence": 4},
        lambda w: {"names": ["turn.completed", "tool.completed"]},
        lambda w: {"conversation_id": w.ids["conversation"], "names": ["conversation_turn"]},
        lambda w: {"turn_id": w.ids["turn"]},
        lambda w: {"conversation_id": w.ids["conversation"], "turn_id": w.ids["turn"]},
        lambda w: {"project_id": w.ids["project"]},
        a_day,
        lambda w: {"conversation_id": w.ids["conversation"], **a_day(w)},
    ),
    "ListRuns": (
        lambda w: {},
        lambda w: {"include_children": True},
        lambda w: {"workflow_id": "lists/flows/outer"},
        lambda w: {"project_id": w.ids["project"]},
        lambda w: {"conversation_id": w.ids["hooked"], "include_children": True},
        lambda w: {"statuses": [run_pb2.RUN_STATUS_WAITING, run_pb2.RUN_STATUS_RUNNING]},
        lambda w: {"statuses": [run_pb2.RUN_STATUS_COMPLETED], "include_children": True},
        lambda w: {"parent_run_id": w.ids["run"]},
        a_day,
    ),
    "ListGates": (
        lambda w: {},
        lambda w: {"project_id": w.ids["project"]},
        lambda w: {"run_id": w.ids["inner"]},
        lambda w: {"statuses": [run_pb2.GATE_STATUS_PENDING]},
        lambda w: {"statuses": [run_pb2.GATE_STATUS_PENDING, run_pb2.GATE_STATUS_APPROVED]},
        lambda w: {"user_id": "mia"},
    ),
    "ListActionKinds": (lambda w: {},),
    "ListLibraries": (lambda w: {},),
    "ListDefinitions": (
        lambda w: {},
        lambda w: {"library_id": "lists/one"},
        lambda w: {"kinds": [definition_pb2.DEFINITION_KIND_PERSONA]},
        lambda w: {"labels": {"tier": "test"}},
    ),
    "ListRevisions": (lambda w: {"definition_id": "lists/one/p0"},),
    "ExportDefinitions": (lambda w: {"library_id": "lists/one"},),
    "ListAgents": (lambda w: {}, lambda w: {"project_id": w.ids["project"]}),
    "ListProjects": (lambda w: {},),
    "ListArtifacts": (
        lambda w: {"project_id": w.ids["project"]},
        lambda w: {"project_id": w.ids["project"], "path_prefix": "notes/"},
        lambda w: {"project_id": w.ids["project"], "branch": "other"},
    ),
    "ListArtifactRevisions": (
        lambda w: {"project_id": w.ids["project"]},
        lambda w: {"project_id": w.ids["project"], "branch": "other"},
        lambda w: {"project_id": w.ids["project"], "path": "notes/0.txt"},
    ),
    "ListMemories": (
        lambda w: {"agent_id": w.ids["agent"]},
        lambda w: {"agent_id": w.ids["agent"], "filter": {"types": ["fact"]}},
    ),
    "ListMemoryBlocks": (
        lambda w: {"agent_id": w.ids["agent"]},
        lambda w: {"agent_id": w.ids["agent"], "subject": ""},
        lambda w: {"agent_id": w.ids["agent"], "subject": "mia"},
    ),
    "ListMemoryBlockChanges": (lambda w: {"agent_id": w.ids["agent"], "label": "notes"},),
    "ListFiles": (lambda w: {}, lambda w: {"project_id": w.ids["project"]}),
    **IDENTITY_LISTS,
}
"""Requests for each list, with every filter that has its own query path."""

MAY_BE_SHORT = {"ListDecisions", "SearchMessages"}
"""Lists that read at most so much in one call: a page before the last can be empty."""

CASES = [(name, number) for name, asked in LISTS.items() for number in range(len(asked))]


async def test_every_list_of_the_contract_is_read_here() -> None:
    assert PAGED.keys() == LISTS.keys()
    assert SEARCHES.keys() - PAGED.keys() == {"SearchArtifacts", "SearchMemories"}, "these have no pages"


@pytest.mark.parametrize(("name", "number"), CASES)
async def test_one_by_one_a_list_is_what_it_is_at_once(world: World, name: str, number: int) -> None:
    asked = LISTS[name][number](world)
    whole = await read(world, name, asked, 500)
    assert whole
    one_by_one = await read(world, name, asked, 1)
    assert one_by_one == whole
    assert len(set(one_by_one)) == len(one_by_one)


SAME = (
    # Definitions are listed and exported in one order; gates that wait are those that are listed unasked.
    {("ListDefinitions", 1), ("ExportDefinitions", 0)},
    {("ListGates", 0), ("ListGates", 3)},
)
"""Lists that are one list, whose tokens fit each other."""


async def test_a_list_takes_no_token_of_another(world: World) -> None:
    tokens = {}
    for other, asked in LISTS.items():
        for number, fields in enumerate(asked):
            page = await call(world, other, page_size=1, **fields(world))
            if page.next_page_token:
                tokens[other, number] = page.next_page_token
    assert len({key[0] for key in tokens}) == len(LISTS), "every list has a next page somewhere"
    for name, asked in LISTS.items():
        own = (name, 0)
        for other, token in tokens.items():
            if other != own and {own, other} not in SAME:
                with_token = call(world, name, page_size=1, page_token=token, **asked[0](world))
                assert (await rejected(with_token))[0] == "PAGE_TOKEN_INVALID", (own, other)


async def test_what_comes_in_between_moves_nothing(world: World) -> None:
    """New items come first in a list of the newest, or stand where they belong; none is shown twice."""
    changes: dict[str, Callable[[int], Awaitable[Any]]] = {
        "ListConversations": lambda n: world.client.open(),
        "ListTurns": lambda n: world.client.turn(world.ids["conversation"], "And now?"),
        "ListMessages": lambda n: world.client.turn(world.ids["conversation"], "And now?"),
        "SearchMessages": lambda n: world.client.turn(world.ids["conversation"], "say 2 words"),
        "ListMoves": lambda n: world.client.turn(world.ids["conversation"], "And now?"),
        "ListEvents": lambda n: world.client.open(),
        "ListRuns": lambda n: world.client.coordinator.StartRun(
            coordinator.StartRunRequest(workflow_id="lists/flows/gated")
        ),
        "ListMemories": lambda n: _remember(world, f"something new, {n}"),
        "ListMemoryBlocks": lambda n: _set_block(world, "rules", f"something new, {n}"),
        "ListMemoryBlockChanges": lambda n: _set_block(world, "notes", f"something new, {n}"),
        "ListFiles": lambda n: _upload(world, "default", f"between_{n}.txt"),
        "ListAgents": lambda n: world.client.agent(f"between_{n}", "lists/one/p0"),
        "ListProjects": lambda n: world.client.library.CreateProject(
            library.CreateProjectRequest(project={"name": f"between_{n}"})
        ),
        "ListRevisions": lambda n: world.client.apply(
            "lists/one", json.dumps(_persona("p0", f"Say what came in between, {n}."))
        ),
        "ListArtifactRevisions": lambda n: world.client.library.WriteArtifact(
            library.WriteArtifactRequest(
                project_id=world.ids["project"], path="notes/new.txt", content=f"new {n}".encode()
            )
        ),
    }
    for name, change in changes.items():
        asked = LISTS[name][0](world)
        before = await read(world, name, asked, 500)
        seen: list[Any] = []
        token = ""
        for number in range(len(before)):
            page = await call(world, name, page_size=1, page_token=token, **asked)
            seen += items(page)
            token = page.next_page_token
            if number < 3:
                await change(number)
            if not token:
                break
        assert seen == before, name


async def test_what_goes_in_between_takes_nothing_else_with_it(world: World) -> None:
    """The item that a token was made after is deleted, and the next page begins where it did."""
    client = world.client
    convs = [await client.open(title=f"doomed {n}") for n in range(4)]
    asked = {"agent_id": "assistant"}
    first = await call(world, "ListConversations", page_size=1, **asked)
    assert items(first)[0] == convs[3]
    await client.conversations.DeleteConversation(
        conversations.DeleteConversationRequest(conversation_id=convs[3])
    )
    rest = await read(world, "ListConversations", asked, 1, first.next_page_token)
    assert rest[:3] == [convs[2], convs[1], convs[0]]

    asked = {"agent_id": world.ids["agent"]}
    before = await read(world, "ListMemories", asked, 500)
    token = (await call(world, "ListMemories", page_size=1, **asked)).next_page_token
    await client.memory.DeleteMemory(
        memories.DeleteMemoryRequest(agent_id=world.ids["agent"], memory_id=before[0])
    )
    assert await read(world, "ListMemories", asked, 1, token) == before[1:]


# --- reading ----------------------------------------------------------------------------------------


async def call(world: World, name: str, **fields: Any) -> Any:
    """Return one page."""
    method = PAGED[name]
    stub = world.client.channel.unary_unary(
        f"/{method.containing_service.full_name}/{name}",
        request_serializer=type(_message(method.input_type)).SerializeToString,
        response_deserializer=type(_message(method.output_type)).FromString,
    )
    return await stub(type(_message(method.input_type))(**fields))


def _message(descriptor: Any) -> Message:
    made: Message = descriptor._concrete_class()
    return made


async def read(world: World, name: str, asked: Mapping[str, Any], size: int, token: str = "") -> list[Any]:
    """Return the whole list."""
    found: list[Any] = []
    while True:
        page = await call(world, name, page_size=size, page_token=token, **asked)
        assert len(items(page)) <= size
        found += items(page)
        token = page.next_page_token
        if not token:
            return found
        assert items(page) or name in MAY_BE_SHORT, "a page before the last is not empty"


def items(page: Any) -> list[Any]:
    """Return the identifiers of the items of a page."""
    (listed,) = (each for each in page.DESCRIPTOR.fields if each.is_repeated)
    return [_name(item) for item in getattr(page, listed.name)]


def _name(item: Any) -> Any:
    if item.DESCRIPTOR.name == "Event":
        return item.conversation_id, item.sequence
    if item.DESCRIPTOR.name == "Definition":
        return item.id, item.revision, item.name
    if item.DESCRIPTOR.name == "Decision":
        return item.sequence, item.index
    if item.DESCRIPTOR.name == "MemoryBlock":
        return item.subject, item.label
    if item.DESCRIPTOR.name == "MessageMatch":
        return item.message.id
    for known in ("id", "path", "name", "etag"):
        if known in item.DESCRIPTOR.fields_by_name:
            return getattr(item, known)
    raise AssertionError(f"{item.DESCRIPTOR.name} has no name")
