"""One table: every method with a ``request_id``, and what its request gets when it is sent again.

The rows are the requests of `test_callers.ACTS`. Each is sent twice at once, again, with another content, by
another principal (in `test_callers`), and again after the server was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from tests.e2e.callers import calling, streamed, tokens_file
from tests.e2e.client import PATIENCE_S, struct
from tests.e2e.process import serving
from tests.e2e.test_callers import ACTS, TEAM, House, asking, drained, fact, marks, on_stream
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import coordinator_service_pb2 as runs
from wonder.v1 import errors_pb2
from wonder.v1 import file_service_pb2 as files
from wonder.v1 import library_service_pb2 as library
from wonder.v1 import memory_service_pb2 as memories

pytestmark = pytest.mark.asyncio(loop_scope="session")

REUSED = ("REQUEST_ID_REUSED", ["request_id"])

Ask = Callable[[House], Any]

OTHERS: dict[str, Ask] = {
    "SendMessage": lambda h: h.ann.conversations.SendMessage(
        pb.SendMessageRequest(
            conversation_id=h.conv, send={"request_id": "r-SendMessage", "content": "say 2 words"}
        )
    ),
    "StreamTurn": lambda h: drained(streamed(h.ann, h.conv, "r-StreamTurn", "say 2 words")),
    "CallAgent": lambda h: h.ann.conversations.CallAgent(
        pb.CallAgentRequest(request_id="r-CallAgent", agent_id="assistant", input={"string_value": "other"})
    ),
    "StartRun": lambda h: h.ann.coordinator.StartRun(
        runs.StartRunRequest(
            request_id="r-StartRun", workflow_id="team/asks", metadata=struct(other="content")
        )
    ),
    "ForkRun": lambda h: h.ann.coordinator.ForkRun(
        runs.ForkRunRequest(
            request_id="r-ForkRun", run_id=h.run, before_node_execution=1, input=struct(other="content")
        )
    ),
    "SignalRun": lambda h: h.ann.coordinator.SignalRun(
        runs.SignalRunRequest(request_id="r-SignalRun", run_id=h.run, signal={"name": "other"})
    ),
    "WriteMemory": lambda h: h.ann.memory.WriteMemory(
        memories.WriteMemoryRequest(
            request_id="r-WriteMemory", agent_id="assistant", memory=fact("likes coffee")
        )
    ),
    "BatchWriteMemories": lambda h: h.ann.memory.BatchWriteMemories(
        memories.BatchWriteMemoriesRequest(
            request_id="r-BatchWriteMemories", agent_id="assistant", memories=[fact("likes coffee")]
        )
    ),
    "UpdateMemory": lambda h: h.ann.memory.UpdateMemory(
        memories.UpdateMemoryRequest(
            request_id="r-UpdateMemory", agent_id="assistant", memory={"id": h.memory, "significance": 0.25}
        )
    ),
    "DeleteMemoryBlock": lambda h: h.ann.memory.DeleteMemoryBlock(
        memories.DeleteMemoryBlockRequest(
            request_id="r-DeleteMemoryBlock", agent_id="assistant", label="notes", etag="9"
        )
    ),
    "DeleteFile": lambda h: h.ann.files.DeleteFile(
        files.DeleteFileRequest(request_id="r-DeleteFile", file_id="file_01M80B4FQSR67S4TVYMV1BGX37")
    ),
    "DeleteMemory": lambda h: h.ann.memory.DeleteMemory(
        memories.DeleteMemoryRequest(
            request_id="r-DeleteMemory", agent_id="assistant", memory_id=h.memory, etag="1"
        )
    ),
    "CancelTurn": lambda h: h.ann.conversations.CancelTurn(
        pb.CancelTurnRequest(
            request_id="r-CancelTurn", conversation_id=h.conv, turn_id="turn_01M80B4FQSR67S4TVYMV1BGX37"
        )
    ),
    "DeleteConversation": lambda h: h.ann.conversations.DeleteConversation(
        pb.DeleteConversationRequest(
            request_id="r-DeleteConversation", conversation_id="conv_01M80B4FQSR67S4TVYMV1BGX37"
        )
    ),
    "DeleteAgent": lambda h: h.ann.library.DeleteAgent(
        library.DeleteAgentRequest(request_id="r-DeleteAgent", agent_id="other")
    ),
    "DeleteProject": lambda h: h.ann.library.DeleteProject(
        library.DeleteProjectRequest(request_id="r-DeleteProject", project_id="other")
    ),
    "DeleteDefinition": lambda h: h.ann.library.DeleteDefinition(
        library.DeleteDefinitionRequest(request_id="r-DeleteDefinition", definition_id="of_ann/other")
    ),
    "DeleteLibrary": lambda h: h.ann.library.DeleteLibrary(
        library.DeleteLibraryRequest(request_id="r-DeleteLibrary", library_id="other")
    ),
}
"""Requests with another content for the rows whose content does not depend on the caller's name."""

