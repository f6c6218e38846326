"""Answers fit a client with default limits: 4 MiB for one gRPC message."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from grpc import aio

from tests.e2e.client import Client, View
from tests.e2e.oversized import LONG, fill
from tests.e2e.process import serving
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memories
from wonder_server.core.conversation.model.values import Conversation
from wonder_server.core.conversation.planner import CONVERSATION
from wonder_server.core.coordinator.output.record import RUN_ENDED
from wonder_server.core.coordinator.planner import RUN
from wonder_server.rpc.shared.message_trimming import MAX_ITEM_BYTES
from wonder_server.rpc.shared.pages import PAGE_BYTES

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Old:
    """A server on a folder with records above any limit, and a client that has gRPC's defaults."""

    def __init__(self, client: Client, conv: str, run_id: str, run_ended: int) -> None:
        self.client = client
        self.conv = conv
        self.run_id = run_id
        self.run_ended = run_ended
        """Sequence of the run's last event before the large ones."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def old(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Old]:
    data = tmp_path_factory.mktemp("old") / "data"
    async with (
        serving(data, environment={"WONDER_DEFAULT_MODEL": "offline"}) as server,
        server.client() as client,
    ):
        conv = await client.open()
        turn, _ = await client.turn(conv, "say 3 words")
        run_id = turn.context_assembly_run_id
        run = (await client.coordinator.GetRun(runs.GetRunRequest(run_id=run_id))).run
        shown = (
            await client.conversations.GetConversation(pb.GetConversationRequest(conversation_id=conv))
        ).conversation
    row = Conversation(id=conv, project_id=shown.project_id, created_ms=shown.create_time.ToMilliseconds())
    await fill(data, row, run_id)
    async with serving(data, environment={"WONDER_DEFAULT_MODEL": "offline"}) as server:
        async with aio.insecure_channel(server.address) as channel:
            yield Old(Client(channel), conv, run_id, run.last_sequence)
        assert not (wrong := [line for line in server.log if line.get("level") == "error"]), [
            line.get("exception") for line in wrong
        ]


async def pages(method: Any, request: Any) -> list[Any]:
    """Return the items of a list, page by page, and check the size of each page."""
    found: list[Any] = []
    while True:
        page = await method(request)
        (listed,) = (each for each in page.DESCRIPTOR.fields if each.is_repeated)
        items = getattr(page, listed.name)
        assert page.ByteSize() <= max(PAGE_BYTES, MAX_ITEM_BYTES) + 1024
        assert len(items) <= 1 or page.ByteSize() <= PAGE_BYTES + 1024
        found += items
        request.page_token = page.next_page_token
        if not request.page_token:
            return found


@pytest.mark.parametrize("page_size", [0, 1])
async def test_every_event_of_an_old_folder_can_be_listed(old: Old, page_size: int) -> None:
    request = pb.ListEventsRequest(conversation_id=old.conv, page_size=page_size)
    events = await pages(old.client.conversations.ListEvents, request)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert {event.WhichOneof("payload") for event in events} >= CONVERSATION.event_types.keys()
    of_all = await pages(old.client.conversations.ListEvents, pb.ListEventsRequest(page_size=page_size))
    assert len(of_all) == len(events)


async def test_a_long_text_of_an_old_folder_is_cut_with_a_notice(old: Old) -> None:
    request = pb.ListMessagesRequest(conversation_id=old.conv)
    message = (await pages(old.client.conversations.ListMessages, request))[0]
    size = len(LONG.encode())
    begins, _, notice = message.content.rpartition("\n[Cut: ")
    assert LONG.startswith(begins)
    assert len(begins) > len(LONG) // 3, "no more than needed is cut"
    assert notice == f"{size - len(begins.encode())} of {size} bytes are left out here.]"


@pytest.mark.parametrize("page_size", [0, 1])
async def test_every_row_of_an_old_folder_can_be_listed(old: Old, page_size: int) -> None:
    convs, coordinator = old.client.conversations, old.client.coordinator
    of_conversation = {"conversation_id": old.conv, "page_size": page_size}
    assert len(await pages(convs.ListTurns, pb.ListTurnsRequest(**of_conversation))) == 2
    assert len(await pages(convs.ListMessages, pb.ListMessagesRequest(**of_conversation))) == 3
    moves = await pages(convs.ListMoves, pb.ListMovesRequest(**of_conversation))
    assert len(moves) == 2
    assert moves[0].tool_calls[0].id == "call_0"
    await pages(convs.ListConversations, pb.ListConversationsRequest(page_size=page_size))
    request = runs.ListRunsRequest(page_size=page_size, include_children=True)
    assert old.run_id in {run.id for run in await pages(coordinator.ListRuns, request)}
    request = runs.ListGatesRequest(page_size=page_size, run_id=old.run_id)
    assert len(await pages(coordinator.ListGates, request)) == 1


async def test_single_records_of_an_old_folder_can_be_read(old: Old) -> None:
    turns = await pages(old.client.conversations.ListTurns, pb.ListTurnsRequest(conversation_id=old.conv))
    for turn in turns:
        await old.client.conversations.GetTurn(pb.GetTurnRequest(turn_id=turn.id))
    await old.client.conversations.GetConversation(pb.GetConversationRequest(conversation_id=old.conv))
    run = (await old.client.coordinator.GetRun(runs.GetRunRequest(run_id=old.run_id))).run
    assert run.id == old.run_id and run.output.fields["text"].string_value.startswith("漢字")


@pytest.mark.parametrize("group_events", [False, True])
async def test_a_stream_shows_every_event_of_an_old_folder(old: Old, group_events: bool) -> None:
    attach = pb.ConverseAttach(conversation_id=old.conv, group_events=group_events)
    stream = old.client.conversations.Subscribe(pb.SubscribeRequest(attach=attach))
    sequence = 0
    async for word in stream:
        for event in word.events.events if word.HasField("events") else [word.event]:
            if word.HasField("event") or word.HasField("events"):
                assert event.sequence == sequence + 1
                sequence = event.sequence
        if word.HasField("caught_up"):
            break
    stream.cancel()
    assert sequence > len(CONVERSATION.event_types)

    watch = old.client.coordinator.WatchRun(
        runs.WatchRunRequest(run_id=old.run_id, after_sequence=old.run_ended, group_events=group_events)
    )
    words = [word async for word in watch]
    seen = [event for word in words for event in (word.events.events or [word.event])]
    kinds = {event.WhichOneof("payload") for event in seen}
    assert kinds >= RUN.event_types.keys() - RUN_ENDED


async def test_the_conversation_of_an_old_folder_goes_on(old: Old) -> None:
    request = pb.GetConversationRequest(conversation_id=old.conv)
    head = (await old.client.conversations.GetConversation(request)).conversation.last_sequence
    said = await old.client.say(old.conv, "say 2 words")
    view = await old.client.settled(old.conv, said.turn.id, View(cursor=head))
    assert view.text() == "word1 word2"


async def test_lists_of_large_memories_definitions_and_documents_fit(old: Old) -> None:
    """Clients store memories, definitions and documents of the maximum size, in multi-byte text."""
    memory, shelf = old.client.memory, old.client.library
    text = "漢" * (1_000_000 // 3)
    for number in range(4):
        content = {"content": f"{number} {text}", "type": "fact"}
        await memory.WriteMemory(memories.WriteMemoryRequest(agent_id="assistant", memory=content))
    request = memories.ListMemoriesRequest(agent_id="assistant", page_size=500)
    assert len(await pages(memory.ListMemories, request)) == 4
    search = memories.SearchMemoriesRequest(agent_id="assistant", query="漢漢漢 0 1 2 3", limit=100)
    assert (await memory.SearchMemories(search)).hits
    for number in range(4):
        persona = {
            "name": f"p{number}",
            "persona": {"system_prompt": text[:60_000], "instructions": [text[:60_000]] * 4},
        }
        await old.client.apply("large/one", json.dumps(persona, ensure_ascii=False))
    for method, listing in (
        (shelf.ListDefinitions, library.ListDefinitionsRequest(library_id="large/one")),
        (shelf.ExportDefinitions, library.ExportDefinitionsRequest(library_id="large/one")),
    ):
        assert len(await pages(method, listing)) == 4
    for number in range(3):
        document = library.WriteArtifactRequest(
            project_id="default", path=f"{number}.txt", content=f"needle {text}\n".encode() * 3
        )
        await shelf.WriteArtifact(document)
    assert len(await pages(shelf.ListArtifacts, library.ListArtifactsRequest(project_id="default"))) == 3
    found = await shelf.SearchArtifacts(
        library.SearchArtifactsRequest(project_id="default", query="needle", limit=100)
    )
    assert found.matches
