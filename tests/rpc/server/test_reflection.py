"""Reflection of each symbol of the contract with all files that it imports (feature J3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc import aio
from grpc_reflection.v1alpha.reflection_pb2 import (
    ExtensionRequest,
    ServerReflectionRequest,
    ServerReflectionResponse,
)

from wonder_server.core.json_types import JsonDict
from wonder_server.rpc.server.reflection import Reflection, Symbols
from wonder_server.rpc.server.server import contract_services


class Reflected:
    """A reflection client with one stream and one request at a time."""

    def __init__(self, channel: aio.Channel, version: str) -> None:
        self._call: Any = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )()

    async def ask(self, **question: object) -> ServerReflectionResponse:
        request = ServerReflectionRequest(host="here", **question)
        await self._call.write(request)
        answer: ServerReflectionResponse = await self._call.read()
        assert answer.original_request == request and answer.valid_host == "here"
        return answer

    async def files(self, **question: object) -> list[FileDescriptorProto]:
        answer = await self.ask(**question)
        assert answer.HasField("file_descriptor_response"), (question, answer.error_response)
        data = answer.file_descriptor_response.file_descriptor_proto
        return [FileDescriptorProto.FromString(each) for each in data]

    async def refusal(self, **question: object) -> tuple[int, str]:
        error = (await self.ask(**question)).error_response
        return error.error_code, error.error_message


@pytest.fixture
async def channel() -> AsyncIterator[aio.Channel]:
    server = aio.server()
    Reflection(contract_services()).add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    await server.stop(None)


@pytest.fixture(params=["v1", "v1alpha"])
def reflected(channel: aio.Channel, request: pytest.FixtureRequest) -> Reflected:
    return Reflected(channel, request.param)


def files_of_the_contract() -> list[FileDescriptor]:
    found: dict[str, FileDescriptor] = {}
    waiting = [service.file for service in contract_services()]
    while waiting:
        file = waiting.pop()
        if file.name not in found:
            found[file.name] = file
            waiting += file.dependencies
    return list(found.values())


def symbols(file: FileDescriptor) -> Iterator[str]:
    """Return every name that a file defines, read from the runtime's descriptors."""
    scope = f"{file.package}."
    for service in file.services_by_name.values():
        yield service.full_name
        yield from (f"{service.full_name}.{method.name}" for method in service.methods)
    for message in file.message_types_by_name.values():
        yield from names_in(message)
    for enum in file.enum_types_by_name.values():
        yield from names_of(enum, scope)
    yield from (extension.full_name for extension in file.extensions_by_name.values())


def names_in(message: Descriptor) -> Iterator[str]:
    yield message.full_name
    yield from (f"{message.full_name}.{field.name}" for field in message.fields)
    yield from (f"{message.full_name}.{oneof.name}" for oneof in message.oneofs)
    yield from (extension.full_name for extension in message.extensions)
    for enum in message.enum_types:
        yield from names_of(enum, f"{message.full_name}.")
    for nested in message.nested_types:
        yield from names_in(nested)


def names_of(enum: EnumDescriptor, scope: str) -> Iterator[str]:
    yield enum.full_name
    for value in enum.values:
        yield f"{scope}{value.name}"
        yield f"{enum.full_name}.{value.name}"


async def test_every_symbol_of_the_contract_is_found_in_its_file(reflected: Reflected) -> None:
    seen = 0
    for file in files_of_the_contract():
        for symbol in symbols(file):
            found = await reflected.files(file_containing_symbol=symbol)
            assert found[0].name == file.name, symbol
            seen += 1
    methods = sum(len(service.methods) for service in contract_services())
    assert seen > methods > 0


