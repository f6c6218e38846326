"""Server reflection, in versions v1 and v1alpha: tools such as grpcurl read the contract from the server.

The descriptor pool of protobuf's Python runtime does not find methods, oneofs or enum values by name, so the
reflection service of grpcio-reflection answers "not found" for them. `Symbols` indexes every name in the
served files and their dependencies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final

import grpc
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from wonder_server.core.access.permissions import REFLECT
from wonder_server.core.errors import Reason, WonderError, error
from wonder_server.rpc.server.authentication import Credential, credential
from wonder_server.rpc.server.authorization import require_permission
from wonder_server.rpc.server.error_codes import to_rpc_status

_SERVICE: Final = "ServerReflection"
_V1ALPHA: Final = "grpc.reflection.v1alpha"
_V1: Final = "grpc.reflection.v1"


class Symbols:
    """An index of protobuf files by file name, symbol and extension."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self._files: dict[str, FileDescriptorProto] = {}
        self._by_symbol: dict[str, str] = {}
        self._extensions: dict[str, dict[int, str]] = {}
        self._messages: set[str] = set()
        self._serialized: dict[str, list[bytes]] = {}
        for file in files:
            if file.name not in self._files:
                self._files[file.name] = file
                self._index(file)

    def file(self, name: str) -> str | None:
        """Return ``name`` if a file has this name, else None."""
        return name if name in self._files else None

    def file_of(self, symbol: str) -> str | None:
        """Return the name of the file that defines a fully qualified symbol.

        Symbols are services, methods, messages, fields, oneofs, enums, enum values and extensions. An enum
        value is found as protobuf scopes it (beside its enum) and below its enum.
        """
        return self._by_symbol.get(symbol.removeprefix("."))

    def file_of_extension(self, message: str, number: int) -> str | None:
        """Return the name of the file that extends ``message`` with field ``number``."""
        return self._extensions.get(message.removeprefix("."), {}).get(number)

    def extension_numbers(self, message: str) -> list[int] | None:
        """Return the numbers of all extensions of ``message``, ascending, or None if it is unknown."""
        message = message.removeprefix(".")
        return sorted(self._extensions.get(message, ())) if message in self._messages else None

    def with_dependencies(self, name: str) -> list[bytes]:
        """Return the serialized file, followed by each file that it imports directly or indirectly, once."""
        if (serialized := self._serialized.get(name)) is None:
            found: dict[str, bytes] = {}
            pending = [name]
            while pending:
                each = pending.pop(0)
                if each not in found and each in self._files:
                    found[each] = self._files[each].SerializeToString()
                    pending += self._files[each].dependency
            serialized = self._serialized[name] = list(found.values())
        return serialized

    def _index(self, file: FileDescriptorProto) -> None:
        scope = f"{file.package}." if file.package else ""
        names = [scope + extension.name for extension in file.extension]
        for message in file.message_type:
            names += self._message(file.name, scope, message)
        for enum in file.enum_type:
            names += _enum(scope, enum)
        for service in file.service:
            names.append(scope + service.name)
            names += [f"{scope}{service.name}.{method.name}" for method in service.method]
        for extension in file.extension:
            self._extension(file.name, extension.extendee, extension.number)
        self._by_symbol.update(dict.fromkeys(names, file.name))

    def _message(self, file: str, scope: str, message: DescriptorProto) -> list[str]:
        name = scope + message.name
        self._messages.add(name)
        for extension in message.extension:
            self._extension(file, extension.extendee, extension.number)
        names = [name]
        names += [f"{name}.{field.name}" for field in (*message.field, *message.extension)]
        names += [f"{name}.{oneof.name}" for oneof in message.oneof_decl]
        for enum in message.enum_type:
            names += _enum(f"{name}.", enum)
        for nested in message.nested_type:
            names += self._message(file, f"{name}.", nested)
        return names

    def _extension(self, file: str, extendee: str, number: int) -> None:
        self._extensions.setdefault(extendee.removeprefix("."), {})[number] = file


def _enum(scope: str, enum: EnumDescriptorProto) -> list[str]:
    values = [value.name for value in enum.value]
    below = [f"{scope}{enum.name}.{value}" for value in values]
    return [scope + enum.name, *(scope + value for value in values), *below]


