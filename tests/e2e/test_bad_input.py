"""Bad input on every RPC that is built, over a table made of the contract's own descriptors.

Each request starts as one that the server takes, and then one field of it is made wrong on the wire. What
is refused is refused with a documented reason and leaves no trace; whatever happens, the server answers the
next call, and its log holds no error (the shared server's fixture looks).
"""

from __future__ import annotations

import struct as binary
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.struct_pb2 import Value
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from tests.e2e.client import Client, struct
from tests.e2e.identity_requests import EMPTY_ANSWERS, OF_NOTHING, OF_NOTHING_ANSWERS
from tests.e2e.process import Server
from tests.e2e.test_server import LATER
from tests.rpc.rpc_kit import deep_struct, rejected
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import errors_pb2
from wonder.v1 import file_service_pb2 as files
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memory
from wonder_server.rpc.server.server import contract_services

pytestmark = pytest.mark.asyncio(loop_scope="session")

Path = tuple[FieldDescriptor, ...]
METHODS = [
    method
    for service in contract_services()
    for method in service.methods
    if method.name not in LATER.get(service.name, "").split() and not method.client_streaming
]
PAYLOADS = {"google.protobuf.Struct", "google.protobuf.Value"}
UNUSED = "01M80B4FQSR67S4TVYMV1BGX37"
"""Id part that belongs to no resource."""
REASONS = {name.removeprefix("ERROR_REASON_") for name in errors_pb2.ErrorReason.keys()}
TELLTALES = ("Traceback", "Error:", "Exception", "wonder_server", ".py", "protobuf", "object at", "sqlite")

DEFINITION = {
    "name": "spare_task",
    "task": {"steps": [{"id": "one", "action": {"kind": "context"}}]},
}


