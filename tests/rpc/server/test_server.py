"""The gRPC server over a real connection, with a contract and servicers made for these tests."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from structlog.testing import capture_logs

from tests.rpc.echo_service import NAME, SERVICE, Echo, nested
from wonder_sdk.errors import from_rpc
from wonder_server import logs
from wonder_server.core.errors import Reason, error
from wonder_server.rpc.server import call_pipeline
from wonder_server.rpc.server.server import ListenError, RpcServer
from wonder_server.rpc.shared.principal import current_principal
from wonder_server.settings import Settings, SettingsError

LIMIT = 64 * 1024


class EchoServicer:
    """A service that echoes its request; some texts trigger errors."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()

    async def say(self, request: Message, _context: object) -> Message:
        match request.text:
            case "refuse":
                raise error(Reason.TURN_NOT_FOUND, "There is no such turn.", field="text", turn="t1")
            case "crash":
                raise ValueError("sk-secret in some library's text")
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._refuse())
            case "who":
                return Echo(text=current_principal.get().caller)
            case "wait":
                self.opened.set()
                await asyncio.Event().wait()
        return request

    async def _refuse(self) -> None:
        raise error(Reason.AGENT_NOT_FOUND, "There is no such agent.")

    async def watch_all(self, request: Message, _context: object) -> AsyncIterator[Message]:
        try:
            yield Echo(text="a message")
            yield Echo(text="ready bytes").SerializeToString()
            if request.text == "refuse":
                raise error(Reason.SLOW_READER, "Too slow.")
            if request.text == "stay":
                self.opened.set()
                await asyncio.Event().wait()
            while request.text == "flood":
                yield Echo(text="x" * 1000)
        finally:
            self.closed.set()

    async def chat(self, requests: AsyncIterator[Message], _context: object) -> AsyncIterator[Message]:
        while True:
            try:
                request = await anext(requests)
            except StopAsyncIteration:
                return
            except call_pipeline.WonderError as problem:
                yield Echo(text=problem.fault.reason.value)
            else:
                yield request


class Client:
    """Raw calls that send bytes and return messages."""

    def __init__(self, channel: aio.Channel, servicer: EchoServicer, server: RpcServer) -> None:
        self.channel = channel
        self.servicer = servicer
        self.server = server

    def say(self, data: bytes, **options: object) -> Any:
        return self._shape(self.channel.unary_unary, "Say")(data, **options)

    def watch(self, data: bytes) -> Any:
        return self._shape(self.channel.unary_stream, "WatchAll")(data)

    def chat(self) -> Any:
        return self._shape(self.channel.stream_stream, "Chat")()

    def bodiless(self, method: str) -> Any:
        """Start a call of a unary method without sending a request."""
        return self._shape(self.channel.stream_stream, method)()

    def call(self, method: str, data: bytes = b"") -> Any:
        return self._shape(self.channel.unary_unary, method)(data)

    def _shape(self, kind: Callable[..., object], method: str) -> Any:
        return kind(f"/{NAME}/{method}", request_serializer=bytes, response_deserializer=Echo.FromString)


@asynccontextmanager
async def serving(**settings: object) -> AsyncIterator[Client]:
    servicer = EchoServicer()
    configured = Settings(listen="127.0.0.1:0", max_request_bytes=LIMIT, **settings)
    server = RpcServer(configured, [SERVICE])
    address = server.bind()
    await server.start({NAME: servicer})
    try:
        async with aio.insecure_channel(address) as channel:
            yield Client(channel, servicer, server)
    finally:
        await server.stop(0)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with serving() as client:
        yield client


async def refused(call: Any) -> tuple[grpc.StatusCode, str, error_details_pb2.ErrorInfo, list[str]]:
    """Return the code, message, ErrorInfo and fields of a call that must fail."""
    with pytest.raises(aio.AioRpcError) as problem:
        await call
    details = dict(problem.value.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(details)
    info, fields = error_details_pb2.ErrorInfo(), []
    assert status.details[0].Unpack(info)
    for detail in status.details:
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad):
            fields = [violation.field for violation in bad.field_violations]
    assert status.code == problem.value.code().value[0]
    return problem.value.code(), problem.value.details() or "", info, fields


async def test_a_request_survives_a_round_trip(client: Client) -> None:
    sent = Echo(text="hello", mood=1)
    assert await client.say(sent.SerializeToString()) == sent


