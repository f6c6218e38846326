"""A whole server in memory, on virtual time: no port, no connection, no thread, no data folder."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from tests.process.virtual_platform import START_MS, VirtualTime, run_virtual, virtual_platform
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as run_service
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import run_pb2 as run_pb
from wonder_server.adapters.egress.proxy import Egress
from wonder_server.adapters.in_memory.journal import MemoryShards
from wonder_server.compose import Application, open_application
from wonder_server.compose.clients import Clients
from wonder_server.compose.git import ExecutorFactory
from wonder_server.compose.stores import Stores
from wonder_server.ports.failpoints import Failpoints
from wonder_server.ports.journal import Entry
from wonder_server.rpc.conversation.servicer import ConversationServicer
from wonder_server.rpc.coordinator.servicer import CoordinatorServicer
from wonder_server.rpc.library.documents import fill_from_document
from wonder_server.rpc.library.servicer import LibraryServicer
from wonder_server.settings import Settings

NOWHERE = Settings(data_dir=Path("/nowhere"))
"""Settings of a server that has no data folder."""

SLOW_PROFILE = {
    "name": "second",
    "model_profile": {
        "provider": "offline",
        "model": "offline",
        "parameters": {"token_delay_ms": 1_000},
    },
}
WAITING_WORKFLOW = {
    "name": "day",
    "workflow": {"nodes": [{"id": "wait", "wait": {"duration_ms": 86_400_000}}]},
}
SLOW_PERSONA = {"name": "speaker", "persona": {"system_prompt": "Speak.", "model_profile_id": "second"}}


class Call:
    """The context of a call without metadata."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> tuple[()]:
        return ()


def conversations(app: Application) -> ConversationServicer:
    servicer = app.servicers["wonder.v1.ConversationService"]
    assert isinstance(servicer, ConversationServicer)
    return servicer


def libraries(app: Application) -> LibraryServicer:
    servicer = app.servicers["wonder.v1.LibraryService"]
    assert isinstance(servicer, LibraryServicer)
    return servicer


async def create_conversation(app: Application, agent_id: str = "assistant") -> str:
    """Create a conversation with an agent and return its id."""
    participant = conversation.Participant(agent=conversation.AgentParticipant(agent_id=agent_id))
    request = pb.CreateConversationRequest(conversation=conversation.Conversation(participants=[participant]))
    return str((await conversations(app).create_conversation(request, Call())).conversation.id)


async def send(app: Application, conversation_id: str, content: str) -> str:
    """Send a message and return the id of its turn."""
    request = pb.SendMessageRequest(conversation_id=conversation_id, send=pb.ConverseSend(content=content))
    return str((await conversations(app).send_message(request, Call())).turn.id)


async def get_turn(app: Application, turn_id: str) -> conversation.Turn:
    found: conversation.Turn = (
        await conversations(app).get_turn(pb.GetTurnRequest(turn_id=turn_id), Call())
    ).turn
    return found


async def messages(app: Application, conversation_id: str) -> list[str]:
    request = pb.ListMessagesRequest(conversation_id=conversation_id, oldest_first=True)
    return [each.content for each in (await conversations(app).list_messages(request, Call())).messages]


async def apply(app: Application, *documents: Mapping[str, object]) -> None:
    """Save definitions in the library ``test``."""
    request = library.ApplyDefinitionsRequest(library="test")
    for document in documents:
        fill_from_document(request.definitions.add(), document)
    await libraries(app).apply_definitions(request, Call())


async def create_slow_agent(app: Application) -> str:
    """Create an agent that pauses for a second before each token but the first, and return its id."""
    await apply(app, SLOW_PROFILE, SLOW_PERSONA)
    create = library.CreateAgentRequest()
    create.agent.name = "slow"
    create.agent.persona_id = "test/speaker"
    return str((await libraries(app).create_agent(create, Call())).agent.id)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that binds or connects a socket."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("A server in memory needs no socket.")

    for name in ("bind", "connect", "connect_ex", "listen"):
        monkeypatch.setattr(socket.socket, name, refuse)


def test_a_server_in_memory_completes_a_turn_without_threads() -> None:
    threads = threading.active_count()

    async def story(time: VirtualTime) -> None:
        async with open_application(NOWHERE, virtual_platform(time)) as app:
            conversation_id = await create_conversation(app)
            turn_id = await send(app, conversation_id, "say 3 words")
            await time.advance(1)
            turn = await get_turn(app, turn_id)
            assert turn.status == conversation.TURN_STATUS_COMPLETED
            assert await messages(app, conversation_id) == ["say 3 words", "word1 word2 word3"]
            # A thread of an earlier test may end meanwhile.
            assert threading.active_count() <= threads
            await app.drain(10)

    run_virtual(story)
    assert not NOWHERE.data_dir.exists()


