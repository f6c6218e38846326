"""Several callers on one server, each with a token: what is one's own, and which rights do what."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf import message_factory
from grpc import aio

from tests.e2e.callers import TOKENS, calling, streamed, tokens_file
from tests.e2e.client import PATIENCE_S, Client, struct
from tests.e2e.file_requests import FILE_REQUESTS
from tests.e2e.identity_requests import IDENTITY_REQUESTS
from tests.e2e.memory_requests import MEMORY_REQUESTS
from tests.e2e.process import Server, serving
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2, memory_pb2, run_pb2
from wonder.v1 import executor_service_pb2 as tasks
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memories
from wonder_sdk import cli
from wonder_server.rpc.server.server import contract_services

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEAM = """
name: note
description: Keeps a note.
task:
  steps:
    - id: keep
      action: {kind: context}
      input_mapping: {}
      output_mapping: {output.said: input.said}
---
name: forget
description: Forgets a memory.
task:
  steps:
    - id: x
      action: {kind: memory.delete}
      input_mapping: {id: input.id}
---
name: tidy
description: Deletes a document.
task:
  steps:
    - id: keep
      action: {kind: context}
      input_mapping: {}
    - id: remove
      action: {kind: artifact.write, config: {path: kept.md}}
      input_mapping: {delete: "true"}
---
name: sloth
persona:
  system_prompt: Slow.
  model_profile_id: slow
---
name: slow
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 30}}
---
name: asks
workflow:
  nodes:
    - id: ask
      human_gate: {prompt: "'Shall it?'"}
  initial_node_id: ask