WITHOUT_OTHER = {"ReopenConversation", "MergeBranch"}
"""The id of a request that changes a conversation belongs to the conversation, and the first has no other
content. `services/content/test_repositories` tries merges."""

FORGOTTEN = {"ExecuteTask", "StreamTask"}
"""Methods whose answers no store keeps: a restart forgets their ids."""

ENDS = (
    *("CancelTurn", "ResolveGate", "CancelRun", "CompleteConversation", "ReopenConversation"),
    *(
        "DeleteMemoryBlock",
        "DeleteMemory",
        "DeleteAgent",
        "DeleteProject",
        "DeleteDefinition",
        "DeleteLibrary",
        "DeleteRoleBinding",
        "DeletePrincipal",
    ),
)
"""Methods that end what others work on. They come after those."""

LAST = ("DeleteConversation",)
"""A deleted conversation answers no repeated request but that of its deletion."""


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[House]:
    """Run a server on the data below ``folder``, and kill it at the end of the block."""
    tokens = tokens_file(folder)
    environment = {"WONDER_DEFAULT_MODEL": "offline", "WONDER_ADMIN": "ann"}
    flags = ("--auth-tokens-file", str(tokens))
    async with (
        asyncio.timeout(PATIENCE_S),
        serving(folder / "data", *flags, environment=environment) as server,
        calling(server, "ann") as ann,
    ):
        yield House(server, ann, ann, ann, tokens)
        await server.kill()


def identity(answer: Any) -> set[str]:
    """Return the values that identify an answer."""
    if isinstance(answer, aio.AioRpcError):
        return {str(answer.code()), answer.details() or ""}
    found = marks(answer)
    for name in ("conversation", "gate"):
        if hasattr(answer, name):
            found.add(f"{name} {getattr(answer, name).id}")
    return found | {f"memory {memory.id}" for memory in getattr(answer, "memories", ())}


async def is_reused(house: House, name: str) -> None:
    """Send another content under the id of the row, which must be refused."""
    if name == "Converse":
        intent = {"send": {"request_id": "r-Converse", "content": "other"}}
        refused = await on_stream(house, house.ann, intent, "refused")
        assert refused.error.reason == errors_pb2.ERROR_REASON_REQUEST_ID_REUSED
        return
    other = OTHERS.get(name)
    call = ACTS[name](house, house.ann, "bob") if other is None else other(house)
    assert await rejected(call) == REUSED, name


async def prepare(house: House, name: str) -> None:
    """Give the row what it works on."""
    if name == "CancelTurn":
        house.turn = (await house.ann.say(house.conv, "say 300 words")).turn.id
    if name == "CancelRun":
        start = runs.StartRunRequest(workflow_id="team/asks")
        house.run = (await house.ann.coordinator.StartRun(start)).run.id


async def test_every_method_executes_a_repeated_request_once(tmp_path: Path) -> None:
    rows = [name for name in ACTS if name not in (*ENDS, *LAST)]
    places: dict[str, House] = {}
    first: dict[str, set[str]] = {}
    for names in (rows, ENDS, LAST):
        async with opened(tmp_path) as house:
            if not places:
                await house.ann.apply("team", TEAM)
                await house.ann.agent("sloth", "team/sloth")
                await asking(house)
            else:
                last = list(places.values())[-1]
                house = replace(last, server=house.server, ann=house.ann, bob=house.ann, proxy=house.ann)
            for name in names:
                await prepare(house, name)
                places[name] = replace(house)
                act = ACTS[name]
                answers = await asyncio.gather(
                    *(act(house, house.ann, "ann") for _ in range(2)), return_exceptions=True
                )
                answers.append(*await asyncio.gather(act(house, house.ann, "ann"), return_exceptions=True))
                # Without a repository there is nothing that MergeBranch could merge.
                assert name == "MergeBranch" or not isinstance(answers[0], BaseException), (name, answers)
                first[name] = identity(answers[0])
                assert [identity(each) for each in answers] == [first[name]] * 3, (name, answers)
                if name not in WITHOUT_OTHER:
                    await is_reused(house, name)
        async with opened(tmp_path) as house:
            for name in names:
                place = replace(places[name], ann=house.ann)
                if name not in WITHOUT_OTHER | FORGOTTEN:
                    # First, since the process remembers the ids that it has answered again.
                    await is_reused(place, name)
                [again] = await asyncio.gather(ACTS[name](place, house.ann, "ann"), return_exceptions=True)
                assert identity(again) == first[name], (name, again)
