"""Callers that may read something learn which permission is missing to do more with it; others learn
nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_reflection.v1alpha import reflection_pb2

from tests.e2e.callers import calling_with
from tests.e2e.client import Client
from tests.e2e.test_identity import give, key, place, principal
from wonder.v1 import conversation_service_pb2 as pb
from wonder.v1 import library_pb2
from wonder.v1 import library_service_pb2 as library

pytestmark = pytest.mark.asyncio(loop_scope="session")

Call = Callable[[Client, str, str], Awaitable[Any]]
CALLS: dict[str, tuple[str, Call]] = {
    "send": (
        "conversations.write",
        lambda c, _, conv: c.conversations.SendMessage(
            pb.SendMessageRequest(conversation_id=conv, send=pb.ConverseSend(content="x"))
        ),
    ),
    "delete a conversation": (
        "conversations.delete",
        lambda c, _, conv: c.conversations.DeleteConversation(
            pb.DeleteConversationRequest(conversation_id=conv)
        ),
    ),
    "delete an agent": (
        "agents.delete",
        lambda c, name, _: c.library.DeleteAgent(library.DeleteAgentRequest(agent_id=f"agent_{name}")),
    ),
    "change a project": (
        "projects.write",
        lambda c, name, _: c.library.UpdateProject(
            library.UpdateProjectRequest(project=library_pb2.Project(id=name, description="x"))
        ),
    ),
    "write a document": (
        "artifacts.write",
        lambda c, name, _: c.library.WriteArtifact(
            library.WriteArtifactRequest(project_id=name, path="a.txt", content=b"x", message="x")
        ),
    ),
}


async def denied(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str, dict[str, str], str]:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    info = info_of(caught.value)
    return caught.value.code(), info.reason, dict(info.metadata), caught.value.details() or ""


def info_of(problem: aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    status = status_pb2.Status.FromString(dict(problem.trailing_metadata())["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


@pytest.mark.parametrize("name", CALLS)
async def test_a_reader_learns_the_permission_and_a_stranger_learns_nothing(
    tmp_path: Path, name: str
) -> None:
    permission, call = CALLS[name]
    async with place(tmp_path) as at:
        ann, bob = await principal(at.root, "user", "ann"), await principal(at.root, "user", "bob")
        # Each has every one of these permissions somewhere, so that the call as such is allowed.
        for who in (ann, bob):
            await give(at.root, who, "developer", at.projects["blue"])
        await give(at.root, ann, "viewer", at.projects["red"])
        _, anns = await key(at.root, ann)
        _, bobs = await key(at.root, bob)
        red = at.conversations["red"]
        async with calling_with(at.server, anns) as reader, calling_with(at.server, bobs) as stranger:
            code, reason, metadata, text = await denied(call(reader, "red", red))
            assert (code, reason) == (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
            assert metadata["permission"] == permission
            assert text == f"The permission {permission} is missing."
            foreign = await denied(call(stranger, "red", red))
            missing = "conv_" + "0" * len(red.removeprefix("conv_"))
            unknown = await denied(call(stranger, "rex", missing))
            assert foreign[0] is unknown[0] is grpc.StatusCode.NOT_FOUND
            assert foreign[3].replace("red", "rex").replace(red, missing) == unknown[3]
            # What does not exist is not found, also for who may read.
            assert (await denied(call(reader, "rex", missing)))[0] is grpc.StatusCode.NOT_FOUND


async def test_reflection_needs_its_permission(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        bot = await principal(at.root, "service", "bot")
        await give(at.root, bot, "member", at.projects["red"])
        _, whole = await key(at.root, bot)
        _, narrow = await key(at.root, bot, scopes=["conversations.read"])

        async def services(token: str) -> list[str]:
            async with aio.insecure_channel(at.server.address) as channel:
                ask = channel.stream_stream(
                    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                    request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                    response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
                )
                requests = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
                answers = ask(requests, metadata=(("authorization", f"Bearer {token}"),))
                return [
                    each.name async for answer in answers for each in answer.list_services_response.service
                ]

        assert "wonder.v1.ConversationService" in await services(whole)
        with pytest.raises(aio.AioRpcError) as refused:
            await services(narrow)
        assert info_of(refused.value).metadata["permission"] == "server.reflect"
