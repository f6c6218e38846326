"""The client of the load: plain grpc.aio, with as little work as possible for each message."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self, TypeAlias

from google.protobuf import json_format
from grpc import aio

from wonder.v1 import conversation_service_pb2 as conversation_pb
from wonder.v1 import conversation_service_pb2_grpc as conversation_grpc
from wonder.v1 import coordinator_service_pb2 as coordinator_pb
from wonder.v1 import coordinator_service_pb2_grpc as coordinator_grpc
from wonder.v1 import executor_service_pb2 as executor_pb
from wonder.v1 import executor_service_pb2_grpc as executor_grpc
from wonder.v1 import library_service_pb2 as library_pb
from wonder.v1 import library_service_pb2_grpc as library_grpc
from wonder.v1 import memory_service_pb2_grpc as memory_grpc
from wonder.v1 import run_pb2 as run_pb
from wonder_server.core.json_types import JsonDict

Call: TypeAlias = aio.StreamStreamCall[object, bytes]
ConverseResponse: TypeAlias = conversation_pb.ConverseResponse

CHANNELS = 8
"""Number of connections of the load."""

LIBRARY = "bench"
WAIT_MS = 300_000
_CONVERSE = "/wonder.v1.ConversationService/Converse"
TURN_ENDS = frozenset({"turn_completed", "turn_failed", "turn_cancelled"})
RUN_ENDED = frozenset({"workflow_completed", "workflow_failed", "workflow_cancelled"})


def open_channels(address: str) -> list[aio.Channel]:
    return [
        aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(CHANNELS)
    ]


class Client:
    """Stubs of a Wonder server over several connections. A context manager."""

    def __init__(self, address: str) -> None:
        self._channels = open_channels(address)
        self.conversations = [conversation_grpc.ConversationServiceStub(each) for each in self._channels]
        self.coordinators = [coordinator_grpc.CoordinatorServiceStub(each) for each in self._channels]
        self.executors = [executor_grpc.ExecutorServiceStub(each) for each in self._channels]
        self.library = library_grpc.LibraryServiceStub(self._channels[0])
        self.memory = memory_grpc.MemoryServiceStub(self._channels[0])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()

    async def apply(self, definitions: list[JsonDict]) -> None:
        """Save definitions, given in the JSON form of the contract, in the library `LIBRARY`."""
        request = {"library": LIBRARY, "definitions": definitions}
        await self.library.ApplyDefinitions(
            json_format.ParseDict(request, library_pb.ApplyDefinitionsRequest())
        )

    async def agent(
        self,
        name: str,
        *,
        token_delay_ms: int = 0,
        profile: JsonDict | None = None,
        persona: JsonDict | None = None,
    ) -> str:
        """Create an agent and return its id.

        It has the workflows of the standard persona and the offline model, unless ``persona`` or ``profile``
        replace them.
        """
        offline = {
            "provider": "offline",
            "model": "offline",
            "parameters": {"token_delay_ms": token_delay_ms},
        }
        plain = {"system_prompt": "You speak.", "model_profile_id": f"{name}-model"}
        await self.apply(
            [
                {"name": f"{name}-model", "model_profile": profile or offline},
                {"name": name, "persona": {**plain, **(persona or {})}},
            ]
        )
        request = {"agent": {"name": name, "persona_id": f"{LIBRARY}/{name}"}}
        made = await self.library.CreateAgent(json_format.ParseDict(request, library_pb.CreateAgentRequest()))
        return str(made.agent.id)

    async def conversation(self, agent_id: str) -> str:
        """Create a conversation between the agent and one user, and return its id."""
        people = [{"agent": {"agent_id": agent_id}}, {"user": {"user_id": "bench"}}]
        made = await self.conversations[0].CreateConversation(
            json_format.ParseDict(
                {"conversation": {"participants": people}}, conversation_pb.CreateConversationRequest()
            )
        )
        return str(made.conversation.id)

    @asynccontextmanager
    async def chat(
        self, conversation_id: str, channel: int = 0, *, tail_only: bool = False
    ) -> AsyncIterator[Chat]:
        """Yield an attached stream that has caught up. ``tail_only`` omits the past events."""
        # Bytes: a message that is only counted is not decoded, so that the load itself needs little CPU.
        converse = self._channels[channel % CHANNELS].stream_stream(
            _CONVERSE, request_serializer=conversation_pb.ConverseRequest.SerializeToString
        )
        call = converse()
        try:
            attach = conversation_pb.ConverseAttach(
                conversation_id=conversation_id, tail_only=tail_only, group_events=True
            )
            await call.write(conversation_pb.ConverseRequest(attach=attach))
            chat = Chat(call)
            while (await chat.read()).WhichOneof("item") != "caught_up":
                pass
            yield chat
        finally:
            call.cancel()

    async def run(self, workflow: str, channel: int = 0) -> float:
        """Start a run and wait for its end in one call. Return the seconds."""
        stub = self.coordinators[channel % CHANNELS]
        began = time.perf_counter()
        request = coordinator_pb.StartRunRequest(workflow_id=workflow, wait_ms=WAIT_MS)
        _must_have_completed((await stub.StartRun(request)).run)
        return time.perf_counter() - began

    async def watched_run(self, workflow: str, channel: int = 0) -> float:
        """Start a run and watch it until it ends. Return the seconds."""
        stub = self.coordinators[channel % CHANNELS]
        began = time.perf_counter()
        started = await stub.StartRun(coordinator_pb.StartRunRequest(workflow_id=workflow))
        watch = stub.WatchRun(coordinator_pb.WatchRunRequest(run_id=started.run.id, group_events=True))
        async for said in watch:
            if RUN_ENDED & set(_payloads(said)):
                break
        watch.cancel()
        return time.perf_counter() - began

    async def node_ends(self, workflow: str) -> list[float]:
        """Run the workflow and return the time at which each node ended, in seconds since 1970."""
        request = coordinator_pb.StartRunRequest(workflow_id=workflow, wait_ms=WAIT_MS)
        run = (await self.coordinators[0].StartRun(request)).run
        _must_have_completed(run)
        ends = []
        async for said in self.coordinators[0].WatchRun(coordinator_pb.WatchRunRequest(run_id=run.id)):
            if said.event.WhichOneof("payload") == "node_completed":
                ends.append(said.event.create_time.ToMicroseconds() / 1e6)
        return ends

    async def task(self, task: str, channel: int = 0) -> float:
        """Execute a task and return the seconds."""
        began = time.perf_counter()
        request = executor_pb.ExecuteTaskRequest(task_id=task)
        result = (await self.executors[channel % CHANNELS].ExecuteTask(request)).result
        if result.HasField("error"):
            raise RuntimeError(f"The measured work failed: {result}")
        return time.perf_counter() - began


class Chat:
    """One attached stream."""

    _requests = itertools.count(1)

    def __init__(self, call: Call) -> None:
        self._call = call
        self._ends = 0
        """Turns whose end has arrived and is not yet returned."""

    async def send(self, text: str) -> None:
        """Send a message. `read` returns the responses."""
        send = conversation_pb.ConverseSend(content=text, request_id=f"bench-{next(self._requests)}")
        await self._call.write(conversation_pb.ConverseRequest(send=send))

    async def read(self) -> ConverseResponse:
        """Return the next response."""
        return conversation_pb.ConverseResponse.FromString(await self.read_bytes())

    async def read_bytes(self) -> bytes:
        """Return the next response as bytes."""
        said = await self._call.read()
        if not isinstance(said, bytes):
            raise RuntimeError(f"The stream ended: {await self._call.details()}")
        return said

    async def first_token(self, text: str) -> float:
        """Send a message and return the seconds until the first text of the answer."""
        began = time.perf_counter()
        await self.send(text)
        while True:
            said = await self.read()
            if said.WhichOneof("item") == "delta":
                return time.perf_counter() - began
            _check_running(said)

    async def turn(self, text: str) -> float:
        """Run a whole turn and return the seconds until the first text of the answer."""
        seconds = await self.first_token(text)
        await self.end_of_turn()
        return seconds

    async def end_of_turn(self) -> None:
        """Read until a turn has ended. One response may contain the ends of several."""
        while not self._ends:
            self._ends = _ends(await self.read())
        self._ends -= 1


def _payloads(said: ConverseResponse | coordinator_pb.WatchRunResponse) -> list[str]:
    """Return the payload names of the events in a message: none, one, or several."""
    item = said.WhichOneof("item")
    events = said.events.events if item == "events" else [said.event] if item == "event" else ()
    return [event.WhichOneof("payload") for event in events]


def _ends(said: ConverseResponse) -> int:
    """Return the number of turns that a message ends."""
    _check_running(said)
    return sum(payload in TURN_ENDS for payload in _payloads(said))


def _must_have_completed(run: run_pb.Run) -> None:
    if run.status != run_pb.RUN_STATUS_COMPLETED:
        raise RuntimeError(f"The measured work failed: {run}")


def _check_running(said: ConverseResponse) -> None:
    """Raise RuntimeError for a failure, which would be measured as fast."""
    if said.WhichOneof("item") == "refused" or "turn_failed" in _payloads(said):
        raise RuntimeError(f"The measured work failed: {said}")


class Bare:
    """Client of `bare.py`. A context manager."""

    def __init__(self, address: str) -> None:
        self._channels = open_channels(address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()

    async def unary(self, size: int, channel: int = 0) -> float:
        """Call with ``size`` bytes in both directions and return the seconds."""
        began = time.perf_counter()
        await self._channels[channel % CHANNELS].unary_unary("/bare/Unary")(b"x" * size)
        return time.perf_counter() - began

    def stream(self, channel: int = 0) -> Call:
        """Return an open stream. `ask` makes its requests."""
        return self._channels[channel % CHANNELS].stream_stream("/bare/Stream")()

    def grouped(self, channel: int = 0) -> Call:
        """Return an open stream that groups the messages that are ready together; see `bare.py`."""
        return self._channels[channel % CHANNELS].stream_stream("/bare/Grouped")()

    def relay(self, channel: int = 0) -> Call:
        """Return an open stream that relays a provider's answer to each request; see `bare.py`."""
        return self._channels[channel % CHANNELS].stream_stream("/bare/Relay")()

    @asynccontextmanager
    async def held(self, channel: int = 0) -> AsyncIterator[Call]:
        """Yield a stream that has sent one message and stays open."""
        call = self.stream(channel)
        try:
            await call.write(ask(size=90, count=1, hold=True))
            await call.read()
            yield call
        finally:
            call.cancel()


def ask(*, size: int, count: int, delay_ms: int = 0, hold: bool = False) -> bytes:
    """Return a request to `bare.py` for one stream."""
    return json.dumps({"size": size, "count": count, "delay_ms": delay_ms, "hold": hold}).encode()