async def test_a_response_contains_all_imports_of_the_file(reflected: Reflected) -> None:
    """Check that a client can build the file from one response."""
    for file in files_of_the_contract():
        found = await reflected.files(file_by_filename=file.name)
        assert found[0].name == file.name and len({each.name for each in found}) == len(found)
        pool, missing = DescriptorPool(), {each.name: each for each in found}

        def add(name: str, pool: DescriptorPool = pool, missing: JsonDict = missing) -> None:
            if (proto := missing.pop(name, None)) is not None:
                for dependency in proto.dependency:
                    add(dependency)
                pool.Add(proto)

        add(file.name)
        assert pool.FindFileByName(file.name).name == file.name
        assert not missing, "nothing that the file does not need"


async def test_services_that_are_listed_are_described_with_their_messages(reflected: Reflected) -> None:
    listed = (await reflected.ask(list_services="")).list_services_response.service
    names = [service.name for service in listed]
    assert names == sorted(names)
    assert {"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"} < {*names}
    assert {service.full_name for service in contract_services()} < {*names}
    for name in names:
        [file, *_] = await reflected.files(file_containing_symbol=name)
        service = next(each for each in file.service if f"{file.package}.{each.name}" == name)
        for method in service.method:
            for message in (method.input_type, method.output_type):
                assert await reflected.files(file_containing_symbol=message), message


async def test_details_of_errors_are_described(reflected: Reflected) -> None:
    assert await reflected.files(file_containing_symbol="google.rpc.ErrorInfo")


async def test_an_unknown_symbol_is_refused_and_the_stream_continues(reflected: Reflected) -> None:
    unknown = ExtensionRequest(containing_type="wonder.v1.Turn", extension_number=100)
    for question, sentence in (
        ({"file_containing_symbol": "wonder.v1.LibraryService.Nothing"},
         "symbol 'wonder.v1.LibraryService.Nothing' not found"),
        ({"file_containing_symbol": ""}, "symbol '' not found"),
        ({"file_by_filename": "wonder/v1/nothing.proto"}, "file 'wonder/v1/nothing.proto' not found"),
        ({"file_containing_extension": unknown}, "extension 100 of 'wonder.v1.Turn' not found"),
        ({"all_extension_numbers_of_type": "wonder.v1.Nothing"}, "message 'wonder.v1.Nothing' not found"),
    ):  # fmt: skip
        assert await reflected.refusal(**question) == (grpc.StatusCode.NOT_FOUND.value[0], sentence)
    refused = await reflected.refusal()
    assert refused == (grpc.StatusCode.INVALID_ARGUMENT.value[0], "the request asks for nothing")
    none = (
        await reflected.ask(all_extension_numbers_of_type="wonder.v1.Turn")
    ).all_extension_numbers_response
    assert (none.base_type_name, list(none.extension_number)) == ("wonder.v1.Turn", [])


async def test_invalid_bytes_are_refused_with_a_reason(channel: aio.Channel) -> None:
    call: Any = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")()
    await call.write(b"\xff\xff\xff")
    with pytest.raises(aio.AioRpcError) as refused:
        await call.read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_extensions_are_found_by_name_and_by_number() -> None:
    base, more = FileDescriptorProto(), FileDescriptorProto()
    base.name, base.package = "base.proto", "acme"
    base.message_type.add(name="Base").extension_range.add(start=100, end=200)
    more.name, more.package = "more.proto", "acme.more"
    more.dependency.append("base.proto")
    more.extension.add(name="top", number=101, extendee=".acme.Base", label=1, type=9)
    holder = more.message_type.add(name="Holder")
    holder.extension.add(name="inner", number=100, extendee=".acme.Base", label=1, type=9)
    index = Symbols([base, more])
    assert index.file_of("acme.more.top") == index.file_of(".acme.more.Holder.inner") == "more.proto"
    assert (
        index.file_of_extension("acme.Base", 100) == index.file_of_extension("acme.Base", 101) == "more.proto"
    )
    assert index.file_of_extension("acme.Base", 102) is None
    assert index.extension_numbers("acme.Base") == [100, 101]
    assert index.extension_numbers("acme.more.Holder") == []
    files = [FileDescriptorProto.FromString(data).name for data in index.with_dependencies("more.proto")]
    assert files == ["more.proto", "base.proto"]