class World:
    """Existing resources, and one valid request for each method."""

    def __init__(self, conv: str, turn_id: str, memory_id: str, run_id: str, file_id: str) -> None:
        self.conv, self.turn_id, self.memory_id = conv, turn_id, memory_id
        self.run_id, self.file_id = run_id, file_id

    def request(self, method: MethodDescriptor) -> Any:
        message = message_factory.GetMessageClass(method.input_type)()
        given = self._given(method.name)
        for name, value in given.items():
            target = getattr(message, name)
            if isinstance(value, dict):
                fill(target, value)
            elif isinstance(value, list):
                for item in value:
                    fill(target.add(), item)
            else:
                setattr(message, name, value)
        return message

    def _given(self, method: str) -> dict[str, Any]:
        conv, agent = {"conversation_id": self.conv}, {"agent_id": "assistant"}
        nowhere = {"conversation_id": f"conv_{UNUSED}"}
        # What would delete or rename something asks for what is not there.
        return {
            "CreateConversation": {"conversation": {"title": "x"}, "validate_only": True},
            "GetConversation": conv,
            **{each: {**conv, "send": {"content": "say 1 word"}} for each in ("SendMessage", "StreamTurn")},
            "Subscribe": {"attach": conv},
            "ReadMessage": {**conv, "message_id": f"msg_{UNUSED}"},
            "CallAgent": {**agent, "input": {"string_value": "say 1 word"}},
            "CancelTurn": {**conv, "turn_id": self.turn_id},
            "GetTurn": {"turn_id": self.turn_id},
            "PreviewContext": {**conv, "send": {"content": "say 1 word"}},
            "UpdateConversation": {"conversation": {"id": f"conv_{UNUSED}"}},
            "AddParticipant": {**nowhere, "participant": {"user": {"user_id": "ann"}}},
            "RemoveParticipant": {**nowhere, "user_id": "ann"},
            "CompleteConversation": nowhere,
            "ReopenConversation": nowhere,
            "ResetConversation": nowhere,
            "DeleteConversation": nowhere, "ForkConversation": {**nowhere, "message_id": f"msg_{UNUSED}"},
            "ListTurns": conv,
            "ListMessages": conv,
            "SearchMessages": {**conv, "query": "tea"},
            "ListMoves": conv,
            "ListEvents": conv, "ListDecisions": conv,
            "StartRun": {"workflow_id": "wonder/std/extract_memory", "validate_only": True},
            "GetRun": {"run_id": self.run_id},
            "CancelRun": {"run_id": self.run_id},
            "WatchRun": {"run_id": self.run_id},
            "ReplayRun": {"run_id": self.run_id},
            "SignalRun": {"run_id": self.run_id, "signal": {"name": "go"}},
            "ResolveGate": {"gate_id": f"gate_{UNUSED}", "decision": 1, "shown_hash": "0" * 64},
            "ForkRun": {"run_id": f"run_{UNUSED}", "before_node_execution": 1},
            "ExecuteTask": {"task_id": "wonder/std/search_memory", "validate_only": True},
            "StreamTask": {"task_id": "wonder/std/search_memory"},
            "WriteMemory": {**agent, "memory": {"type": "fact", "content": "x"}},
            "BatchWriteMemories": {**agent, "memories": [{"type": "fact", "content": "x"}]},
            "ListMemories": agent, "GetMemory": {**agent, "memory_id": self.memory_id},
            "UpdateMemory": {**agent, "memory": {"id": f"mem_{UNUSED}", "content": "x"}},
            "SupersedeMemory": {
                **agent, "memory_id": f"mem_{UNUSED}", "memory": {"type": "fact", "content": "x"},
            },
            "DeleteMemory": {**agent, "memory_id": f"mem_{UNUSED}"},
            "SetMemoryBlock": {**agent, "block": {"label": "notes", "content": "x"}},
            "GetMemoryBlock": {**agent, "label": "spare"},
            "ListMemoryBlocks": agent,
            "ListMemoryBlockChanges": {**agent, "label": "notes"},
            "DeleteMemoryBlock": {**agent, "label": "spare"},
            "SearchMemories": {**agent, "query": "tea"},
            "CreateLibrary": {"library": {"name": "e2e/spare"}, "validate_only": True},
            "GetLibrary": {"library_id": "wonder/std"},
            "DeleteLibrary": {"library_id": f"lib_{UNUSED}"},
            "PutDefinition": {"library_id": "e2e/bad", "definition": DEFINITION, "validate_only": True},
            "GetDefinition": {"definition_id": "wonder/std/assistant"},
            "ListDefinitions": {"library_id": "wonder/std"},
            "ListRevisions": {"definition_id": "wonder/std/assistant"},
            "DeleteDefinition": {"definition_id": f"def_{UNUSED}"},
            "ApplyDefinitions": {"library": "e2e/bad", "definitions": [DEFINITION], "validate_only": True},
            "ExportDefinitions": {"library_id": "wonder/std"},
            "CreateAgent": {
                "agent": {"name": "spare", "persona_id": "wonder/std/assistant"}, "validate_only": True,
            },
            "GetAgent": {"agent_id": "assistant"},
            "UpdateAgent": {"agent": {"id": f"agt_{UNUSED}"}, "validate_only": True},
            "DeleteAgent": {"agent_id": f"agt_{UNUSED}"},
            "CreateProject": {"project": {"name": "spare"}, "validate_only": True},
            "GetProject": {"project_id": "default"},
            "UpdateProject": {"project": {"id": f"proj_{UNUSED}"}, "validate_only": True},
            "DeleteProject": {"project_id": f"proj_{UNUSED}"},
            "DiffBranch": nowhere,
            "MergeBranch": nowhere,
            "GetFile": {"file_id": self.file_id}, "DeleteFile": {"file_id": f"file_{UNUSED}"},
            "ReadArtifact": {"project_id": "default", "path": "bad/input"},
            "WriteArtifact": {"project_id": "default", "path": "bad/output", "content": b"x"},
            "ListArtifacts": {"project_id": "default"},
            "SearchArtifacts": {"project_id": "default", "query": "x"},
            "ListArtifactRevisions": {"project_id": "default", "path": "bad/input"},
            "MergeArtifacts": {"project_id": "default", "source_branch": "bad", "validate_only": True},
        }.get(method, OF_NOTHING.get(method, {}))  # fmt: skip


def fill(message: Any, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, dict):
            fill(getattr(message, name), value)
        elif isinstance(value, list):
            for item in value:
                fill(getattr(message, name).add(), item)
        else:
            setattr(message, name, value)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(server: Server) -> World:
    async with server.client() as client:
        return await make_world(client)