def test_time_passes_only_as_the_test_moves_it() -> None:
    async def story(time: VirtualTime) -> None:
        async with open_application(NOWHERE, virtual_platform(time)) as app:
            conversation_id = await create_conversation(app, await create_slow_agent(app))
            turn_id = await send(app, conversation_id, "say 3 words")
            await time.advance(1.9)
            assert (await get_turn(app, turn_id)).status == conversation.TURN_STATUS_ACTIVE
            await time.advance(0.2)
            turn = await get_turn(app, turn_id)
            assert turn.status == conversation.TURN_STATUS_COMPLETED
            assert turn.complete_time.ToMilliseconds() == START_MS + 2_000

    run_virtual(story)


def test_a_run_that_waits_for_a_day_ends_when_the_test_moves_a_day() -> None:
    async def story(time: VirtualTime) -> None:
        async with open_application(NOWHERE, virtual_platform(time)) as app:
            await apply(app, WAITING_WORKFLOW)
            coordinator = app.servicers["wonder.v1.CoordinatorService"]
            assert isinstance(coordinator, CoordinatorServicer)
            request = run_service.StartRunRequest(workflow_id="test/day")
            run_id = (await coordinator.start_run(request, Call())).run.id
            await time.advance(86_399)
            get = run_service.GetRunRequest(run_id=run_id)
            assert (await coordinator.get_run(get, Call())).run.status == run_pb.RUN_STATUS_WAITING
            await time.advance(2)
            assert (await coordinator.get_run(get, Call())).run.status == run_pb.RUN_STATUS_COMPLETED

    run_virtual(story)


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[tuple[str, list[Entry]]]:
        shards = MemoryShards()

        async def story(time: VirtualTime) -> None:
            async with open_application(NOWHERE, virtual_platform(time, shards, seed)) as app:
                await send(app, await create_conversation(app), "say 3 words")
                await time.advance(1)

        run_virtual(story)
        return [(actor.id, actor.entries) for actor in shards.journal.actors.values()]

    first = history(1)
    assert first == history(1)
    assert first != history(2)


def test_an_application_resumes_the_turns_of_the_one_before() -> None:
    shards = MemoryShards()

    async def story(time: VirtualTime) -> None:
        async with open_application(NOWHERE, virtual_platform(time, shards, seed=1)) as app:
            conversation_id = await create_conversation(app, await create_slow_agent(app))
            turn_id = await send(app, conversation_id, "say 3 words")
            await time.advance(1)
            await app.drain(10)
        async with open_application(NOWHERE, virtual_platform(time, shards, seed=2)) as app:
            assert (await get_turn(app, turn_id)).status == conversation.TURN_STATUS_ACTIVE
            await time.advance(3)
            assert (await get_turn(app, turn_id)).status == conversation.TURN_STATUS_COMPLETED

    run_virtual(story)


def test_what_an_application_opened_is_closed_in_reverse_order_after_its_work() -> None:
    steps = run_virtual(lambda time: _recorded_steps(time, fails=False))
    assert steps == ["open stores", "open clients", "serve", "close clients", "close stores"]


def test_a_start_that_fails_closes_what_it_opened() -> None:
    assert run_virtual(lambda time: _recorded_steps(time, fails=True)) == ["open stores", "close stores"]


async def _recorded_steps(time: VirtualTime, *, fails: bool) -> list[str]:
    """Open an application, whose clients may fail, and return the steps in order."""
    steps: list[str] = []
    platform = virtual_platform(time)

    @asynccontextmanager
    async def open_stores(
        settings: Settings, egress: Egress, failpoints: Failpoints
    ) -> AsyncIterator[Stores]:
        async with platform.open_stores(settings, egress, failpoints) as stores:
            steps.append("open stores")
            try:
                yield stores
            finally:
                steps.append("close stores")

    @asynccontextmanager
    async def open_clients(
        settings: Settings, egress: Egress, new_executor: ExecutorFactory
    ) -> AsyncIterator[Clients]:
        if fails:
            raise OSError("no clients")
        async with platform.open_clients(settings, egress, new_executor) as clients:
            steps.append("open clients")
            try:
                yield clients
            finally:
                steps.append("close clients")

    changed = replace(platform, open_stores=open_stores, open_clients=open_clients)
    with contextlib.suppress(OSError):
        async with open_application(NOWHERE, changed):
            steps.append("serve")
    return steps