class Reflection:
    """The reflection service for ``services`` and itself, in both versions."""

    def __init__(
        self,
        services: Sequence[ServiceDescriptor],
        is_valid: Callable[[Credential], bool] = lambda _: True,
    ) -> None:
        """Index the services.

        ``is_valid`` returns True while a token is valid; a stream ends with its token.
        """
        self._is_valid = is_valid
        health = health_pb2.DESCRIPTOR.services_by_name["Health"]
        named = [*(service.full_name for service in services), health.full_name]
        self._services = sorted([*named, *(f"{version}.{_SERVICE}" for version in (_V1, _V1ALPHA))])
        files: list[Any] = [health_pb2.DESCRIPTOR, *(service.file for service in services)]
        # Clients look up the messages packed in error details, which no method mentions.
        files += [reflection_pb2.DESCRIPTOR, error_details_pb2.DESCRIPTOR]
        self._symbols = Symbols([*_with_imports(files), _version_1()])

    def add_to(self, server: aio.Server) -> None:
        """Register both versions."""
        # Without a request deserializer: gRPC rejects an unreadable request without a reason.
        handler: grpc.RpcMethodHandler[bytes, reflection_pb2.ServerReflectionResponse] = (
            grpc.stream_stream_rpc_method_handler(
                self._serve, response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString
            )
        )
        server.add_generic_rpc_handlers(
            tuple(
                grpc.method_handlers_generic_handler(
                    f"{version}.{_SERVICE}", {"ServerReflectionInfo": handler}
                )
                for version in (_V1, _V1ALPHA)
            )
        )

    async def _serve(
        self, requests: AsyncIterator[bytes], context: aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        used = credential.get()
        try:
            require_permission(REFLECT)
        except WonderError as problem:
            answer = to_rpc_status(problem)
            await context.abort(answer.code, answer.message, answer.trailers)
        async for data in requests:
            if used is not None and not self._is_valid(used):
                answer = to_rpc_status(
                    error(
                        Reason.UNAUTHENTICATED,
                        f"The token '{used.name}' was removed while the call was open.",
                    )
                )
                await context.abort(answer.code, answer.message, answer.trailers)
            try:
                request = reflection_pb2.ServerReflectionRequest.FromString(data)
            except DecodeError:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT, "The request is not a ServerReflectionRequest."
                )
            yield self.respond(request)

    def respond(
        self, request: reflection_pb2.ServerReflectionRequest
    ) -> reflection_pb2.ServerReflectionResponse:
        """Return the answer to one request.

        For an unknown name it is an ``error_response``; the stream continues.
        """
        response = reflection_pb2.ServerReflectionResponse(valid_host=request.host, original_request=request)
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in self._services:
                    response.list_services_response.service.add(name=name)
            case "file_by_filename":
                name = request.file_by_filename
                self._describe(response, self._symbols.file(name), f"file {name!r}")
            case "file_containing_symbol":
                symbol = request.file_containing_symbol
                self._describe(response, self._symbols.file_of(symbol), f"symbol {symbol!r}")
            case "file_containing_extension":
                extension = request.file_containing_extension
                file = self._symbols.file_of_extension(extension.containing_type, extension.extension_number)
                wanted = f"extension {extension.extension_number} of {extension.containing_type!r}"
                self._describe(response, file, wanted)
            case "all_extension_numbers_of_type":
                message = request.all_extension_numbers_of_type
                numbers = self._symbols.extension_numbers(message)
                if numbers is None:
                    _set_error(response, grpc.StatusCode.NOT_FOUND, f"message {message!r} not found")
                else:
                    found = response.all_extension_numbers_response
                    found.base_type_name = message
                    found.extension_number.extend(numbers)
            case _:
                _set_error(response, grpc.StatusCode.INVALID_ARGUMENT, "the request asks for nothing")
        return response

    def _describe(
        self, response: reflection_pb2.ServerReflectionResponse, file: str | None, wanted: str
    ) -> None:
        if file is None:
            _set_error(response, grpc.StatusCode.NOT_FOUND, f"{wanted} not found")
        else:
            described = self._symbols.with_dependencies(file)
            response.file_descriptor_response.file_descriptor_proto.extend(described)


def _set_error(
    response: reflection_pb2.ServerReflectionResponse, status: grpc.StatusCode, message: str
) -> None:
    response.error_response.error_code = status.value[0]
    response.error_response.error_message = message


def _with_imports(files: Iterable[FileDescriptor]) -> list[FileDescriptorProto]:
    found: dict[str, FileDescriptorProto] = {}
    pending = list(files)
    while pending:
        file = pending.pop()
        if file.name not in found:
            found[file.name] = FileDescriptorProto()
            file.CopyToProto(found[file.name])
            pending += file.dependencies
    return list(found.values())


def _version_1() -> FileDescriptorProto:
    """Return the file of reflection v1: that of v1alpha with another package name."""
    alpha = reflection_pb2.DESCRIPTOR.serialized_pb
    file = FileDescriptorProto.FromString(alpha)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", _V1
    for message in file.message_type:
        for field in message.field:
            field.type_name = field.type_name.replace(f".{_V1ALPHA}.", f".{_V1}.")
    for method in file.service[0].method:
        method.input_type = method.input_type.replace(f".{_V1ALPHA}.", f".{_V1}.")
        method.output_type = method.output_type.replace(f".{_V1ALPHA}.", f".{_V1}.")
    return file