async def make_world(client: Client) -> World:
    """Make what the requests name."""
    conv = await client.open()
    turn, _ = await client.turn(conv, "say 2 words")
    written = memory.WriteMemoryRequest(agent_id="assistant")
    written.memory.type, written.memory.content = "fact", "Here is a memory."
    kept = await client.memory.WriteMemory(written)
    await client.library.CreateLibrary(library.CreateLibraryRequest(library={"name": "e2e/bad"}))
    for branch in ("main", "bad"):
        document = library.WriteArtifactRequest(project_id="default", path="bad/input", branch=branch)
        document.content = b"x"
        await client.library.WriteArtifact(document)
    pieces = (files.UploadFileRequest(start={"name": "bad.txt"}), files.UploadFileRequest(content=b"x"))
    file = (await client.files.UploadFile(iter(pieces))).file
    return World(conv, turn.id, kept.memory.id, turn.context_assembly_run_id, file.id)


def places(message: Descriptor, seen: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the paths of all scalar fields and all payloads of a request."""
    for place in message.fields:
        inner = place.message_type
        if inner is None or inner.full_name in PAYLOADS:
            yield (place,)
        elif inner.full_name not in seen:
            for rest in places(inner, (*seen, inner.full_name)):
                yield (place, *rest)


def wire(path: Path, content: bytes, *, kind: int = 2) -> bytes:
    """One field of a request with this content; ``kind`` is the wire type of the last."""
    last = path[-1]
    if kind == 2:
        data = field(last.number, content)
    else:
        data = key(last.number, kind) + content
    for place in reversed(path[:-1]):
        data = field(place.number, data)
    return data


def key(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def field(number: int, content: bytes) -> bytes:
    return key(number, 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


async def call(client: Client, method: MethodDescriptor, data: bytes) -> tuple[str, list[str]]:
    """Reason and fields of a refusal, or an empty reason. Holds every refusal to the contract."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.server_streaming:
            stream = client.channel.unary_stream(path)(data, timeout=60)
            async for _ in stream:
                if method.name == "Subscribe":  # It is attached, and would stay so.
                    stream.cancel()
                    break
        else:
            await client.channel.unary_unary(path)(data, timeout=60)
    except aio.AioRpcError as problem:
        return refusal(method, problem)
    return "", []


def refusal(method: MethodDescriptor, problem: aio.AioRpcError) -> tuple[str, list[str]]:
    where = f"{method.name}: {problem.code()} {problem.details()}"
    assert problem.code() not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL), where
    trailers = dict(problem.trailing_metadata() or ())
    assert "grpc-status-details-bin" in trailers, where
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    infos = [d for d in status.details if d.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)]
    assert len(infos) == 1, where
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    infos[0].Unpack(info)
    assert info.domain == "wonder.v1" and info.reason in REASONS, where
    fields = [v.field for d in status.details if d.Unpack(bad) for v in bad.field_violations]
    assert problem.details() and not any(tell in (problem.details() or "") for tell in TELLTALES), where
    return info.reason, fields


NAN = field(1, field(1, b"a") + field(2, Value(number_value=float("nan")).SerializeToString()))
HUGE = field(1, field(1, b"a") + field(2, Value(number_value=2.0**53).SerializeToString()))


def damages(path: Path) -> Iterator[tuple[str, bytes, str]]:
    """Yield faults that are invalid for any field of this type: name, wire bytes, expected reason."""
    last = path[-1]
    if last.type == FieldDescriptor.TYPE_STRING:
        yield "not UTF-8", wire(path, b"\xff\xfeabc"), "MALFORMED_REQUEST"
    elif last.type == FieldDescriptor.TYPE_ENUM:
        yield "no such enum value", wire(path, varint(999), kind=0), "FIELD_INVALID"
    elif last.message_type is not None:
        deep, nan, huge = deep_struct(40), NAN, HUGE
        if last.message_type.name == "Value":
            deep, nan, huge = (field(5, content) for content in (deep, nan, huge))
        yield "40 levels deep", wire(path, deep), "PAYLOAD_TOO_DEEP"
        yield "not a number", wire(path, nan), "NUMBER_OUT_OF_RANGE"
        yield "beyond 2^53", wire(path, huge), "NUMBER_OUT_OF_RANGE"


