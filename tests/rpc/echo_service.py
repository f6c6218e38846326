"""A separate contract for tests of the gRPC server, so that they do not depend on wonder.v1."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2
from google.protobuf.descriptor import ServiceDescriptor

_STRING, _MESSAGE, _ENUM = 9, 11, 14
NAME = "echotest.v1.EchoService"


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="echotest/v1/echo.proto",
        package="echotest.v1",
        syntax="proto3",
        dependency=[struct_pb2.DESCRIPTOR.name],
    )
    mood = file.enum_type.add(name="Mood")
    mood.value.add(name="MOOD_UNSPECIFIED", number=0)
    mood.value.add(name="MOOD_GLAD", number=1)
    echo = file.message_type.add(name="Echo")
    for number, name, kind, of, label in (
        (1, "text", _STRING, "", 1),
        (2, "payload", _MESSAGE, ".google.protobuf.Struct", 1),
        (3, "mood", _ENUM, ".echotest.v1.Mood", 1),
        (4, "parts", _MESSAGE, ".echotest.v1.Echo", 3),
        (5, "value", _MESSAGE, ".google.protobuf.Value", 1),
    ):
        echo.field.add(name=name, number=number, type=kind, type_name=of or None, label=label)  # type: ignore[arg-type]
    service = file.service.add(name="EchoService")
    for name, asks, answers in (
        ("Say", False, False),
        ("WatchAll", False, True),
        ("Chat", True, True),
        ("NotYet", False, False),
        ("NotYetWatch", False, True),
    ):
        service.method.add(
            name=name,
            input_type=".echotest.v1.Echo",
            output_type=".echotest.v1.Echo",
            client_streaming=asks,
            server_streaming=answers,
        )
    return file


descriptor_pool.Default().AddSerializedFile(_file().SerializeToString())
SERVICE: ServiceDescriptor = descriptor_pool.Default().FindServiceByName(NAME)
Echo: Any = message_factory.GetMessageClass(
    descriptor_pool.Default().FindMessageTypeByName("echotest.v1.Echo")
)


def nested(levels: int) -> bytes:
    """Encode an Echo whose payload is a Struct of ``levels`` levels, without the checks of a library."""
    value = struct_pb2.Value(number_value=1).SerializeToString()
    struct = b""
    for _ in range(levels):
        struct = _field(1, _field(1, b"a") + _field(2, value))
        value = _field(5, struct)
    return _field(2, struct)


def _field(number: int, content: bytes) -> bytes:
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content
