"""End to end: a request that was answered gets the same answer after what it names was deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import Client
from tests.e2e.process import serving
from tests.e2e.test_callers import fact
from tests.e2e.test_parts import file, text, upload
from tests.rpc.rpc_kit import rejected
from wonder.v1 import common_pb2, conversation_pb2, library_pb2, memory_pb2, task_pb2
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as coordinator
from wonder.v1 import file_service_pb2 as files
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memories

pytestmark = pytest.mark.asyncio(loop_scope="session")

OFFLINE = {"WONDER_DEFAULT_MODEL": "offline"}

Ask = Callable[[Client], Awaitable[Any]]


def sending(conversation_id: str, **send: Any) -> Ask:
    request = pb.SendMessageRequest(conversation_id=conversation_id, send=send)
    return lambda client: client.conversations.SendMessage(request)


def identity(answer: Any) -> set[str]:
    """Return the ids that an answer names."""
    names = ("turn", "message", "conversation", "memory", "superseded", "run", "file", "project")
    found = [getattr(answer, name, None) for name in names]
    if isinstance(answer, library.WriteArtifactResponse | library.MergeArtifactsResponse):
        return {answer.SerializeToString(deterministic=True).hex()}
    if isinstance(answer, memories.SetMemoryBlockResponse):
        return {answer.block.agent_id, answer.block.label, answer.block.content}
    found += getattr(answer, "memories", ())
    texts = {value.content for value in found if isinstance(value, memory_pb2.Memory)}
    return {type(answer).__name__, *texts, *(value.id for value in found if value is not None)}


async def conversation_requests(client: Client) -> dict[str, Ask]:
    """Return the requests to repeat. `take_away` deletes what they name."""
    shared, alone, named = [await client.open("assistant") for _ in range(3)]
    document = await upload(client, "a.txt", b"hello", "text/plain")
    participant = conversation_pb2.Participant(agent=conversation_pb2.AgentParticipant(agent_id="tmp"))
    join = pb.AddParticipantRequest(conversation_id=shared, request_id="join", participant=participant)
    take = pb.UpdateConversationRequest(
        conversation=conversation_pb2.Conversation(id=named, external_ref="taken"), request_id="take"
    )
    loop_in = pb.CallAgentRequest(
        agent_id="tmp",
        conversation_id=shared,
        mode=common_pb2.INVOCATION_MODE_LOOP_IN,
        input={"string_value": "hi"},
        request_id="call",
    )
    return {
        "join": lambda client: client.conversations.AddParticipant(join),
        "parts": sending(shared, request_id="parts", parts=[text("x"), file(document)]),
        "named": sending(shared, request_id="named", content="hi", agent_id="tmp"),
        "call": lambda client: client.conversations.CallAgent(loop_in),
        "alone": sending(alone, request_id="alone", content="hi"),
        "take": lambda client: client.conversations.UpdateConversation(take),
    }


async def test_a_conversation_answers_a_repeated_request_after_deletions(data: Path) -> None:
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        await client.agent("tmp", "wonder/std/assistant")
        asks = await conversation_requests(client)
        answers = {name: await ask(client) for name, ask in asks.items()}
        for name in ("parts", "named", "alone"):
            turn = answers[name].turn
            await client.settled(turn.conversation_id, turn.id)
        await take_away(client, answers)
        await check(client, asks, answers)
        await client.library.DeleteAgent(library.DeleteAgentRequest(agent_id="tmp"))
        await check(client, asks, answers)
        await server.kill()
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        shared, alone = (answers[name].turn.conversation_id for name in ("named", "alone"))
        other = sending(shared, request_id="named", content="other", agent_id="tmp")
        assert await rejected(other(client)) == ("REQUEST_ID_REUSED", ["request_id"])
        assert await rejected(sending(alone, content="hi", request_id="new")(client)) == ("NO_AGENT", [])
        await check(client, asks, answers)


async def forget(client: Client, memory_id: str, request_id: str = "") -> memories.DeleteMemoryResponse:
    request = memories.DeleteMemoryRequest(agent_id="tmp", memory_id=memory_id, request_id=request_id)
    return await client.memory.DeleteMemory(request)


async def contents(client: Client) -> list[str]:
    listed = await client.memory.ListMemories(memories.ListMemoriesRequest(agent_id="tmp"))
    return [each.content for each in listed.memories]


async def test_a_memory_request_keeps_its_answer_after_deletions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write = memories.WriteMemoryRequest(agent_id="tmp", memory=fact("likes tea"), request_id="write")
    batch = memories.BatchWriteMemoriesRequest(
        agent_id="tmp", memories=[fact("has a cat"), fact("has a dog")], request_id="batch"
    )
    asks: dict[str, Ask] = {
        "write": lambda client: client.memory.WriteMemory(write),
        "batch": lambda client: client.memory.BatchWriteMemories(batch),
    }
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        await client.agent("tmp", "wonder/std/assistant")
        answers = {name: await ask(client) for name, ask in asks.items()}
        asks["forget"] = lambda client: forget(client, answers["write"].memory.id, "forget")
        answers["forget"] = await asks["forget"](client)
        await forget(client, answers["batch"].memories[1].id)
        await check(client, asks, answers)
        assert await contents(client) == ["has a cat"]
        await client.library.DeleteAgent(library.DeleteAgentRequest(agent_id="tmp"))
        await check(client, asks, answers)
        await server.kill()
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        other = memories.WriteMemoryRequest(agent_id="tmp", memory=fact("other"), request_id="write")
        assert await rejected(client.memory.WriteMemory(other)) == ("AGENT_NOT_FOUND", ["agent_id"])
        await check(client, asks, answers)
        # The name belongs to another agent now, whose memories do not change.
        await client.agent("tmp", "wonder/std/assistant")
        await check(client, asks, answers)
        assert await contents(client) == []


async def test_a_changed_memory_keeps_its_answer_after_deletions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        await client.agent("tmp", "wonder/std/assistant")
        kept, old = [
            (await client.memory.WriteMemory(memories.WriteMemoryRequest(agent_id="tmp", memory=fact(each))))
            for each in ("likes tea", "has a cat")
        ]
        changed = memory_pb2.Memory(id=kept.memory.id, content="likes coffee")
        update = memories.UpdateMemoryRequest(agent_id="tmp", memory=changed, request_id="update")
        supersede = memories.SupersedeMemoryRequest(
            agent_id="tmp", memory_id=old.memory.id, memory=fact("has two cats"), request_id="supersede"
        )
        block = memory_pb2.MemoryBlock(label="notes", content="short")
        place = memories.SetMemoryBlockRequest(agent_id="tmp", block=block, request_id="block")
        asks: dict[str, Ask] = {
            "update": lambda client: client.memory.UpdateMemory(update),
            "supersede": lambda client: client.memory.SupersedeMemory(supersede),
            "block": lambda client: client.memory.SetMemoryBlock(place),
        }
        answers = {name: await ask(client) for name, ask in asks.items()}
        await check(client, asks, answers)
        await forget(client, kept.memory.id)
        await forget(client, answers["supersede"].memory.id)
        drop = memories.DeleteMemoryBlockRequest(agent_id="tmp", label="notes")
        await client.memory.DeleteMemoryBlock(drop)
        await check(client, asks, answers)
        await client.library.DeleteAgent(library.DeleteAgentRequest(agent_id="tmp"))
        answers["supersede"].superseded.content = ""  # Of a deleted memory only the request is known.
        await check(client, asks, answers)
        await server.kill()
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        await check(client, asks, answers)
        # The name belongs to another agent now, whose memories do not change.
        await client.agent("tmp", "wonder/std/assistant")
        await check(client, asks, answers)
        assert await contents(client) == []
        update.memory.content = "other"
        assert await rejected(client.memory.UpdateMemory(update)) == ("REQUEST_ID_REUSED", ["request_id"])


WORKFLOW = """
name: wait
workflow:
  nodes:
    - {id: dig, wait: {signal: found}}