async def snapshot(client: Client, world: World) -> list[Any]:
    """Return all resources that lists show."""
    events = await client.events(world.conv)
    convs = await client.conversations.ListConversations(pb.ListConversationsRequest(page_size=1000))
    agents = await client.library.ListAgents(library.ListAgentsRequest(page_size=1000))
    libraries = await client.library.ListLibraries(library.ListLibrariesRequest(page_size=1000))
    request = library.ExportDefinitionsRequest(library_id="e2e/bad")
    definitions = await client.library.ExportDefinitions(request)
    return [events, convs, agents, libraries, definitions, await client.memories()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.name))
async def test_what_no_field_may_hold_is_refused_with_its_place(
    client: Client, world: World, method: MethodDescriptor
) -> None:
    good = world.request(method).SerializeToString()
    before = await snapshot(client, world)
    for path in places(method.input_type):
        name = ".".join(place.name for place in path)
        for what, data, reason in damages(path):
            found, fields = await call(client, method, good + data)
            assert found == reason, f"{method.name}.{name} {what}: {found or 'taken'}"
            assert not fields or fields[0].split("[")[0].split(".")[0] == path[0].name, (name, fields)
    too_long = good + field(1000, b"\0" * (5 << 20))
    assert (await call(client, method, too_long))[0] == "PAYLOAD_TOO_LARGE"
    for garbage in (b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f", b"\x07\x00"):
        assert (await call(client, method, garbage))[0] == "MALFORMED_REQUEST"
    if any(place.name == "update_mask" for place in method.input_type.fields):
        mask = next(place for place in method.input_type.fields if place.name == "update_mask")
        for path_ in (b"nonsense", b"id", b"*.x", b""):
            reason, _ = await call(client, method, good + field(mask.number, field(1, path_)))
            assert reason == "FIELD_MASK_UNSUPPORTED", (method.name, path_)
    assert await snapshot(client, world) == before


STRINGS = (
    "", " ", "nonsense", f"conv_{UNUSED}", f"agt_{UNUSED}", f"turn_{UNUSED}", f"run_{UNUSED}", "conv_", "\0",
    "../../etc/passwd", "'; DROP TABLE turns; --", "x" * 5000, "💥", "a/b/c/d@-1", "wonder/std/assistant@99",
)  # fmt: skip
INTEGERS = (-1, 0, (1 << 31) - 1, -(1 << 31))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.name))
async def test_no_value_of_a_field_makes_the_server_stumble(
    client: Client, world: World, method: MethodDescriptor
) -> None:
    """Strange values may be taken or refused, as their meaning is; never UNKNOWN, never INTERNAL."""
    good = world.request(method).SerializeToString()
    for path in places(method.input_type):
        last, contents = path[-1], []
        if path[0].name in ("request_id", "validate_only"):
            continue
        if last.type == FieldDescriptor.TYPE_STRING:
            contents = [wire(path, text.encode()) for text in STRINGS]
        elif last.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64):
            contents = [wire(path, varint(number), kind=0) for number in INTEGERS]
            if last.type == FieldDescriptor.TYPE_INT64:
                contents += [wire(path, varint(n), kind=0) for n in ((1 << 63) - 1, -(1 << 63))]
        elif last.type == FieldDescriptor.TYPE_DOUBLE:
            odd = (float("nan"), float("inf"), -1.0, 2.0, 1e308)
            contents = [wire(path, binary.pack("<d", number), kind=1) for number in odd]
        for data in contents:
            await call(client, method, good + data)
    assert (await client.conversations.GetTurn(pb.GetTurnRequest(turn_id=world.turn_id))).turn.id