"""


@dataclass
class House:
    """A server with three callers, and what they work on."""

    server: Server
    ann: Client
    bob: Client
    proxy: Client
    tokens: Path
    conv: str = ""
    run: str = ""
    gate: run_pb2.Gate = field(default_factory=run_pb2.Gate)
    memory: str = ""
    file: str = ""
    turn: str = ""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("callers")
    tokens = tokens_file(folder)
    environment = {"WONDER_DEFAULT_MODEL": "offline", "WONDER_ADMIN": "ann, proxy", "WONDER_ACT_AS": "proxy"}
    flags = ("--auth-tokens-file", str(tokens))
    async with (
        serving(folder / "data", *flags, environment=environment) as server,
        calling(server, "ann") as ann,
        calling(server, "bob") as bob,
        calling(server, "proxy") as proxy,
    ):
        await ann.apply("team", TEAM)
        await ann.agent("sloth", "team/sloth")
        yield House(server, ann, bob, proxy, tokens)


async def asking(house: House) -> House:
    """Add a conversation, a run that waits at a gate, and a memory to ``house``; return it."""
    house.conv = await house.ann.open("sloth")
    start = runs.StartRunRequest(workflow_id="team/asks")
    house.run = (await house.ann.coordinator.StartRun(start)).run.id
    house.gate = await gate_of(house)
    write = memories.WriteMemoryRequest(agent_id="assistant", memory=fact("a memory"))
    house.memory = (await house.ann.memory.WriteMemory(write)).memory.id
    return house


async def gate_of(house: House) -> run_pb2.Gate:
    watch = house.ann.coordinator.WatchRun(runs.WatchRunRequest(run_id=house.run))
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for word in watch:
                if word.HasField("event") and word.event.HasField("gate_opened"):
                    break
    finally:
        watch.cancel()
    (gate,) = (await house.ann.coordinator.ListGates(runs.ListGatesRequest(run_id=house.run))).gates
    return gate


def fact(text: str) -> memory_pb2.Memory:
    return memory_pb2.Memory(type="fact", content=text)


Act = Callable[[House, Client, str], Awaitable[Any]]


async def on_stream(house: House, who: Client, intent: dict[str, Any], item: str) -> Any:
    """Say something by Converse; what answers it."""
    call = who.conversations.Converse()
    try:
        await call.write(
            pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=house.conv, tail_only=True))
        )
        await call.write(pb.ConverseRequest(**intent))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                word = await call.read()
                if word.HasField(item):
                    return getattr(word, item)
                assert not word.HasField("refused"), word
    finally:
        call.cancel()


ACTS: dict[str, Act] = {
    "CreateConversation": lambda h, c, who: c.conversations.CreateConversation(
        pb.CreateConversationRequest(request_id="r-CreateConversation", conversation={"title": who})
    ),
    "UpdateConversation": lambda h, c, who: c.conversations.UpdateConversation(
        pb.UpdateConversationRequest(
            request_id="r-UpdateConversation", conversation={"id": h.conv, "title": who}
        )
    ),
    "AddParticipant": lambda h, c, who: c.conversations.AddParticipant(
        pb.AddParticipantRequest(
            request_id="r-AddParticipant",
            conversation_id=h.conv,
            participant={"user": {"user_id": f"friend of {who}"}},
        )
    ),
    "RemoveParticipant": lambda h, c, who: c.conversations.RemoveParticipant(
        pb.RemoveParticipantRequest(
            request_id="r-RemoveParticipant", conversation_id=h.conv, user_id=f"friend of {who}"
        )
    ),
    "ResetConversation": lambda h, c, who: c.conversations.ResetConversation(
        pb.ResetConversationRequest(
            request_id="r-ResetConversation", conversation_id=h.conv, keep_system_message=who == "ann"
        )
    ),
    "StreamTurn": lambda h, c, who: drained(streamed(c, h.conv, "r-StreamTurn")),
    "SendMessage": lambda h, c, who: c.conversations.SendMessage(
        pb.SendMessageRequest(
            conversation_id=h.conv, send={"request_id": "r-SendMessage", "content": "say 1 word"}
        )
    ),
    "Converse": lambda h, c, who: on_stream(
        h, c, {"send": {"request_id": "r-Converse", "content": "say 1 word"}}, "sent"
    ),
    "CallAgent": lambda h, c, who: c.conversations.CallAgent(
        pb.CallAgentRequest(
            request_id="r-CallAgent", agent_id="assistant", input={"string_value": "say 1 word"}
        )
    ),
    "StartRun": lambda h, c, who: c.coordinator.StartRun(
        runs.StartRunRequest(request_id="r-StartRun", workflow_id="team/asks")
    ),
    "ForkConversation": lambda h, c, who: c.conversations.ForkConversation(
        pb.ForkConversationRequest(request_id="r-Fork", conversation_id=h.conv, conversation={"title": who})
    ),
    "ForkRun": lambda h, c, who: c.coordinator.ForkRun(
        runs.ForkRunRequest(request_id="r-ForkRun", run_id=h.run, before_node_execution=1)
    ),
    "SignalRun": lambda h, c, who: c.coordinator.SignalRun(
        runs.SignalRunRequest(request_id="r-SignalRun", run_id=h.run, signal={"name": "hint"})
    ),
    "ExecuteTask": lambda h, c, who: c.executor.ExecuteTask(
        tasks.ExecuteTaskRequest(request_id="r-ExecuteTask", task_id="team/note", input=struct(said=who))
    ),
    "StreamTask": lambda h, c, who: drained(
        c.executor.StreamTask(
            tasks.StreamTaskRequest(request_id="r-StreamTask", task_id="team/note", input=struct(said=who))
        )
    ),
    "CreateLibrary": lambda h, c, who: c.library.CreateLibrary(
        library.CreateLibraryRequest(request_id="r-CreateLibrary", library={"name": f"of_{who}"})
    ),
    "PutDefinition": lambda h, c, who: c.library.PutDefinition(
        library.PutDefinitionRequest(
            request_id="r-PutDefinition",
            library_id=f"of_{who}",
            definition={"name": "x", "action": {"kind": "context"}},
        )
    ),
    "ApplyDefinitions": lambda h, c, who: c.library.ApplyDefinitions(
        library.ApplyDefinitionsRequest(request_id="r-ApplyDefinitions", library=f"of_{who}")
    ),
    "CreateAgent": lambda h, c, who: c.library.CreateAgent(
        library.CreateAgentRequest(
            request_id="r-CreateAgent", agent={"name": f"agent_{who}", "persona": {"system_prompt": "x"}}
        )
    ),
    "UpdateAgent": lambda h, c, who: c.library.UpdateAgent(
        library.UpdateAgentRequest(request_id="r-UpdateAgent", agent={"id": "assistant", "description": who})
    ),
    "CreateProject": lambda h, c, who: c.library.CreateProject(
        library.CreateProjectRequest(request_id="r-CreateProject", project={"name": f"project_{who}"})
    ),
    "UpdateProject": lambda h, c, who: c.library.UpdateProject(
        library.UpdateProjectRequest(
            request_id="r-UpdateProject", project={"id": "default", "description": who}
        )
    ),
    "WriteArtifact": lambda h, c, who: c.library.WriteArtifact(
        library.WriteArtifactRequest(
            request_id="r-WriteArtifact", project_id="default", path="x.txt", content=who.encode(), branch="b"
        )
    ),
    "MergeArtifacts": lambda h, c, who: c.library.MergeArtifacts(
        library.MergeArtifactsRequest(
            request_id="r-MergeArtifacts", project_id="default", source_branch="b", message=who
        )
    ),
    "WriteMemory": lambda h, c, who: c.memory.WriteMemory(
        memories.WriteMemoryRequest(
            request_id="r-WriteMemory", agent_id="assistant", memory=fact("likes tea")
        )
    ),
    "BatchWriteMemories": lambda h, c, who: c.memory.BatchWriteMemories(
        memories.BatchWriteMemoriesRequest(
            request_id="r-BatchWriteMemories", agent_id="assistant", memories=[fact("likes tea")]
        )
    ),
    "UpdateMemory": lambda h, c, who: c.memory.UpdateMemory(
        memories.UpdateMemoryRequest(
            request_id="r-UpdateMemory", agent_id="assistant", memory={"id": h.memory, "significance": 0.5}
        )
    ),
    "SupersedeMemory": lambda h, c, who: c.memory.SupersedeMemory(
        memories.SupersedeMemoryRequest(
            request_id="r-SupersedeMemory", agent_id="assistant", memory_id=h.memory, memory=fact(f"of {who}")
        )
    ),
    # From here on, nothing is left of what they act on after the first of them.
    "MergeBranch": lambda h, c, who: c.conversations.MergeBranch(
        pb.MergeBranchRequest(request_id="r-MergeBranch", conversation_id=h.conv, message=who)
    ),
    "CancelTurn": lambda h, c, who: c.conversations.CancelTurn(
        pb.CancelTurnRequest(request_id="r-CancelTurn", conversation_id=h.conv, turn_id=h.turn)
    ),
    "ResolveGate": lambda h, c, who: c.coordinator.ResolveGate(
        runs.ResolveGateRequest(
            request_id="r-ResolveGate",
            gate_id=h.gate.id,
            decision=runs.GATE_DECISION_APPROVE,
            shown_hash=h.gate.shown_hash,
            comment=who,
        )
    ),
    "CancelRun": lambda h, c, who: c.coordinator.CancelRun(
        runs.CancelRunRequest(request_id="r-CancelRun", run_id=h.run, reason=who)
    ),
    "CompleteConversation": lambda h, c, who: c.conversations.CompleteConversation(
        pb.CompleteConversationRequest(
            request_id="r-CompleteConversation", conversation_id=h.conv, cancel_turns=who == "ann"
        )
    ),
    "ReopenConversation": lambda h, c, who: c.conversations.ReopenConversation(
        pb.ReopenConversationRequest(request_id="r-ReopenConversation", conversation_id=h.conv)
    ),
    **MEMORY_REQUESTS,
    **FILE_REQUESTS,
    **IDENTITY_REQUESTS,
    "DeleteAgent": lambda h, c, who: c.library.DeleteAgent(
        library.DeleteAgentRequest(request_id="r-DeleteAgent", agent_id="agent_ann")
    ),
    "DeleteProject": lambda h, c, who: c.library.DeleteProject(
        library.DeleteProjectRequest(request_id="r-DeleteProject", project_id="project_ann")
    ),
    "DeleteDefinition": lambda h, c, who: c.library.DeleteDefinition(
        library.DeleteDefinitionRequest(request_id="r-DeleteDefinition", definition_id="of_ann/x")
    ),
    "DeleteLibrary": lambda h, c, who: c.library.DeleteLibrary(
        library.DeleteLibraryRequest(request_id="r-DeleteLibrary", library_id="of_ann")
    ),
    "DeleteConversation": lambda h, c, who: c.conversations.DeleteConversation(
        pb.DeleteConversationRequest(request_id="r-DeleteConversation", conversation_id=h.conv)
    ),
}
"""A request of each method that takes a ``request_id``. Equal content for both callers where the answer tells
whose it is, else other content, which a shared id would refuse."""

GONE = {
    "CancelTurn", "ResolveGate", "CancelRun", "CompleteConversation", "DeleteMemory", "DeleteAgent",
    "DeleteProject", "DeleteDefinition", "DeleteLibrary", "DeleteConversation", "SupersedeMemory",
    "MergeBranch", "ReopenConversation", "DeleteMemoryBlock", "DeleteFile",
}  # fmt: skip
"""Methods that may fail for a second caller because the first has already done the work."""


async def drained(call: Any) -> Any:
    return [word async for word in call][-1]


def takes_request_id() -> set[str]:
    """Methods of which a request has a ``request_id``."""
    found = set()
    for service in contract_services():
        for method in service.methods:
            parts = [method.input_type, *(f.message_type for f in method.input_type.fields)]
            if any(part is not None and "request_id" in part.fields_by_name for part in parts):
                found.add(method.name)
    return found - {"PreviewContext"}  # It keeps nothing, and says that it ignores the id.


async def test_every_method_with_a_request_id_is_tried() -> None:
    assert takes_request_id() == set(ACTS)


async def test_anothers_request_id_is_another_request_for_every_method(house: House) -> None:
    await asking(house)
    for name, act in ACTS.items():
        who = house.proxy if name.startswith("Delete") or name in IDENTITY_REQUESTS else house.bob
        if name == "CancelTurn":
            said = await house.ann.say(house.conv, "say 300 words")
            house.turn = said.turn.id
        if name == "CancelRun":
            start = runs.StartRunRequest(workflow_id="team/asks")
            house.run = (await house.ann.coordinator.StartRun(start)).run.id
        with suppress(*([aio.AioRpcError] if name == "MergeBranch" else [])):
            first = await act(house, house.ann, "ann")
            again = await act(house, house.ann, "ann")
            assert marks(again) == marks(first), name
        try:
            second = await act(house, who, "bob")
        except aio.AioRpcError as problem:
            assert name in GONE and "request_id" not in (problem.details() or ""), (name, problem.details())
        else:
            assert name not in GONE or name in ("SupersedeMemory", "ReopenConversation"), name
            shared = marks(first) & marks(second)
            assert not shared or name.startswith("Update") or second.nothing_to_merge, name


def marks(answer: Any) -> set[str]:
    """Return the values that identify an answer: ids of created resources, or texts."""
    found = set()
    for path in (
        *("turn.id", "turn_id", "message_id", "run.id", "library.id", "agent.id", "project.id", "key.id"),
        *("definition.library", "memory.id", "file.id", "artifact.revision.id", "revision.id"),
        *("principal.id", "role_binding.id"),
    ):
        value = answer
        for part in path.split("."):
            value = getattr(value, part, None) if value is not None else None
        if isinstance(value, str) and value:
            found.add(f"{path} {value}")
    return found


async def test_a_repeat_across_a_restart_is_its_callers_own(tmp_path: Path) -> None:
    data, flags = tmp_path / "data", ("--auth-tokens-file", str(tokens_file(tmp_path)))
    async with serving(data, *flags) as server, calling(server, "ann") as ann:
        conv = await ann.open(request_id="conversation", title="one")
        await server.kill()
    async with serving(data, *flags) as server, calling(server, "ann") as ann, calling(server, "bob") as bob:
        assert await bob.open(request_id="conversation", title="one") != conv
        assert await ann.open(request_id="conversation", title="one") == conv


async def test_what_a_server_without_tokens_remembered_it_still_does(data: Path) -> None:
    """Ids are stored as they came where callers have no names, by this server as by those before it."""
    async with serving(data) as server, server.client() as client:
        await client.open(request_id="conversation", title="one")
        await client.library.CreateLibrary(
            library.CreateLibraryRequest(request_id="shelf", library={"name": "shelf"})
        )
    assert stored(data / "shards" / "00.db", "SELECT id FROM requests_answered") == {"conversation"}
    assert stored(data / "catalog.db", "SELECT request_id FROM answers") == {"/shelf"}


def stored(file: Path, query: str) -> set[str]:
    connection = sqlite3.connect(file)
    try:
        return {row[0] for row in connection.execute(query)}
    finally:
        connection.close()


# --- whose word it is -------------------------------------------------------------------------------


async def test_a_user_id_is_the_callers_own_unless_it_may_act_for_others(house: House) -> None:
    await asking(house)

    def saying(who: Client, user: str) -> Any:
        request = pb.SendMessageRequest(
            conversation_id=house.conv, send={"content": "say 1 word", "user_id": user}
        )
        return who.conversations.SendMessage(request)

    for user in ("", "bob"):
        assert (await saying(house.bob, user)).turn.caller.user.user_id == "bob"
    assert await rejected(saying(house.bob, "ann")) == ("PERMISSION_DENIED", ["user_id"])
    assert (await saying(house.proxy, "ann")).turn.caller.user.user_id == "ann"

    stream = house.bob.conversations.Converse()
    await stream.write(
        pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=house.conv, tail_only=True))
    )
    await stream.write(
        pb.ConverseRequest(send=pb.ConverseSend(request_id="x", content="say 1 word", user_id="ann"))
    )
    async with asyncio.timeout(PATIENCE_S):
        while not (word := await stream.read()).HasField("refused"):
            pass
    stream.cancel()
    assert word.refused.error.reason == errors_pb2.ERROR_REASON_PERMISSION_DENIED


async def test_no_caller_calls_answers_signals_or_merges_in_anothers_name(house: House) -> None:
    await asking(house)
    bob = house.bob
    call = pb.CallAgentRequest(agent_id="assistant", input={"string_value": "x"})
    call.caller.user.user_id = "ann"
    assert await rejected(bob.conversations.CallAgent(call)) == (
        "PERMISSION_DENIED",
        ["caller.user.user_id"],
    )
    signal = runs.SignalRunRequest(run_id=house.run, signal={"name": "hint", "user_id": "ann"})
    assert await rejected(bob.coordinator.SignalRun(signal)) == ("PERMISSION_DENIED", ["signal.user_id"])
    merge = pb.MergeBranchRequest(conversation_id=house.conv, user_id="ann")
    assert await rejected(bob.conversations.MergeBranch(merge)) == ("PERMISSION_DENIED", ["user_id"])
    answer = runs.ResolveGateRequest(
        gate_id=house.gate.id,
        decision=runs.GATE_DECISION_APPROVE,
        shown_hash=house.gate.shown_hash,
        user_id="ann",
    )
    assert await rejected(bob.coordinator.ResolveGate(answer)) == ("PERMISSION_DENIED", ["user_id"])
    resolved = (await house.proxy.coordinator.ResolveGate(answer)).gate
    assert resolved.resolution.user_id == "ann"


# --- the right admin --------------------------------------------------------------------------------


async def test_only_an_admin_changes_what_a_project_reaches(house: House) -> None:
    def change(who: Client, **fields: Any) -> Any:
        request = library.UpdateProjectRequest(project={"id": "default", **fields})
        return who.library.UpdateProject(request)

    for fields, place in (
        ({"network": {"http_allow": ["10.0.0.0/8"]}}, "project.network"),
        ({"network": {"shell_network": True}}, "project.network"),
        ({"repositories": [{"name": "x", "url": "https://example.com/x.git"}]}, "project.repositories"),
    ):
        assert await rejected(change(house.bob, **fields)) == ("PERMISSION_DENIED", [place])
        create = library.CreateProjectRequest(project={"name": "wide", **fields}, validate_only=True)
        assert await rejected(house.bob.library.CreateProject(create)) == ("PERMISSION_DENIED", [place])
    assert (await change(house.bob, description="of bob")).project.description == "of bob"
    changed = (await change(house.ann, network={"shell_network": True})).project
    assert changed.network.shell_network
    # What stays as it is asks for nothing.
    assert (await change(house.bob, network={"shell_network": True})).project.network == changed.network


async def test_the_command_line_talks_with_a_plain_token_as_its_name(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WONDER_TOKEN", TOKENS["bob"])
    monkeypatch.setenv("NO_COLOR", "1")
    chat = ("chat", "-m", "say 2 words", "--server", house.server.address)
    assert await asyncio.to_thread(cli.main, chat) == 0
    conv = capsys.readouterr().err.split()[-1]
    (message, *_) = await house.bob.messages(conv)
    assert message.author == "bob"
    listed = await house.bob.conversations.ListConversations(pb.ListConversationsRequest(user_id="bob"))
    assert conv in [each.id for each in listed.conversations]

    assert await asyncio.to_thread(cli.main, (*chat, "--user", "ann")) == 1
    assert "user_id is 'ann'" in capsys.readouterr().err


async def test_a_refusal_inside_a_stream_is_logged_as_others_are(house: House) -> None:
    conv = await house.bob.open("sloth")
    before = house.server.count("rpc_rejected")
    call = house.bob.conversations.Converse()
    try:
        await call.write(pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=conv, tail_only=True)))
        send = pb.ConverseSend(request_id="r-refused", content="say 1 word", user_id="ann")
        await call.write(pb.ConverseRequest(send=send))
        async with asyncio.timeout(PATIENCE_S):
            while not (word := await call.read()).HasField("refused"):
                pass
        # Refusals that tests before this one caused may be said in the meantime.
        while "Converse" not in (line := await house.server.logged("rpc_rejected", before + 1))["rpc"]:
            before += 1
    finally:
        call.cancel()
    assert word.refused.request_id == "r-refused"
    assert (line["reason"], line["field"]) == ("PERMISSION_DENIED", "user_id")


async def test_only_an_admin_deletes(house: House) -> None:
    for service in ("ConversationService", "LibraryService", "MemoryService"):
        stub = {
            "ConversationService": house.bob.conversations,
            "LibraryService": house.bob.library,
            "MemoryService": house.bob.memory,
        }[service]
        described = next(d for d in contract_services() if d.name == service)
        for method in described.methods:
            if method.name.startswith("Delete"):
                request = message_factory.GetMessageClass(method.input_type)()
                assert await rejected(getattr(stub, method.name)(request)) == ("PERMISSION_DENIED", [])
    prune = library.ApplyDefinitionsRequest(library="team", prune=True)
    assert await rejected(house.bob.library.ApplyDefinitions(prune)) == ("PERMISSION_DENIED", ["prune"])


# --- the tokens file --------------------------------------------------------------------------------


async def test_a_changed_tokens_file_holds_at_once_and_ends_the_streams_of_who_is_gone(
    tmp_path: Path,
) -> None:
    flags = ("--auth-tokens-file", str(tokens_file(tmp_path, "ann", "bob")))
    async with (
        serving(tmp_path / "data", *flags) as server,
        calling(server, "ann") as ann,
        calling(server, "bob") as bob,
        calling(server, "chief") as chief,
    ):
        conv = await ann.open()
        subscribe = pb.SubscribeRequest(attach=pb.ConverseAttach(conversation_id=conv))
        kept, lost = ann.conversations.Subscribe(subscribe), bob.conversations.Converse()
        await lost.write(pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=conv)))
        await kept.read(), await lost.read()
        assert (await rejected(chief.open()))[0] == "UNAUTHENTICATED"

        (tmp_path / "tokens").write_text("cut sho")
        line = await server.logged("tokens_file_rejected")
        assert "line 1" in line["problem"] and "cut" not in line["problem"]
        assert await bob.open()

        tokens_file(tmp_path, "ann", "chief")
        async with asyncio.timeout(PATIENCE_S):
            with suppress(aio.AioRpcError):
                while await lost.read() is not aio.EOF:
                    pass
        assert await lost.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "was removed" in await lost.details()
        assert (await rejected(bob.open()))[0] == "UNAUTHENTICATED"
        assert await chief.open()
        said = await ann.say(conv, "say 1 word")
        async with asyncio.timeout(PATIENCE_S):
            while not (word := await kept.read()).HasField("event") or word.event.turn_id != said.turn.id:
                pass
        kept.cancel()
    assert server.count("tokens_file_rejected") == 1