"""


async def test_what_was_made_in_a_project_keeps_its_answer_after_the_projects_deletion(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        await client.apply("e2e/notes", WORKFLOW)
        await client.library.CreateProject(
            library.CreateProjectRequest(project=library_pb2.Project(name="temporary"))
        )
        member = library_pb2.Agent(name="tmp", persona_id="wonder/std/assistant", project_ids=["temporary"])
        await client.library.CreateAgent(library.CreateAgentRequest(agent=member))
        start = coordinator.StartRunRequest(
            workflow_id="e2e/notes/wait",
            context=task_pb2.ExecutionContext(project_id="temporary", agent_id="tmp"),
            request_id="start",
        )
        change = library.UpdateProjectRequest(
            project=library_pb2.Project(id="temporary", description="new"), request_id="change"
        )
        create = pb.CreateConversationRequest(
            conversation=conversation_pb2.Conversation(project_id="temporary", title="one"),
            request_id="create",
        )
        call = pb.CallAgentRequest(
            agent_id="tmp", project_id="temporary", input={"string_value": "hi"}, request_id="call"
        )
        write = library.WriteArtifactRequest(
            project_id="temporary", path="a.md", content=b"hello", author="ann", request_id="document"
        )
        erase = library.WriteArtifactRequest(
            project_id="temporary", path="a.md", deletion=True, request_id="erase"
        )
        side = library.WriteArtifactRequest(
            project_id="temporary", path="b.md", branch="side", content=b"b", request_id="side"
        )
        merge = library.MergeArtifactsRequest(
            project_id="temporary", source_branch="side", request_id="merge"
        )
        asks: dict[str, Ask] = {
            "document": lambda client: client.library.WriteArtifact(write),
            "side": lambda client: client.library.WriteArtifact(side),
            "erase": lambda client: client.library.WriteArtifact(erase),
            "merge": lambda client: client.library.MergeArtifacts(merge),
            "create": lambda client: client.conversations.CreateConversation(create),
            "call": lambda client: client.conversations.CallAgent(call),
            "start": lambda client: client.coordinator.StartRun(start),
            "change": lambda client: client.library.UpdateProject(change),
            "upload": lambda client: send_file(client, b"hello"),
        }
        answers = {name: await ask(client) for name, ask in asks.items()}
        await client.library.DeleteAgent(library.DeleteAgentRequest(agent_id="tmp"))
        await check(client, asks, answers)
        await client.files.DeleteFile(files.DeleteFileRequest(file_id=answers["upload"].file.id))
        drop = library.DeleteProjectRequest(project_id="temporary")
        await client.library.DeleteProject(drop)
        await check(client, asks, answers)
        await server.kill()
    async with serving(data, environment=OFFLINE) as server, server.client() as client:
        await check(client, asks, answers)
        assert await rejected(send_file(client, b"other")) == ("REQUEST_ID_REUSED", ["request_id"])
        # The name belongs to another project now.
        await client.library.CreateProject(
            library.CreateProjectRequest(project=library_pb2.Project(name="temporary"))
        )
        await client.agent("tmp", "wonder/std/assistant")
        await check(client, asks, answers)
        listed = await client.library.ListArtifacts(library.ListArtifactsRequest(project_id="temporary"))
        assert not listed.artifacts
        write.content = b"other"
        assert await rejected(client.library.WriteArtifact(write)) == ("REQUEST_ID_REUSED", ["request_id"])
        start.workflow_id = "e2e/notes/other"
        assert await rejected(client.coordinator.StartRun(start)) == ("REQUEST_ID_REUSED", ["request_id"])


async def send_file(client: Client, content: bytes) -> files.UploadFileResponse:
    start = files.UploadFileStart(
        project_id="temporary", name="a.txt", media_type="text/plain", request_id="upload"
    )
    pieces = [files.UploadFileRequest(start=start), files.UploadFileRequest(content=content)]
    return await client.files.UploadFile(iter(pieces))


async def take_away(client: Client, answers: dict[str, Any]) -> None:
    """Delete the file, remove the only agent, and give the external reference to another conversation."""
    document = answers["parts"].message.parts[1].file.file_id
    await client.files.DeleteFile(files.DeleteFileRequest(file_id=document))
    leave = pb.RemoveParticipantRequest(
        conversation_id=answers["alone"].turn.conversation_id, agent_id="assistant"
    )
    await client.conversations.RemoveParticipant(leave)
    named = answers["take"].conversation.id
    clear = pb.UpdateConversationRequest(
        conversation=conversation_pb2.Conversation(id=named), update_mask={"paths": ["external_ref"]}
    )
    await client.conversations.UpdateConversation(clear)
    other = conversation_pb2.Conversation(id=await client.open("assistant"), external_ref="taken")
    await client.conversations.UpdateConversation(pb.UpdateConversationRequest(conversation=other))


async def check(client: Client, asks: dict[str, Ask], answers: dict[str, Any]) -> None:
    """Repeat every request. The answers must be the first ones."""
    for name, ask in asks.items():
        try:
            again = await ask(client)
        except Exception as refused:
            raise AssertionError(name) from refused
        assert identity(again) == identity(answers[name]), name