ABSENT = {
    "CancelTurn": "TURN_NOT_ACTIVE", "CancelRun": "RUN_NOT_ACTIVE", "UpdateMemory": "MEMORY_NOT_FOUND",
    "GetMemoryBlock": "MEMORY_NOT_FOUND", "DeleteMemoryBlock": "MEMORY_NOT_FOUND",
    "DeleteMemory": "MEMORY_NOT_FOUND", "DeleteLibrary": "LIBRARY_NOT_FOUND",
    "DeleteDefinition": "DEFINITION_NOT_FOUND", "UpdateAgent": "AGENT_NOT_FOUND",
    "DeleteAgent": "AGENT_NOT_FOUND", "UpdateProject": "PROJECT_NOT_FOUND",
    "DeleteProject": "PROJECT_NOT_FOUND", "SignalRun": "RUN_NOT_ACTIVE", "ResolveGate": "GATE_NOT_FOUND",
    "ForkRun": "RUN_NOT_FOUND", "UpdateConversation": "CONVERSATION_NOT_FOUND",
    "AddParticipant": "CONVERSATION_NOT_FOUND", "RemoveParticipant": "CONVERSATION_NOT_FOUND",
    "CompleteConversation": "CONVERSATION_NOT_FOUND", "ReopenConversation": "CONVERSATION_NOT_FOUND",
    "ResetConversation": "CONVERSATION_NOT_FOUND", "DeleteConversation": "CONVERSATION_NOT_FOUND",
    "ForkConversation": "CONVERSATION_NOT_FOUND",
    "SupersedeMemory": "MEMORY_NOT_FOUND", "DiffBranch": "CONVERSATION_NOT_FOUND",
    "MergeBranch": "CONVERSATION_NOT_FOUND", "ReadMessage": "MESSAGE_NOT_FOUND",
    "DeleteFile": "FILE_NOT_FOUND",
}  # fmt: skip
"""Errors of the unchanged requests of the table; every other request succeeds."""


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.name))
async def test_the_requests_of_the_table_are_good(
    client: Client, world: World, method: MethodDescriptor
) -> None:
    reason, fields = await call(client, method, world.request(method).SerializeToString())
    assert reason == {**ABSENT, **OF_NOTHING_ANSWERS}.get(method.name, ""), (reason, fields)


EMPTY = {
    "CreateConversation": "", "ListConversations": "", "ListTurns": "", "ListMessages": "", "ListMoves": "",
    "ListEvents": "", "ListActionKinds": "", "ListLibraries": "", "ListAgents": "", "ListProjects": "",
    "GetConversation": "FIELD_INVALID", "SendMessage": "CONVERSATION_NOT_FOUND",
    "Subscribe": "CONVERSATION_NOT_FOUND", "CancelTurn": "FIELD_INVALID", "GetTurn": "TURN_NOT_FOUND",
    "GetRun": "RUN_NOT_FOUND", "CancelRun": "RUN_NOT_FOUND", "WatchRun": "RUN_NOT_FOUND",
    "ReplayRun": "RUN_NOT_FOUND", "ListDefinitions": "", "ListRuns": "", "ListGates": "",
    "ListFiles": "", "CreateBackup": "", **EMPTY_ANSWERS,
}  # fmt: skip
"""Errors of empty requests; every other method answers FIELD_INVALID and names the field."""


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.name))
async def test_an_empty_request_gets_a_list_or_the_name_of_what_is_missing(
    client: Client, world: World, method: MethodDescriptor
) -> None:
    reason, fields = await call(client, method, b"")
    wanted = EMPTY.get(method.name, "FIELD_INVALID")
    if wanted == "CONVERSATION_NOT_FOUND":
        assert reason in (wanted, "FIELD_INVALID")
    else:
        assert reason == wanted, (reason, fields)
    assert not reason or fields


async def test_ids_of_others_lead_nowhere(client: Client, world: World) -> None:
    """An id of another kind, of another data folder, of another conversation."""
    other = await client.open()
    stub = client.conversations
    far = f"conv_{UNUSED[:-2]}ZZ"  # of the last shard
    for wrong in (world.turn_id, world.run_id, f"conv_{UNUSED}", far, world.conv.lower(), world.conv + "A"):
        request = pb.GetConversationRequest(conversation_id=wrong)
        assert await rejected(stub.GetConversation(request)) == (
            "CONVERSATION_NOT_FOUND",
            ["conversation_id"],
        )
    turn = pb.GetTurnRequest(turn_id=world.turn_id, conversation_id=other)
    assert (await rejected(stub.GetTurn(turn)))[0] == "TURN_NOT_FOUND"
    message = (await client.messages(world.conv))[0]
    reply = pb.SendMessageRequest(
        conversation_id=other, send=pb.ConverseSend(content="x", reply_to_message_id=message.id)
    )
    assert (await rejected(stub.SendMessage(reply)))[0] == "MESSAGE_NOT_FOUND"
    stranger = pb.SendMessageRequest(
        conversation_id=other, send=pb.ConverseSend(content="x", agent_id=f"agt_{UNUSED}")
    )
    assert (await rejected(stub.SendMessage(stranger)))[0] == "AGENT_NOT_FOUND"
    listed = await stub.ListMoves(pb.ListMovesRequest(conversation_id=other, turn_id=world.turn_id))
    assert not listed.moves
    page = await stub.ListEvents(pb.ListEventsRequest(conversation_id=world.conv, page_size=1))
    stolen = pb.ListEventsRequest(conversation_id=other, page_token=page.next_page_token)
    assert (await rejected(stub.ListEvents(stolen)))[0] == "PAGE_TOKEN_INVALID"
    assert len(await client.events(other)) == 1


