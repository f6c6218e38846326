"""A fake conversation that plays a script over a real socket and disconnects on request of the test.

It follows the contract of `Converse`. A client that attaches receives ``attached``, the events after its
cursor, the text of unfinished messages, ``caught_up``, then each further step. A step happens once,
regardless of the number of clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
import grpc.aio

from wonder.v1 import conversation_pb2 as conversation
from wonder.v1 import conversation_service_pb2 as service
from wonder.v1 import conversation_service_pb2_grpc as rpc
from wonder.v1 import coordinator_service_pb2_grpc as coordinator_rpc
from wonder.v1 import errors_pb2 as errors
from wonder.v1 import event_pb2 as events
from wonder.v1 import library_service_pb2_grpc as library_rpc

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

CONVERSATION = "conv_1"
TURN = "turn_1"
Response = service.ConverseResponse


def event(sequence: int, name: str, turn_id: str = TURN, **payload: object) -> service.ConverseResponse:
    return Response(
        event=events.Event(
            sequence=sequence, conversation_id=CONVERSATION, turn_id=turn_id, name=name, **payload
        )
    )


def delta(offset: int, text: str, message_id: str = "msg_a", turn_id: str = TURN) -> service.ConverseResponse:
    return Response(
        delta=service.MessageDelta(message_id=message_id, turn_id=turn_id, offset=offset, text=text)
    )


def restarted(attempt: int, message_id: str = "msg_a") -> service.ConverseResponse:
    return Response(
        message_restarted=service.MessageRestarted(message_id=message_id, turn_id=TURN, attempt=attempt)
    )


def message_event(
    sequence: int, content: str, message_id: str = "msg_a", turn_id: str = TURN
) -> service.ConverseResponse:
    message = conversation.Message(
        id=message_id, turn_id=turn_id, role=conversation.MESSAGE_ROLE_AGENT, content=content
    )
    return event(sequence, "message.appended", turn_id, message_appended=message)


def completed(sequence: int, turn_id: str = TURN) -> service.ConverseResponse:
    turn = conversation.Turn(id=turn_id, ordinal=1, status=conversation.TURN_STATUS_COMPLETED, move_count=2)
    return event(sequence, "turn.completed", turn_id, turn_completed=turn)


def a_turn() -> list[service.ConverseResponse]:
    """Return the script of a turn with text, a tool call, a restart, non-ASCII text and later events."""
    call = conversation.ToolCall(id="call_1", tool_name="recall")
    call.input.update({"query": "the cat"})
    result = conversation.ToolResult(tool_call_id="call_1", success=True)
    result.result.string_value = "Mia"
    return [
        event(2, "conversation_turn", conversation_turn=conversation.Turn(id=TURN, ordinal=1)),
        event(3, "context_assembly.completed"),
        delta(0, "Let me "),
        delta(7, "look … "),
        message_event(4, "Let me look … "),
        event(5, "move.recorded", move_recorded=conversation.Move(id="move_1", turn_id=TURN)),
        event(6, "tool.dispatched", tool_dispatched=events.ToolDispatched(tool_call=call)),
        event(
            7,
            "tool.completed",
            tool_completed=events.ToolOutcome(
                tool_call=conversation.ToolCall(id="call_1", tool_name="recall"), tool_result=result
            ),
        ),
        delta(0, "Your dog", "msg_b"),
        restarted(2, "msg_b"),
        delta(0, "Your cät 🐈", "msg_b"),
        delta(10, " is ", "msg_b"),
        delta(14, "Mia.", "msg_b"),
        message_event(8, "Your cät 🐈 is Mia.", "msg_b"),
        completed(9),
        event(
            10, "memory_extraction.completed", memory_extraction_completed=events.HookOutcome(run_id="run_1")
        ),
    ]


TEXTS = {"msg_a": "Let me look … ", "msg_b": "Your cät 🐈 is Mia."}


class StopStream(Exception):
    """End the stream with status OK."""


@dataclass
class FakeConversation(rpc.ConversationServiceServicer):
    """``hang_up_after``: how many messages each connection in turn gets before it breaks; None: it
    does not. ``while_away``: how many steps happen whenever a connection broke. ``together``: how many
    events of the past come in one message."""

    script: list[service.ConverseResponse] = field(default_factory=a_turn)
    hang_up_after: list[int | None] = field(default_factory=list)
    while_away: int = 0
    together: int = 1
    refuse: dict[str, errors.Fault] = field(default_factory=dict)
    sent_delay: int = 0
    break_with: Callable[[Context], object] | None = None
    agents: tuple[str, ...] = ("assistant",)

    connections: int = 0
    requests: list[object] = field(default_factory=list)
    started: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.past: list[service.ConverseResponse] = [event(1, "conversation_started", "")]
        self.changed = asyncio.Condition()

    async def advance(self, steps: int = 1) -> None:
        """Play this many steps once a message has started the script."""
        async with self.changed:
            if self.started:
                now = len(self.past) - 1
                self.past += self.script[now : now + steps]
            self.changed.notify_all()

    @property
    def head(self) -> int:
        return max((step.event.sequence for step in self.past if step.HasField("event")), default=0)

    async def CreateConversation(
        self, request: service.CreateConversationRequest, context: Context
    ) -> service.CreateConversationResponse:
        self.requests.append(request)
        return service.CreateConversationResponse(conversation=conversation.Conversation(id=CONVERSATION))

    async def GetConversation(
        self, request: service.GetConversationRequest, context: Context
    ) -> service.GetConversationResponse:
        return service.GetConversationResponse(conversation=conversation.Conversation(id=CONVERSATION))

    async def SendMessage(
        self, request: service.SendMessageRequest, context: Context
    ) -> service.SendMessageResponse:
        self.requests.append(request)
        return service.SendMessageResponse(message=conversation.Message(id="msg_posted"))

    async def PreviewContext(
        self, request: service.PreviewContextRequest, context: Context
    ) -> service.PreviewContextResponse:
        output = service.ContextBlock(
            path="/messages/1/content",
            source=service.CONTEXT_SOURCE_MESSAGE,
            excerpt=request.send.content,
            tokens=3,
        )
        prompt = service.ContextBlock(
            path="/messages/0/content",
            source=service.CONTEXT_SOURCE_MEMORY,
            source_id="mem_1",
            excerpt="x\ny" * 40,
        )
        return service.PreviewContextResponse(
            provider="offline",
            model="m",
            extraction_model=service.SideModel(model_profile="a/cheap@2", provider="offline", model="s"),
            blocks=[prompt, output],
            input_tokens=1234,
            context_window_tokens=8000,
            tool_sources=[
                service.ToolSourceState(mcp="files", tool_count=2, tools_hash="0a1b", notices=["It is slow."])
            ],
        )

    async def Subscribe(
        self, request: service.SubscribeRequest, context: Context
    ) -> AsyncIterator[service.SubscribeResponse]:
        async for response in self._serve(request.attach, context, None):
            yield service.SubscribeResponse.FromString(response.SerializeToString())

    async def Converse(
        self, requests: AsyncIterator[service.ConverseRequest], context: Context
    ) -> AsyncIterator[service.ConverseResponse]:
        first = await anext(aiter(requests))
        self.requests.append(first)
        answers: asyncio.Queue[service.ConverseResponse] = asyncio.Queue()
        listener = asyncio.create_task(self._listen(requests, answers))
        try:
            async for response in self._serve(first.attach, context, answers):
                yield response
        finally:
            listener.cancel()

    async def _listen(
        self,
        requests: AsyncIterator[service.ConverseRequest],
        answers: asyncio.Queue[service.ConverseResponse],
    ) -> None:
        async for request in requests:
            self.requests.append(request)
            match request.WhichOneof("intent"):
                case "send":
                    self._take(request.send.request_id, answers)
                case "cancel" if TURN in self.refuse:
                    refused = service.ConverseRefused(
                        request_id=request.cancel.request_id, error=self.refuse[TURN]
                    )
                    answers.put_nowait(Response(refused=refused))
                case "cancel":
                    answers.put_nowait(
                        Response(
                            cancelled=service.ConverseCancelled(
                                request_id=request.cancel.request_id, turn_id=request.cancel.turn_id
                            )
                        )
                    )
                case "detach":
                    answers.put_nowait(
                        Response(end=service.StreamEnd(reason=service.STREAM_END_REASON_DETACHED))
                    )
            async with self.changed:
                self.changed.notify_all()

    def _take(self, request_id: str, answers: asyncio.Queue[service.ConverseResponse]) -> None:
        if request_id in self.refuse:
            refused = service.ConverseRefused(request_id=request_id, error=self.refuse[request_id])
            answers.put_nowait(Response(refused=refused))
            return
        if request_id not in self.started:
            self.started.append(request_id)
        sent = service.ConverseSent(request_id=request_id, turn_id=TURN, message_id="msg_0", sequence=2)
        answers.put_nowait(Response(sent=sent))

    async def _serve(
        self, attach: object, context: Context, answers: asyncio.Queue[service.ConverseResponse] | None
    ) -> AsyncIterator[service.ConverseResponse]:
        limit = self.hang_up_after[self.connections] if self.connections < len(self.hang_up_after) else None
        self.connections += 1
        count = 0
        async for response in self._responses(attach, answers):
            if count == limit:
                await self.advance(self.while_away)
                try:
                    await self._hang_up(context)
                except StopStream:
                    return
            count += 1
            yield response
            if response.HasField("end"):
                return

    async def _hang_up(self, context: Context) -> None:
        if self.break_with is not None:
            await self.break_with(context)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the line is cut")

    async def _responses(
        self, attach: object, answers: asyncio.Queue[service.ConverseResponse] | None
    ) -> AsyncIterator[service.ConverseResponse]:
        known = conversation.Conversation(id=attach.conversation_id)
        for number, name in enumerate(self.agents, 1):
            agent = conversation.AgentParticipant(agent_id=f"agt_{number}", name=name)
            known.participants.add().agent.CopyFrom(agent)
        yield Response(attached=service.ConverseAttached(conversation=known, last_sequence=self.head))
        cursor = self.head if attach.tail_only else attach.after_sequence
        position = len(self.past)
        known_events = [step for step in self.past[:position] if step.event.sequence > cursor]
        for at in range(0, len(known_events), self.together):
            yield grouped(known_events[at : at + self.together])
        for step in text_so_far(self.past[:position]):
            yield step
        yield Response(caught_up=service.CaughtUp(sequence=self.head))
        while True:
            late = self.sent_delay and position <= self.sent_delay
            while answers is not None and not answers.empty() and not late:
                yield answers.get_nowait()
            if position < len(self.past):
                position += 1
                yield self.past[position - 1]
            elif self.started and len(self.past) <= len(self.script):
                await self.advance()
            else:
                async with self.changed:
                    if answers is None or answers.empty():
                        await self.changed.wait()


def grouped(steps: list[service.ConverseResponse]) -> service.ConverseResponse:
    """Return events as one message."""
    if len(steps) == 1:
        return steps[0]
    return Response(events=service.EventGroup(events=[step.event for step in steps]))


def text_so_far(past: list[service.ConverseResponse]) -> list[service.ConverseResponse]:
    """Return the text of each unfinished message as one delta."""
    texts: dict[str, str] = {}
    for step in past:
        match step.WhichOneof("item"):
            case "delta":
                texts[step.delta.message_id] = texts.get(step.delta.message_id, "") + step.delta.text
            case "message_restarted":
                texts[step.message_restarted.message_id] = ""
            case "event":
                texts.pop(step.event.message_appended.id, None)
    return [delta(0, text, message_id) for message_id, text in texts.items()]


class Health(grpc.GenericRpcHandler):
    """A ``grpc.health.v1`` service that always reports SERVING."""

    def service(self, details: Any) -> Any:
        if details.method != "/grpc.health.v1.Health/Check":
            return None

        async def check(request: bytes, context: Context) -> bytes:
            if request not in (b"", b"\n\x18wonder.v1.LibraryService"):
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
            return b"\x08\x01"

        return grpc.unary_unary_rpc_method_handler(check)


@asynccontextmanager
async def serving(
    fake: rpc.ConversationServiceServicer | None = None,
    library: library_rpc.LibraryServiceServicer | None = None,
    coordinator: coordinator_rpc.CoordinatorServiceServicer | None = None,
    *,
    address: str = "127.0.0.1:0",
) -> AsyncIterator[str]:
    """Serve on a free port, or where a server was before; the address."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    if fake is not None:
        rpc.add_ConversationServiceServicer_to_server(fake, server)
    if library is not None:
        library_rpc.add_LibraryServiceServicer_to_server(library, server)
    if coordinator is not None:
        coordinator_rpc.add_CoordinatorServiceServicer_to_server(coordinator, server)
    server.add_generic_rpc_handlers((Health(),))
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
