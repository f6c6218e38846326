"""Client of a server under test: stubs, and a reader that checks the guarantees of the stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml
from google.protobuf.struct_pb2 import Struct
from grpc import aio
from grpc_health.v1 import health_pb2_grpc

from wonder.v1 import (
    backup_service_pb2_grpc,
    conversation_service_pb2_grpc,
    coordinator_service_pb2_grpc,
    event_pb2,
    executor_service_pb2_grpc,
    file_service_pb2_grpc,
    identity_service_pb2_grpc,
    library_service_pb2_grpc,
    memory_service_pb2_grpc,
)
from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import definition_pb2 as definition
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memory
from wonder_server.rpc.library.documents import fill_from_document

PATIENCE_S = 90
"""Time after which a test is taken to hang. Far above what anything takes on a machine under load."""

TURN_ENDS = ("turn.completed", "turn.failed", "turn.cancelled")
EXTRACTION_ENDS = ("memory_extraction.completed", "memory_extraction.failed")


@dataclass
class View:
    """A client's picture of a conversation, made of what its streams said.

    Holds every stream to the contract: events in sequence, each once; deltas without a hole; a message's
    streamed text what the record says in the end.
    """

    cursor: int = 0
    events: list[event_pb2.Event] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Streamed text by message, of those not yet in the record."""
    parts: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """Streamed reasoning and arguments by message, kind and position of the tool call."""
    messages: dict[str, conversation.Message] = field(default_factory=dict)
    restarts: dict[str, list[int]] = field(default_factory=dict)
    words: list[Any] = field(default_factory=list)
    """Everything that came, in order."""
    stale: set[str] = field(default_factory=set)
    """Messages whose text began on an earlier stream and has not continued on this one."""
    gapless: bool = True
    """False for the stream of one turn, between whose events those of other turns are missing."""

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]

    def text(self) -> str:
        """Return the text of the agents' messages, unfinished messages last."""
        said = [m.content for m in self.messages.values() if m.role == conversation.MESSAGE_ROLE_AGENT]
        return "\n".join([*said, *self.texts.values()])

    def of_turn(self, turn_id: str) -> list[str]:
        return [event.name for event in self.events if event.turn_id == turn_id]

    def settled(self, turn_id: str) -> bool:
        """Return True if the turn and its memory extraction have ended."""
        events = [event for event in self.events if event.turn_id == turn_id]
        if any(event.turn_completed.memory_extraction_run_id for event in events):
            return any(event.name in EXTRACTION_ENDS for event in events)
        return any(event.name in TURN_ENDS for event in events)

    def attached(self) -> None:
        """A new stream begins: what is half-said may meanwhile have been said differently."""
        self.stale = set(self.texts)

    def take(self, word: Any) -> None:
        kind = word.WhichOneof("item")
        item = getattr(word, kind)
        self.words.append(word)
        if kind == "event":
            self._event(item)
        elif kind == "events":
            assert 2 <= len(item.events) <= 100
            for event in item.events:
                self._event(event)
        elif kind == "message_restarted":
            self.restarts.setdefault(item.message_id, []).append(item.attempt)
            self.texts[item.message_id] = ""
            for key in [key for key in self.parts if key[0] == item.message_id]:
                del self.parts[key]
            self.stale.discard(item.message_id)
        elif kind == "delta" and item.kind:
            key = (item.message_id, pb.DeltaKind.Name(item.kind), item.tool_call_index)
            known = self.parts.get(key, "")
            assert item.offset <= len(known), f"a hole before {item.offset} of {key}: {known!r}"
            self.parts[key] = known + item.text[len(known) - item.offset :]
        elif kind == "delta":
            assert item.message_id not in self.messages, "text of a message that is complete"
            known = self.texts.get(item.message_id, "")
            self.stale.discard(item.message_id)
            assert item.offset <= len(known), f"a hole before {item.offset}: {known!r}"
            self.texts[item.message_id] = known + item.text[len(known) - item.offset :]
        elif kind in ("caught_up", "end"):
            last = item.sequence if kind == "caught_up" else item.resume_after_sequence
            assert last == self.cursor, f"{kind} says {last}, seen up to {self.cursor}"

    def _event(self, event: event_pb2.Event) -> None:
        follows = event.sequence == self.cursor + 1 or (not self.gapless and event.sequence > self.cursor)
        assert follows, f"{event.sequence} after {self.cursor}"
        self.cursor = event.sequence
        self.events.append(event)
        if event.WhichOneof("payload") == "message_appended":
            message = event.message_appended
            streamed = self.texts.pop(message.id, None)
            if streamed is not None and message.id not in self.stale:
                assert streamed == message.content
            assert message.id not in self.messages
            self.messages[message.id] = message