async def test_bad_words_on_a_stream_are_refused_and_the_stream_lives_on(
    client: Client, world: World
) -> None:
    conv = await client.open()
    path = "/wonder.v1.ConversationService/Converse"
    stream = client.channel.stream_stream(path, response_deserializer=pb.ConverseResponse.FromString)()
    attach = pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=conv))
    await stream.write(attach.SerializeToString())
    bad = [
        (b"", "FIELD_INVALID"),
        (b"\xff\xff", "MALFORMED_REQUEST"),
        (field(2, field(1, b"\xff\xfe")), "MALFORMED_REQUEST"),
        (attach.SerializeToString(), "FIELD_INVALID"),
        (said(content="hello"), "FIELD_INVALID"),
        (said(content="", request_id="1"), "FIELD_INVALID"),
        (said(content="x" * (1 << 20) + "y", request_id="2"), "PAYLOAD_TOO_LARGE"),
        (said(content="x" * (5 << 20), request_id="3"), "PAYLOAD_TOO_LARGE"),
        (said(content="x", request_id="r" * 500), "FIELD_INVALID"),
        (said(content="x", request_id="4", agent_id="absent"), "AGENT_NOT_FOUND"),
        (said(content="x", request_id="5", reply_to_message_id="msg_1"), "MESSAGE_NOT_FOUND"),
        (field(2, field(6, deep_struct(40)) + field(1, b"x") + field(3, b"6")), "PAYLOAD_TOO_DEEP"),
        (field(3, field(1, b"x") + field(2, b"7")), "TURN_NOT_FOUND"),
    ]  # fmt: skip
    for data, reason in bad:
        await stream.write(data)
        while True:
            word = await stream.read()
            assert word is not aio.EOF, reason
            if word.HasField("refused"):
                break
        found = errors_pb2.ErrorReason.Name(word.refused.error.reason)
        assert found == f"ERROR_REASON_{reason}"
        assert not any(tell in word.refused.error.message for tell in TELLTALES)
    assert len(await client.events(conv)) == 1
    await stream.write(said(content="say 1 word", request_id="good"))
    while not (word := await stream.read()).HasField("sent"):
        pass
    stream.cancel()
    await client.settled(conv, word.sent.turn_id)


def said(**fields: Any) -> bytes:
    return pb.ConverseRequest(send=pb.ConverseSend(**fields)).SerializeToString()


async def test_a_stream_that_does_not_begin_with_attach_is_refused(client: Client) -> None:
    method = next(m for s in contract_services() for m in s.methods if m.name == "Converse")
    for first, reason in (
        (said(content="x", request_id="1"), "NOT_ATTACHED"),
        (b"", "NOT_ATTACHED"),
        (b"\xff", "MALFORMED_REQUEST"),
        (pb.ConverseRequest(attach=pb.ConverseAttach()).SerializeToString(), "CONVERSATION_NOT_FOUND"),
        (field(1, b"\0" * (5 << 20)), "PAYLOAD_TOO_LARGE"),
    ):
        stream = client.channel.stream_stream("/wonder.v1.ConversationService/Converse")()
        await stream.write(first)
        with pytest.raises(aio.AioRpcError) as problem:
            while await stream.read() is not aio.EOF:
                pass
            await stream.wait_for_connection()
            raise AssertionError(f"{reason} was expected: {await stream.code()}")
        assert refusal(method, problem.value)[0] == reason


async def test_metadata_comes_back_as_it_went(client: Client) -> None:
    metadata = struct(deep={"a": [1, None, True, "ß", {"$": "not a reference"}]}, count=3)
    conv = await client.open(metadata=metadata)
    request = pb.GetConversationRequest(conversation_id=conv)
    answer = await client.conversations.GetConversation(request)
    assert answer.conversation.metadata == metadata