async def test_thousands_of_concurrent_calls_are_answered(client: Client) -> None:
    received = Echo(text="hello").SerializeToString()
    answers = await asyncio.gather(*(client.say(received) for _ in range(4000)), return_exceptions=True)
    assert {type(answer).__name__ for answer in answers} == {"Echo"}


async def test_messages_and_ready_bytes_are_streamed_alike(client: Client) -> None:
    assert [answer.text async for answer in client.watch(b"")] == ["a message", "ready bytes"]


async def test_a_refusal_carries_code_message_reason_field_and_metadata(client: Client) -> None:
    code, message, info, fields = await refused(client.say(Echo(text="refuse").SerializeToString()))
    assert (code, message) == (grpc.StatusCode.NOT_FOUND, "There is no such turn.")
    assert (info.reason, info.domain, dict(info.metadata)) == ("TURN_NOT_FOUND", "wonder.v1", {"turn": "t1"})
    assert fields == ["text"]


async def test_a_refusal_from_a_task_group_keeps_its_reason(client: Client) -> None:
    code, _, info, _ = await refused(client.say(Echo(text="group").SerializeToString()))
    assert (code, info.reason) == (grpc.StatusCode.NOT_FOUND, "AGENT_NOT_FOUND")


async def test_a_refused_stream_delivers_its_earlier_messages(client: Client) -> None:
    call = client.watch(Echo(text="refuse").SerializeToString())
    assert [(await call.read()).text, (await call.read()).text] == ["a message", "ready bytes"]
    code, _, info, _ = await refused(call.read())
    assert (code, info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SLOW_READER")


async def test_an_unexpected_exception_has_one_incident_id_in_error_and_log(client: Client) -> None:
    out = StringIO()
    logs.configure("json", "error", secrets=["sk-secret"], stream=out)
    code, message, info, _ = await refused(client.say(Echo(text="crash").SerializeToString()))
    line = json.loads(out.getvalue().splitlines()[0])
    assert (code, info.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "library" not in message and "ValueError" not in message
    assert line["incident_id"] == info.metadata["incident_id"] and line["incident_id"] in message
    assert "ValueError" in line["exception"] and "sk-secret" not in out.getvalue()


def test_a_log_record_of_a_library_is_one_line() -> None:
    out = StringIO()
    logs.configure("json", "error", secrets=["sk-secret"], stream=out)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("some.library").exception("it has\nbroken: sk-secret %s", "x" * 1_000)
    logging.getLogger("some.library").warning("below the level")
    [line] = map(json.loads, out.getvalue().splitlines())
    assert (line["event"], line["level"], line["library"]) == ("library_message", "error", "some.library")
    assert line["text"].startswith("it has\nbroken: [secret] xxx") and len(line["text"]) <= 501
    assert "ValueError" in line["exception"]


def test_a_secret_of_one_character_leaves_lines_readable() -> None:
    out = StringIO()
    logs.configure("json", "info", secrets=["a", "b", "event", "long-secret", ""], stream=out)
    given = {"url": "http://h/?key=b&x=bb", "more": ["a", {"deep": "say event"}], "address": "a:1"}
    try:
        raise ValueError("refused: b, long-secret")
    except ValueError:
        logs.logger("b").info("ready", exc_info=True, **given)
    [line] = map(json.loads, out.getvalue().splitlines())
    assert (line["event"], line["level"], line["component"], line["address"]) == ("ready", "info", "b", "a:1")
    assert line["url"] == "http://h/?key=[secret]&x=bb"
    assert line["more"] == ["[secret]", {"deep": "say [secret]"}]
    assert line["exception"].endswith("ValueError: refused: [secret], [secret]")


@pytest.mark.parametrize(
    ("data", "reason", "field"),
    [
        (b"\xff\xff\xff", "MALFORMED_REQUEST", []),
        (b"\x0a\x02\xff\xfe", "MALFORMED_REQUEST", ["text"]),
        (nested(40), "PAYLOAD_TOO_DEEP", ["payload"]),
        (nested(100), "PAYLOAD_TOO_DEEP", ["payload"]),
        (nested(31), "PAYLOAD_TOO_DEEP", ["payload"]),
        (Echo(mood=9).SerializeToString(), "FIELD_INVALID", ["mood"]),
    ],
)
async def test_a_bad_request_is_refused_with_its_field_and_no_class_name(
    client: Client, data: bytes, reason: str, field: list[str]
) -> None:
    code, message, info, fields = await refused(client.say(data))
    assert (code, info.reason, fields) == (grpc.StatusCode.INVALID_ARGUMENT, reason, field)
    assert "Echo" not in message and "protobuf" not in message and "upb" not in message
    assert await client.say(b"") == Echo()


async def test_a_request_over_the_limit_is_refused_with_its_size(client: Client) -> None:
    code, message, info, _ = await refused(client.say(Echo(text="x" * LIMIT).SerializeToString()))
    assert (code, info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "PAYLOAD_TOO_LARGE")
    assert str(LIMIT) in message


async def test_a_request_far_over_the_limit_is_refused_by_the_transport(client: Client) -> None:
    with pytest.raises(aio.AioRpcError) as problem:
        await client.say(Echo(text="x" * LIMIT * 3).SerializeToString())
    assert problem.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # The SDK reads gRPC's text, which no contract covers.
    known = from_rpc(problem.value)
    assert known.reason.name == "PAYLOAD_TOO_LARGE" and known.metadata == {"limit": str(LIMIT)}
    assert f"the maximum is {LIMIT}. Split it" in str(known)
    assert await client.say(b"") == Echo()


@pytest.mark.parametrize("method", ["NotYet", "NotYetWatch"])
async def test_an_unimplemented_method_answers_not_implemented(client: Client, method: str) -> None:
    code, message, info, _ = await refused(client.call(method))
    assert (code, info.reason) == (grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED")
    assert method in message


async def test_a_service_without_a_servicer_answers_not_implemented() -> None:
    server = RpcServer(Settings(listen="127.0.0.1:0"), [SERVICE])
    address = server.bind()
    await server.start({})
    async with aio.insecure_channel(address) as channel:
        _, _, info, _ = await refused(channel.unary_unary(f"/{NAME}/Say")(b""))
    await server.stop(0)
    assert info.reason == "NOT_IMPLEMENTED"


async def test_a_stream_continues_after_a_message_that_does_not_decode(client: Client) -> None:
    chat = client.chat()
    for data, answer in ((b"\xff", "MALFORMED_REQUEST"), (Echo(text="hi").SerializeToString(), "hi")):
        await chat.write(data)
        assert (await chat.read()).text == answer
    await chat.done_writing()
    assert await chat.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("word", ["stay", "flood"])
async def test_a_client_that_leaves_closes_the_servicers_generator(client: Client, word: str) -> None:
    call = client.watch(Echo(text=word).SerializeToString())
    await call.read()
    call.cancel()
    await client.servicer.closed.wait()
    assert await client.say(b"") == Echo()


@pytest.mark.parametrize("method", ["Say", "WatchAll"])
async def test_a_call_without_a_request_holds_a_slot_and_times_out(method: str) -> None:
    async with serving(max_concurrent_rpcs=1, request_seconds=1) as client:
        silent = client.bodiless(method)
        while not client.server.active_calls:  # noqa: ASYNC110 - a place has no event
            await asyncio.sleep(0)
        assert (await refused(client.say(b"")))[2].reason == "LIMIT_EXCEEDED"
        assert (await refused(silent.read()))[2].reason == "TIMEOUT"
        assert client.server.active_calls == 0 and await client.say(b"") == Echo()


@pytest.mark.parametrize("method", ["Say", "WatchAll"])
async def test_a_call_that_ends_without_a_request_is_refused(client: Client, method: str) -> None:
    call = client.bodiless(method)
    await call.done_writing()
    assert (await refused(call.read()))[2].reason == "MALFORMED_REQUEST"


async def test_calls_over_the_limit_are_refused_and_slots_are_released() -> None:
    async with serving(max_concurrent_rpcs=1) as client:
        waiting = client.watch(Echo(text="stay").SerializeToString())
        await client.servicer.opened.wait()
        code, _, info, _ = await refused(client.say(b""))
        assert (code, info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
        waiting.cancel()
        await client.servicer.closed.wait()
        assert await client.say(b"") == Echo()


async def test_a_draining_server_refuses_new_calls_and_finishes_old_ones(client: Client) -> None:
    stub = health_pb2_grpc.HealthStub(client.channel)
    call = client.watch(Echo(text="stay").SerializeToString())
    await client.servicer.opened.wait()
    for name in ("", NAME):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await client.server.drain()
    for name in ("", NAME):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    code, _, info, _ = await refused(client.say(b""))
    assert (code, info.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
    assert not call.done() and client.server.active_calls == 1


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_the_services_and_finds_their_files(client: Client, version: str) -> None:
    info = client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    await info.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {service.name for service in (await info.read()).list_services_response.service}
    await info.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=NAME))
    found = (await info.read()).file_descriptor_response.file_descriptor_proto
    await info.done_writing()
    assert {NAME, "grpc.health.v1.Health"} <= names
    assert found


async def test_a_second_server_on_one_port_is_refused_with_a_plain_message(client: Client) -> None:
    listening = RpcServer(Settings(listen="127.0.0.1:0"), [SERVICE])
    address = listening.bind()
    await listening.start({})
    with pytest.raises(ListenError, match=f"{address} is in use by another program"):
        RpcServer(Settings(listen=address), [SERVICE]).bind()
    await listening.stop(0)


async def test_an_address_that_this_machine_does_not_have_is_refused() -> None:
    with pytest.raises(ListenError, match="cannot listen on"):
        RpcServer(Settings(listen="192.0.2.1:0"), [SERVICE]).bind()


async def test_a_tls_file_that_is_missing_is_named(tmp_path: Path) -> None:
    settings = Settings(listen="127.0.0.1:0", tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem")
    with pytest.raises(SettingsError, match=r"key\.pem cannot be read"):
        RpcServer(settings, [SERVICE]).bind()


TOKEN = "t0ken-of-sixteen-and-more"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Client]:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# who may call\n\n{TOKEN} ada\nanother-token-of-length bob\n")
    async with serving(auth_tokens_file=tokens) as client:
        yield client


async def test_a_known_token_authenticates_the_caller(guarded: Client) -> None:
    who = await guarded.say(
        Echo(text="who").SerializeToString(), metadata=(("authorization", f"Bearer {TOKEN}"),)
    )
    assert who.text == "ada"


@pytest.mark.parametrize("header", [None, "", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer"])
async def test_without_a_known_token_nothing_is_served(guarded: Client, header: str | None) -> None:
    metadata = () if header is None else (("authorization", header),)
    code, message, info, _ = await refused(guarded.say(b"", metadata=metadata))
    assert (code, info.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
    assert TOKEN not in message


@pytest.mark.parametrize("method", ["Say", "WatchAll"])
async def test_a_token_is_checked_before_the_request_arrives(guarded: Client, method: str) -> None:
    assert (await refused(guarded.bodiless(method).read()))[2].reason == "UNAUTHENTICATED"


async def test_streams_and_reflection_need_a_token_and_health_does_not(guarded: Client) -> None:
    await refused(guarded.watch(b"").read())
    await refused(guarded.chat().read())
    method = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    await refused(guarded.channel.stream_stream(method)().read())
    answer = await health_pb2_grpc.HealthStub(guarded.channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_refuses_a_removed_token(
    guarded: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = guarded.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(
        metadata=(("authorization", f"Bearer {TOKEN}"),)
    )
    request = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    await stream.write(request)
    assert await stream.read()
    (tmp_path / "tokens").write_text("another-token-of-length bob\n")
    assert guarded.server._tokens is not None
    monkeypatch.setattr(guarded.server._tokens, "_interval_s", 0.0)
    await stream.write(request)
    assert (await refused(stream.read()))[2].reason == "UNAUTHENTICATED"


@pytest.mark.parametrize("text", ["short name\n", f"{TOKEN}\n", f"{TOKEN} a\n{TOKEN} b\n", "# no token\n"])
async def test_an_invalid_tokens_file_is_refused_without_showing_a_token(tmp_path: Path, text: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(text)
    with pytest.raises(SettingsError) as problem:
        RpcServer(Settings(auth_tokens_file=tokens), [SERVICE])
    assert TOKEN not in str(problem.value)


async def test_a_scope_of_an_unknown_token_logs_a_warning(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN} ada\n")
    with capture_logs() as lines:
        async with serving(auth_tokens_file=tokens, admin="adda, ada", act_as="web"):
            pass
    assert [line for line in lines if line["log_level"] == "warning"] == [
        {"event": "grant_to_unknown_token", "setting": "WONDER_ACT_AS", "name": "web", **WARNING},
        {
            "event": "grant_to_unknown_token",
            "setting": "WONDER_ADMIN",
            "name": "adda",
            "did_you_mean": "ada",
            **WARNING,
        },
    ]


async def test_a_grant_without_tokens_logs_a_warning() -> None:
    with capture_logs() as lines:
        async with serving(admin="ada"):
            pass
    [line] = [line for line in lines if line["log_level"] == "warning"]
    assert (line["event"], line["setting"], line["name"]) == ("grant_without_tokens", "WONDER_ADMIN", "ada")


WARNING = {"log_level": "warning", "component": "rpc"}