class Client:
    """Stubs of all services, and the sentences that tests say most."""

    def __init__(self, channel: aio.Channel) -> None:
        self.channel = channel
        self.conversations = conversation_service_pb2_grpc.ConversationServiceStub(channel)
        self.coordinator = coordinator_service_pb2_grpc.CoordinatorServiceStub(channel)
        self.executor = executor_service_pb2_grpc.ExecutorServiceStub(channel)
        self.library = library_service_pb2_grpc.LibraryServiceStub(channel)
        self.files = file_service_pb2_grpc.FileServiceStub(channel)
        self.backups = backup_service_pb2_grpc.BackupServiceStub(channel)
        self.memory = memory_service_pb2_grpc.MemoryServiceStub(channel)
        self.identity = identity_service_pb2_grpc.IdentityServiceStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)

    async def open(self, agent: str = "assistant", request_id: str = "", **fields: Any) -> str:
        """Create a conversation with an agent; return its id."""
        participants = [conversation.Participant(agent=conversation.AgentParticipant(agent_id=agent))]
        conv = conversation.Conversation(participants=participants, **fields)
        request = pb.CreateConversationRequest(conversation=conv, request_id=request_id)
        answer = await self.conversations.CreateConversation(request)
        return str(answer.conversation.id)

    async def say(self, conversation_id: str, text: str, request_id: str = "") -> pb.SendMessageResponse:
        send = pb.ConverseSend(content=text, request_id=request_id)
        request = pb.SendMessageRequest(conversation_id=conversation_id, send=send)
        answer: pb.SendMessageResponse = await self.conversations.SendMessage(request)
        return answer

    @asynccontextmanager
    async def listening(
        self,
        conversation_id: str,
        view: View | None = None,
        *,
        group_events: bool = False,
        delta_kinds: Collection[pb.DeltaKind] = (),
    ) -> AsyncIterator[Listener]:
        """Subscribe from the cursor of ``view``."""
        view = View() if view is None else view
        view.attached()
        attach = pb.ConverseAttach(
            conversation_id=conversation_id,
            after_sequence=view.cursor,
            group_events=group_events,
            delta_kinds=delta_kinds,
        )
        call = self.conversations.Subscribe(pb.SubscribeRequest(attach=attach))
        try:
            yield Listener(call, view)
        finally:
            call.cancel()

    async def settled(self, conversation_id: str, turn_id: str, view: View | None = None) -> View:
        """Wait until the turn has ended and its memory is extracted; return the view."""
        async with self.listening(conversation_id, view) as listener:
            await listener.until(lambda v: v.settled(turn_id))
        return listener.view

    async def turn(self, conversation_id: str, text: str) -> tuple[conversation.Turn, View]:
        """Send a message and wait for its end; return the ended turn and the view."""
        async with self.listening(conversation_id) as listener:
            await listener.until(lambda v: v.words and v.words[-1].HasField("caught_up"))
            said = await self.say(conversation_id, text)
            await listener.until(lambda v: v.settled(said.turn.id))
        request = pb.GetTurnRequest(turn_id=said.turn.id)
        return (await self.conversations.GetTurn(request)).turn, listener.view

    async def events(self, conversation_id: str) -> list[event_pb2.Event]:
        """Return all events of the conversation, page by page."""
        found: list[event_pb2.Event] = []
        token = ""
        while True:
            request = pb.ListEventsRequest(conversation_id=conversation_id, page_size=7, page_token=token)
            page = await self.conversations.ListEvents(request)
            found += page.events
            token = page.next_page_token
            if not token:
                return found

    async def decisions(
        self, conversation_id: str, turn_id: str = "", *, page_size: int = 7, types: Sequence[str] = ()
    ) -> list[pb.Decision]:
        """Return the recorded decisions of the conversation or the turn, page by page."""
        found: list[pb.Decision] = []
        request = pb.ListDecisionsRequest(
            conversation_id=conversation_id, turn_id=turn_id, page_size=page_size, types=types
        )
        while True:
            page = await self.conversations.ListDecisions(request)
            found += page.decisions
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return found

    async def moves(self, turn_id: str, conversation_id: str) -> list[conversation.Move]:
        request = pb.ListMovesRequest(turn_id=turn_id, conversation_id=conversation_id, oldest_first=True)
        return list((await self.conversations.ListMoves(request)).moves)

    async def all_conversations(self) -> list[conversation.Conversation]:
        request = pb.ListConversationsRequest(page_size=100)
        return list((await self.conversations.ListConversations(request)).conversations)

    async def messages(self, conversation_id: str) -> list[conversation.Message]:
        request = pb.ListMessagesRequest(conversation_id=conversation_id, oldest_first=True)
        return list((await self.conversations.ListMessages(request)).messages)

    async def memories(self, agent: str = "assistant") -> list[str]:
        answer = await self.memory.ListMemories(memory.ListMemoriesRequest(agent_id=agent, page_size=100))
        return [item.content for item in answer.memories]

    async def apply(self, library_name: str, documents: str) -> None:
        """Apply definitions from YAML."""
        definitions = []
        for document in yaml.safe_load_all(documents):
            definitions.append(definition.Definition())
            fill_from_document(definitions[-1], document)
        request = library.ApplyDefinitionsRequest(library=library_name, definitions=definitions)
        await self.library.ApplyDefinitions(request)

    async def agent(self, name: str, persona: str) -> str:
        """Create an agent of a persona; return its id."""
        request = library.CreateAgentRequest()
        request.agent.name = name
        request.agent.persona_id = persona
        return str((await self.library.CreateAgent(request)).agent.id)


class Listener:
    """An open stream, read into a `View`."""

    def __init__(self, call: Any, view: View) -> None:
        self._call = call
        self.view = view

    async def until(self, condition: Callable[[View], Any], patience_s: float = PATIENCE_S) -> View:
        """Read until ``condition`` holds."""
        async with asyncio.timeout(patience_s):
            while not condition(self.view):
                word = await self._call.read()
                assert word is not aio.EOF, f"the stream ended: {self.view.names}"
                self.view.take(word)
        return self.view

    async def rest(self) -> View:
        """Read to the stream's end."""
        async with asyncio.timeout(PATIENCE_S):
            while (word := await self._call.read()) is not aio.EOF:
                self.view.take(word)
        return self.view

    async def send(self, request: pb.ConverseRequest) -> None:
        await self._call.write(request)


def struct(**fields: Any) -> Struct:
    made = Struct()
    made.update(fields)
    return made


async def all_of(work: Iterable[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*work))
