"""The server as operators see it: what it offers, how it stops, what it refuses to start on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, message_factory
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.e2e.client import Client, Listener, View
from tests.e2e.process import Server, serving
from tests.rpc.rpc_kit import rejected
from wonder.v1 import conversation_service_pb2 as pb
from wonder_sdk import cli
from wonder_server.rpc.server.server import contract_services

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVICES = {
    f"wonder.v1.{name}Service"
    for name in ("Backup", "Conversation", "Coordinator", "Executor", "File", "Identity", "Library", "Memory")
}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
LATER: dict[str, str] = {}
"""RPCs whose turn has not come. Take out what is built."""


async def reflected(client: Client, **asked: str) -> Any:
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)  # type: ignore[no-untyped-call]
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(**asked))
    await call.done_writing()
    return await call.read()


async def test_reflection_lists_the_services_with_all_their_methods(client: Client) -> None:
    listed = await reflected(client, list_services="")
    names = {service.name for service in listed.list_services_response.service}
    assert names == SERVICES | {
        "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }  # fmt: skip
    for service in contract_services():
        answer = await reflected(client, file_containing_symbol=service.full_name)
        files = [
            descriptor_pb2.FileDescriptorProto.FromString(data)
            for data in answer.file_descriptor_response.file_descriptor_proto
        ]
        found = next(s for file in files for s in file.service if s.name == service.name)
        assert [m.name for m in found.method] == [m.name for m in service.methods]


async def test_what_is_not_built_yet_says_so_and_all_else_is_there(client: Client) -> None:
    for service in contract_services():
        for method in service.methods:
            kind = (method.client_streaming, method.server_streaming)
            request = message_factory.GetMessageClass(method.input_type)()
            reason, code = await answered(client, f"/{service.full_name}/{method.name}", request, kind)
            later = method.name in LATER.get(service.name, "").split()
            assert (reason == "NOT_IMPLEMENTED") == later, (method.full_name, reason)
            if later:
                assert code is grpc.StatusCode.UNIMPLEMENTED


async def answered(client: Client, path: str, request: Any, kind: tuple[bool, bool]) -> tuple[str, Any]:
    """Reason and code that an empty request meets; empty if it is served."""
    codes: list[Any] = []

    async def call() -> None:
        factory = {
            (False, False): client.channel.unary_unary,
            (False, True): client.channel.unary_stream,
            (True, False): client.channel.stream_unary,
            (True, True): client.channel.stream_stream,
        }[kind]
        made = factory(path, request_serializer=lambda m: m.SerializeToString())
        try:
            answer = made(iter([request])) if kind[0] else made(request)
            if kind[1]:
                async for _ in answer:
                    pass
            else:
                await answer
        except aio.AioRpcError as problem:
            codes.append(problem.code())
            raise

    try:
        await call()
    except aio.AioRpcError as problem:
        error = problem

        async def again() -> None:
            raise error

        reason, _ = await rejected(again())
        return reason, codes[0]
    return "", grpc.StatusCode.OK


async def test_health_of_every_service(client: Client) -> None:
    for name in ("", *SERVICES):
        answer = await client.health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == SERVING
    with pytest.raises(aio.AioRpcError) as problem:
        await client.health.Check(health_pb2.HealthCheckRequest(service="wonder.v1.Nothing"))
    assert problem.value.code() is grpc.StatusCode.NOT_FOUND


SLOW = """
name: slow
model_profile: {provider: offline, model: offline, parameters: {token_delay_ms: 30}}
---
name: slow_speaker
persona: {system_prompt: x, model_profile_id: slow, memory_extraction_workflow_id: none}
"""


async def test_sigterm_tells_streams_keeps_turns_and_ends_in_time(data: Path) -> None:
    server = await Server(data).start()
    async with server.client() as client:
        await client.apply("e2e/slow", SLOW)
        await client.agent("snail", "e2e/slow/slow_speaker")
        conv = await client.open("snail")
        watch = client.health.Watch(health_pb2.HealthCheckRequest(service="wonder.v1.ConversationService"))
        assert (await watch.read()).status == SERVING
        call = client.conversations.Converse()
        await call.write(pb.ConverseRequest(attach=pb.ConverseAttach(conversation_id=conv)))
        listener = Listener(call, View())
        said = await client.say(conv, "say 40 words")
        view = await listener.until(lambda v: any(text.count(" ") > 4 for text in v.texts.values()))
        server.terminate()
        await listener.rest()
        assert [w.WhichOneof("item") for w in view.words[-2:]] == ["draining", "end"]
        assert view.words[-1].end.reason == pb.STREAM_END_REASON_DRAINING
        assert view.words[-2].draining.reconnect_after_ms > 0
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        assert await server.ended() == 0
    async with serving(data) as again, again.client() as client:
        view = await client.settled(conv, said.turn.id, view)
        assert view.names[-2:] == ["message.appended", "turn.completed"]
        assert view.text() == " ".join(f"word{n}" for n in range(1, 41))
        assert list(view.restarts.values()) in ([[2]], [])
        assert view.events == await client.events(conv)


async def refusal(*flags: str, data: Path, **environment: str) -> str:
    """Return the error of a server that must not start; it exits with 2 and one line."""
    server = Server(data, *flags, environment=environment)
    await server.begin()
    assert await server.ended() == 2
    lines = [line["event"] for line in server.log if line["event"].startswith("wonder serve: ")]
    assert len(lines) == 1 and "Traceback" not in str(server.log)
    return str(lines[0])


async def test_a_second_server_on_folder_or_port_is_refused(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = await refusal(data=server.data)
    assert "is in use by process" in said and "another folder with --data-dir" in said
    assert cli.main(["check", str(server.data)]) == 2
    said = capsys.readouterr().err
    assert "is in use by process" in said and said.endswith("Stop that server first.\n")
    assert "is in use by another program" in await refusal("--listen", server.address, data=tmp_path / "b")
    # The first one never noticed.
    async with server.client() as client:
        assert await client.open()


async def test_a_model_whose_key_is_missing_is_warned_of_at_the_start(tmp_path: Path) -> None:
    environment = {"WONDER_DEFAULT_MODEL": "openai/gpt-4o", "OPENAI_API_KEY": ""}
    async with serving(tmp_path / "data", environment=environment) as server:
        (line,) = (each for each in server.log if each["event"] == "default_model_unavailable")
    assert line["level"] == "warning" and "set OPENAI_API_KEY" in line["reason"]


async def test_a_model_of_no_known_provider_is_refused_at_the_start(tmp_path: Path) -> None:
    said = await refusal("--default-model", "foo/bar", data=tmp_path)
    assert "this server has no model provider 'foo'" in said and "[[providers]]" in said
    assert not (tmp_path / "shards").exists()


async def test_it_does_not_listen_beyond_this_machine_unprotected(tmp_path: Path) -> None:
    said = await refusal("--listen", "0.0.0.0:0", data=tmp_path)
    assert "can be reached from other machines" in said and "--insecure" in said
    assert not (tmp_path / "shards").exists()


async def test_a_folder_with_a_shard_missing_is_refused_in_words(data: Path) -> None:
    async with serving(data):
        pass
    missing = data / "shards" / "00.db"
    kept = missing.read_bytes()
    missing.unlink()
    assert "not complete" in await refusal(data=data)
    missing.write_bytes(b"")
    assert "is empty" in await refusal(data=data)
    missing.write_bytes(kept)
    async with serving(data) as server, server.client() as client:
        assert await client.open()
