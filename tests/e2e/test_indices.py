"""The model sees what there is to fetch: documents, files, memories (feature D7)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.e2e.client import Client
from tests.e2e.scripted import Scripted
from tests.fakes.provider import Call, Provider, Script
from tests.services.content.repositories_kit import UsersRepository, need_git
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memory

need_git()
pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOLS = tuple(f"wonder/std/{name}" for name in ("recall", "read_document", "list_files", "write_file"))
_numbers = itertools.count(1)


async def project_with(client: Client, origin: UsersRepository) -> str:
    project = library_pb2.Project(name=f"indexed{next(_numbers)}")
    project.repositories.add(name="code", url=str(origin.folder))
    return str((await client.library.CreateProject(library.CreateProjectRequest(project=project))).project.id)


async def belongs_to(client: Client, agent: str, project: str) -> None:
    found = (await client.library.GetAgent(library.GetAgentRequest(agent_id=agent))).agent
    changed = library_pb2.Agent(id=found.id, project_ids=[project], etag=found.etag)
    await client.library.UpdateAgent(library.UpdateAgentRequest(agent=changed))


def prompt(scripted: Scripted, number: int) -> str:
    """Return the last message of the model's request with this number: the context and the user's message."""
    messages = scripted.requests[number]["messages"]
    assert isinstance(messages, list) and messages[0]["content"] == "You are played by a script."
    return str(messages[-1]["content"])


async def test_the_model_is_pointed_to_documents_files_and_memories(
    client: Client, provider: Provider, tmp_path: Path
) -> None:
    project = await project_with(client, UsersRepository(tmp_path / "users"))
    write = library.WriteArtifactRequest(project_id=project, path="designs/auth.md", content=b"We use JWT.")
    await client.library.WriteArtifact(write)
    writes = Call(name="write_file", arguments=json.dumps({"path": "new/file", "content": "1"}))
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(calls=(writes,)), Script(text="Done."), tools=TOOLS)
    await belongs_to(client, agent, project)
    for number in range(8):
        kept = memory.WriteMemoryRequest(agent_id=agent)
        kept.memory.type, kept.memory.content = "fact", f"The number {number} is odd or even."
        await client.memory.WriteMemory(kept)

    conv = await client.open(agent, project_id=project)
    await client.turn(conv, "Which number is odd?")
    first = prompt(scripted, 0)
    assert "Documents of the project, 1 in all (tools: read_document):\n- designs/auth.md" in first
    assert "Files of the code, 2 in code (tools: list_files):\n- readme\n- src" in first
    _, _, more = first.partition("More that you remember, the newest first (tools: recall):\n")
    assert more.startswith("- The number ") and first.count("- The number ") == 8

    await client.turn(conv, "And now?")
    second = prompt(scripted, 2)
    assert "Files of the code, 3 in code (tools: list_files):\n- new/file\n- readme\n- src" in second

    asked = pb.PreviewContextRequest(conversation_id=conv, send=pb.ConverseSend(content="What is there?"))
    blocks = (await client.conversations.PreviewContext(asked)).blocks
    sources = {block.excerpt: (pb.ContextSource.Name(block.source), block.source_id) for block in blocks}
    assert sources["- designs/auth.md"] == ("CONTEXT_SOURCE_ARTIFACT", "designs/auth.md")
    assert sources["- new/file"] == ("CONTEXT_SOURCE_REPOSITORY", "code")


async def test_an_agent_without_such_tools_is_pointed_to_nothing(
    client: Client, provider: Provider, tmp_path: Path
) -> None:
    project = await project_with(client, UsersRepository(tmp_path / "users"))
    write = library.WriteArtifactRequest(project_id=project, path="secret.md", content=b"x")
    await client.library.WriteArtifact(write)
    scripted = Scripted(client, provider, "openai")
    agent = await scripted.agent(Script(text="Hello."))
    await belongs_to(client, agent, project)
    conv = await client.open(agent, project_id=project)
    await client.turn(conv, "Hello")
    assert prompt(scripted, 0) == "Hello"
